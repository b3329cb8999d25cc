"""Every example runs, in a process of its own, and says that its answers are right."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import re
import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright.errors import DeviceError
from tilewright.runtime import open_runtime

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """PyTorch compiles a function for a few kinds of input at most."""
    if "torch" in sys.modules:
        sys.modules["torch"].compiler.reset()


@pytest.mark.parametrize("name", [path.name for path in EXAMPLES if path.stem.startswith("pytorch")])
def test_without_pytorch_its_examples_say_so_in_a_line(name: str) -> None:
    code = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    command = [sys.executable, "-c", code, str(ROOT / "examples" / name)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("this example needs PyTorch") and done.stderr.count("\n") == 1
    assert "pip install -e '.[torch]'" in done.stderr, "without -e a copy takes the place of this folder"


def ran(script: Path, cache: Path) -> str:
    """What a script prints, in a process and a cache of its own; skipped where it lacks something."""
    code = script.read_text(encoding="utf-8")
    if "import torch" in code:
        pytest.importorskip("torch")
    if any(opens in code for opens in ("tw.tune", "open_runtime")):
        try:
            open_runtime("opencl")
        except DeviceError as error:
            pytest.skip(str(error))
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "TILEWRIGHT_CACHE": str(cache), "PYTHONPATH": paths}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example: Path, tmp_path: Path) -> None:
    printed = ran(example, tmp_path / "cache")
    assert printed and "False" not in printed


def odd_networks(nn: Any) -> dict[str, Any]:
    """Networks whose parts compute more than they seem to, or are in several places."""

    class Scaled(nn.Conv2d):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return super().forward(2 * x)

    class Doubled(nn.Conv2d):  # type: ignore[misc]
        def _conv_forward(self, *given: Any) -> Any:
            return 2 * super()._conv_forward(*given)

    class Skipping(nn.Sequential):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            y = self[0](x)
            return self[1](y) + y

    class Asking(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Conv2d(4, 4, 3)

        def forward(self, x: Any) -> Any:
            return self.embed(x.to(self.embed.weight.dtype)) - self.embed.bias.sum()

    def conv() -> Any:
        return nn.Conv2d(4, 4, 3, padding=1)

    def hooked(one: Any) -> Any:
        one.register_forward_hook(lambda _module, _inputs, output: 2 * output)
        return one

    two, up, twice = conv(), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Sequential(conv(), nn.ReLU())
    return {
        "a forward of its own": nn.Sequential(Scaled(4, 4, 3), nn.ReLU()),
        "an inner forward of its own": nn.Sequential(Doubled(4, 4, 3), nn.ReLU()),
        "a sequence with one": Skipping(conv(), nn.ReLU()),
        "a weight that is asked for": Asking(),
        "a hook": nn.Sequential(hooked(conv()), nn.ReLU()),
        "a hook of a ReLU": nn.Sequential(conv(), hooked(nn.ReLU())),
        "what lies between is there twice": nn.Sequential(up, conv(), up, nn.ReLU()),
        "a convolution twice": nn.Sequential(two, nn.ReLU(), two, nn.Tanh(), two),
        "a pool": nn.Sequential(conv(), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.ReLU()),
        "a pool without a ReLU": nn.Sequential(conv(), nn.MaxPool2d(2), nn.ReLU()),
        "a pool that goes on past the edge": nn.Sequential(conv(), nn.MaxPool2d(2, ceil_mode=True)),
        "a pool that is not square": nn.Sequential(conv(), nn.MaxPool2d((1, 2))),
        "a pool that strides unlike": nn.Sequential(conv(), nn.MaxPool2d(2, (1, 2))),
        "a pool of lists": nn.Sequential(conv(), nn.MaxPool2d([3, 3], [2], (1, 1), [1, 1])),
        "a dilated pool": nn.Sequential(conv(), nn.MaxPool2d(2, dilation=2)),
        "a hook of a pool": nn.Sequential(conv(), nn.ReLU(), hooked(nn.MaxPool2d(2))),
        "a part twice": nn.Sequential(nn.Sequential(twice, nn.Tanh()), nn.Sequential(twice)),
    }


def test_a_swapped_network_answers_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_network import layers
    from pytorch_swap import swap

    x = torch.randn(1, 4, 9, 9)
    for what, network in odd_networks(torch.nn).items():
        with torch.no_grad():
            want, listed = network(x), [str(layer) for layer in layers(network, x)]
            assert torch.allclose(swap(network)(x), want, atol=1e-4), what
        assert len(listed) == ("forward of its own" not in what), what


def traceable_networks(torch: Any) -> dict[str, tuple[Any, list[str]]]:
    """Networks of four channels, and what their layers do to the sum."""
    nn, fun = torch.nn, torch.nn.functional

    class Two(nn.Module):  # type: ignore[misc]
        def __init__(self, how: Any) -> None:
            super().__init__()
            self.a, self.b, self.how = conv(), conv(), how

        def forward(self, x: Any) -> Any:
            return self.how(self.a(x), self.b(x))

    class One(nn.Module):  # type: ignore[misc]
        def __init__(self, how: Any) -> None:
            super().__init__()
            self.a, self.how = conv(), how

        def forward(self, x: Any) -> Any:
            return self.how(self.a(x), x)

    def conv() -> Any:
        return nn.Conv2d(4, 4, 3, padding=1)

    def norm() -> Any:
        one = nn.BatchNorm2d(4)
        nn.init.normal_(one.running_mean), nn.init.uniform_(one.running_var, 0.5, 2.0)
        return one

    def behind(a: Any, x: Any) -> Any:  # x is read before it is written over
        return x.relu_() + a

    batch, free = nn.Sequential(conv(), norm(), nn.SiLU(), nn.MaxPool2d(2)), nn.BatchNorm2d(4, affine=False)
    return {
        "all in a row": (batch, ["+bias+silu+maxpool2"]),
        "a norm without weights": (nn.Sequential(conv(), free, nn.ReLU6()), ["+bias+clamp0:6"]),
        "a norm of batches": (nn.Sequential(conv(), nn.BatchNorm2d(4, track_running_stats=False)), ["+bias"]),
        "a sum of two": (Two(lambda a, b: fun.relu(a + b)), ["+bias+add+relu", "+bias"]),
        "one that is added in place": (Two(lambda a, b: a.add_(b)), ["+bias", "+bias"]),
        "an activation before the sum": (Two(lambda a, b: torch.relu(a) + b), ["+bias+relu", "+bias+add"]),
        "an input that is added": (One(lambda a, x: fun.leaky_relu(a + x)), ["+bias+add"]),
        "an input that is written over": (One(behind), ["+bias"]),
        "a sum with itself": (One(lambda a, _: a + a), ["+bias"]),
        "a sum with a number": (One(lambda a, _: torch.relu(a + 1)), ["+bias"]),
        "another shape": (One(lambda a, x: a + x[:, :1]), ["+bias"]),
        "a factor": (One(lambda a, x: torch.add(a, x, alpha=2)), ["+bias"]),
        "two readers": (One(lambda a, _: torch.relu(a) * a), ["+bias"]),
    }


def test_a_fused_network_answers_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_fuse import fuse
    from pytorch_swap import Layer

    x = torch.randn(1, 4, 9, 9)
    for what, (network, steps) in traceable_networks(torch).items():
        with torch.no_grad():
            want = network.eval()(x.clone())
            ours = fuse(network, x.clone())
            assert torch.allclose(ours(x.clone()), want, atol=1e-4), what
        layers = [one for one in ours.modules() if isinstance(one, Layer)]
        plans = [plan for layer in layers for plan, *_ in layer.planned.values()]
        assert [str(plan.problem.epilogue) for plan in plans] == steps, what


def test_all_layers_are_planned_before_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_fuse import example, fuse
    from pytorch_swap import Layer, prepare, swap

    network, x = example()
    with torch.no_grad():
        want = network(x)
        for ours in (fuse(network, x), swap(copy.deepcopy(network))):
            layers = [one for one in ours.modules() if isinstance(one, Layer)]
            plans = prepare(ours, x)
            assert len(plans) == len(layers) > 5
            assert not any(layer.planned for layer in layers), "nothing was computed"
            assert torch.allclose(ours(x), want, atol=1e-4)
            assert {plan for layer in layers for plan, *_ in layer.planned.values()} == set(plans)


def test_max_pools_of_square_windows_are_taken_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no others; PyTorch takes a number, a tuple or a list for each of a pool's numbers."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_swap import swap

    pools = {what: one for what, one in odd_networks(torch.nn).items() if " pool" in what}
    found = {what: str(swap(one)[0].behind.get("pool")) for what, one in pools.items()}
    assert found.pop("a pool") == found.pop("a pool of lists") == "maxpool3u2p1"
    assert found.pop("a pool without a ReLU") == "maxpool2"
    assert len(found) == 5 and {*found.values()} == {"None"}


def test_parts_of_a_swapped_sequential_are_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, as a slice, hooked or replaced afterwards, in a copy, too; as a whole they are fused."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_swap import swap

    def parts(network: Any, x: Any) -> list[Any]:
        outputs = []
        for one in network:
            outputs.append(x := one(x))
        return outputs

    nn, x = torch.nn, torch.randn(1, 4, 12, 12)
    network = nn.Sequential(nn.Conv2d(4, 6, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 3, 3), nn.SiLU())
    with torch.no_grad():
        ours = swap(copy.deepcopy(network))
        for each in (ours, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
            assert torch.allclose(each(x), network(x), atol=1e-4)
            plans = [plan.problem for i in (0, 3) for plan, *_ in each[i].planned.values()]
            assert [str(one).partition("+bias")[2] for one in plans] == ["+relu+maxpool2", "+silu"]
            for got, want in zip(parts(each, x), parts(network, x), strict=True):
                assert torch.allclose(got, want, atol=1e-4)
            assert torch.allclose(each[:1](x), network[0](x), atol=1e-4)
        seen: list[Any] = []
        ours[0].register_forward_hook(lambda module, given, y: seen.append(y))
        ours[4] = nn.Tanh()
        network[4] = nn.Tanh()
        assert torch.allclose(ours(x), network(x), atol=1e-4)
        assert torch.allclose(seen[0], network[0](x), atol=1e-4) and seen[0].min() < 0


def test_a_copy_of_a_swapped_network_has_weights_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_swap import swap

    x, network = torch.randn(1, 4, 9, 9), torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3), torch.nn.ReLU())
    with torch.no_grad():
        want, ours = network(x), swap(network)
        ours(x)
        for copied in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
            for weights in copied.parameters():
                weights *= 2
            compiled = torch.compile(copied, fullgraph=True, backend="eager")
            for call in (copied, compiled):
                assert torch.allclose(call(x), 2 * want, atol=1e-4)
        assert torch.allclose(ours(x), want, atol=1e-4)


def test_a_swapped_network_multiplies_float32_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """So does a copy; layers of another dtype have no choice."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_fuse import fuse
    from pytorch_swap import swap

    def network() -> Any:
        torch.manual_seed(0)
        inner = torch.nn.Sequential(torch.nn.Conv2d(8, 8, 3), torch.nn.ReLU())
        return torch.nn.Sequential(inner, torch.nn.Conv2d(8, 4, 1))

    def maths(ours: Any, x: Any) -> list[str]:
        ours(x)
        layers = [one for one in ours.modules() if hasattr(one, "planned")]
        return [plan.problem.math for one in layers for plan, *_ in one.planned.values()]

    x = torch.randn(1, 8, 6, 6)
    with torch.no_grad():
        assert maths(swap(network()), x) == ["strict"] * 2
        assert maths(copy.deepcopy(swap(network(), "tf32")), x) == ["tf32"] * 2
        assert maths(fuse(network(), x, math="accurate"), x) == ["accurate"] * 2
        assert maths(swap(network().half(), "tf32"), x.half()) == ["strict"] * 2


def test_a_layer_is_used_as_its_convolution_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a batch, under autocast, compiled, asked for its channels; x of another dtype is refused."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_swap import swap

    network = torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3, stride=2), torch.nn.ReLU())
    x = torch.randn(4, 9, 9)
    with torch.no_grad():
        ours = swap(copy.deepcopy(network))
        assert (ours[0].out_channels, ours[0].stride) == (6, (2, 2))
        with pytest.raises(AttributeError, match="sizes"):
            _ = ours[0].sizes
        for call in (ours, torch.compile(ours, fullgraph=True, backend="eager")):
            assert torch.allclose(call(x), network(x), atol=1e-4)
            for given in (x, x[None], x.bfloat16()):
                with torch.autocast("cpu", torch.bfloat16):
                    got, want = call(given), network(given)
                assert got.dtype == torch.bfloat16 and torch.allclose(got, want, atol=0.05)
        with pytest.raises(TypeError, match=r"x is in torch\.float16, but .* torch\.float32"):
            ours(x.half())


def test_what_a_layer_cannot_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients, weights of another network in an exported program, weights that the network writes to."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_swap import LAYERS, swap

    class Writes(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Conv2d(4, 4, 1)

        def forward(self, x: Any) -> Any:
            self.inner.weight.mul_(0.5)
            return self.inner(x)

    nn, x = torch.nn, torch.randn(1, 4, 6, 6)
    with torch.no_grad():
        ours = swap(nn.Sequential(nn.Conv2d(4, 6, 3), nn.Tanh()))
        want, program = ours(x), torch.export.export(ours, (x,))
        assert torch.allclose(program.module()(x), want)
        LAYERS[ours[0].place] = swap(nn.Sequential(nn.Conv2d(4, 6, 3)))[0]  # as in another process
        with pytest.raises(RuntimeError, match="not that of the swapped layer"):
            program.module()(x)
        with pytest.raises(RuntimeError, match="write to weights"):
            torch.compile(swap(Writes()), backend="aot_eager")(x)
    with pytest.raises(RuntimeError, match="no_grad"):
        ours.requires_grad_(True)(x)


def test_preparing_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither statistics of a network that is being trained, nor what other threads compute meanwhile."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_swap import ASKED, prepare, swap

    x = torch.randn(1, 4, 6, 6)
    with torch.no_grad():
        ours = swap(torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3), torch.nn.BatchNorm2d(6)))
        ours[0].eval()
        prepare(ours, x)
        assert [one.training for one in ours.modules()] == [True, False, True]
        assert not ours[1].num_batches_tracked and torch.equal(ours[1].running_mean, torch.zeros(6))
        ASKED.problems = []
        try:
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(ours[0], x).result().any()
            assert not ours[0](x).any() and len(ASKED.problems) == 1
        finally:
            ASKED.problems = None


def test_a_layer_is_what_its_convolution_was_and_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copies keep hooks and mode; a bias may be set later; what is no plain convolution stays."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_swap import Layer, swap

    class Counted(torch.nn.Conv2d):
        def __init__(self, *sizes: int) -> None:
            super().__init__(*sizes)
            self.register_buffer("seen", torch.zeros(1))

    nn, x = torch.nn, torch.randn(1, 4, 6, 6)
    seen: list[Any] = []
    assert isinstance(swap(nn.Conv2d(4, 6, 3)), Layer)
    for left in (Counted(4, 6, 3), nn.Conv2d(4, 6, 3, dtype=torch.complex64)):
        assert swap(nn.Sequential(left))[0] is left
    with torch.no_grad():
        ours = swap(nn.Sequential(nn.Conv2d(4, 6, 3))).eval()
        want = ours(x)
        ours[0].bias = nn.Parameter(ours[0].bias + 1, requires_grad=False)
        assert torch.allclose(ours(x), want + 1, atol=1e-5)
        ours[0].bias = None
        assert ours(x).shape == want.shape
        ours[0].weight = nn.Parameter(ours[0].weight[:3], requires_grad=False)
        assert ours(x).shape == (1, 3, 4, 4)
        ours[0].register_forward_hook(lambda *_: seen.append(1))
        copied = copy.deepcopy(ours)
        assert torch.equal(copied(x), ours(x)) and len(seen) == 2 and not copied[0].training
    here = weakref.ref(ours[0])
    del ours, copied
    gc.collect()
    assert here() is None


def test_a_swapped_network_notices_new_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_swap import swap

    def made() -> Any:
        return torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3), torch.nn.ReLU(), torch.nn.Conv2d(6, 4, 1))

    def shared(one: Any) -> None:  # the same memory, written to as often as the one before
        old = one[0].weight
        one[0].weight = torch.nn.Parameter(old.data, requires_grad=False)
        for _ in range(old._version - one[0].weight._version):
            one[0].weight.mul_(1.5)

    x = torch.randn(1, 4, 9, 9)
    changes = {
        "loaded": lambda one: one.load_state_dict(made().state_dict()),
        "loaded by assignment": lambda one: one.load_state_dict(made().state_dict(), assign=True),
        "written to": lambda one: one[2].weight.mul_(2),
        "a bias": lambda one: one[2].bias.normal_(),
        "another parameter": lambda one: setattr(one[2], "weight", made()[2].weight),
        "another parameter of the same memory": shared,
        "there and back": lambda one: one.half().float(),
        "another dtype": lambda one: one.double(),
        "another layout": lambda one: one.to(memory_format=torch.channels_last),
    }
    with torch.no_grad():
        network = made()
        ours = swap(copy.deepcopy(network))
        assert list(ours.state_dict()) == list(network.state_dict())
        for what, change in changes.items():
            ours(x), change(ours)
            network.to(ours[0].weight.dtype).load_state_dict(ours.state_dict())
            given = x.to(ours[0].weight.dtype)
            for call in (ours, torch.compile(ours, fullgraph=True, backend="eager")):
                assert torch.allclose(call(given), network(given), atol=1e-4), what
            packed = {id(layer): {**layer.planned} for layer in (ours[0], ours[2])}
            ours(given)
            assert packed == {id(layer): layer.planned for layer in (ours[0], ours[2])}, what
            x = given


def test_weights_of_inference_mode_are_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_swap import swap

    with torch.inference_mode():
        x, network = torch.randn(1, 4, 9, 9), torch.nn.Sequential(torch.nn.Conv2d(4, 6, 3))
        want, ours = network(x), swap(network)
        assert torch.allclose(ours(x), want, atol=1e-4)
        ((_, packed, _),) = ours[0].planned.values()
        ours(x)
        assert [again for _, again, _ in ours[0].planned.values()] == [packed]


def test_weights_that_are_computed_each_time_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_swap import swap

    conv = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv2d(4, 6, 3))
    assert swap(torch.nn.Sequential(conv))[0] is conv


def test_a_fused_network_is_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all weights, folded or not, as they were; its own may be loaded."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_fuse import fuse

    def made() -> Any:
        norm = torch.nn.BatchNorm2d(6)
        norm.running_mean.normal_()
        convs = torch.nn.Conv2d(4, 6, 3), norm, torch.nn.Conv2d(6, 4, 1), torch.nn.Flatten()
        return torch.nn.Sequential(*convs, torch.nn.Linear(196, 3))

    x = torch.randn(1, 4, 9, 9)
    with torch.no_grad():
        first, second = made(), made()
        ours, others = fuse(first, x), fuse(second, x)
        assert first.training and not ours.training
        want = copy.deepcopy(first).eval()(x)
        assert torch.allclose(ours(x), want, atol=1e-4)
        kept = copy.deepcopy(first.state_dict())
        for weights in first.parameters():
            weights.normal_()
        assert torch.allclose(ours(x), want, atol=1e-4)
        with pytest.raises(RuntimeError, match="Missing key"):
            ours.load_state_dict(kept)
        renamed = dict(zip(ours.state_dict(), others.state_dict().values(), strict=True))
        ours.load_state_dict(renamed)
        assert torch.allclose(ours(x), second.eval()(x), atol=1e-4)


@pytest.mark.parametrize("channels", [4, 1])
@pytest.mark.parametrize("order", ["contiguous_format", "channels_last"])
def test_a_part_of_the_channels_keeps_its_layout(
    order: str, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch.chunk gives it; on a GPU kernels take no array with gaps. One channel alone lies both ways."""
    torch = pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from pytorch_network import layers
    from pytorch_swap import shaped, swap

    network, memory_format = torch.nn.Sequential(torch.nn.Conv2d(channels, 6, 3)), getattr(torch, order)
    x = torch.randn(2, 8, 9, 9).contiguous(memory_format=memory_format)[:, -channels:]
    with torch.no_grad():
        want, (layer,) = network(x), layers(network, x)
        y = swap(network)(x)
    assert layer.layout_in == {"contiguous_format": "nchw", "channels_last": "nhwc"}[order]
    assert torch.allclose(y, want, atol=1e-4) and y.is_contiguous(memory_format=memory_format)
    ((plan, *_),) = network[0].planned.values()
    assert plan.problem == replace(layer, epilogue=plan.problem.epilogue)
    assert y.stride() == torch.empty(y.shape, memory_format=memory_format).stride()
    said = shaped(x, network[0].weight, None, network[0].place)  # to torch.compile
    assert (said.shape, said.stride(), said.dtype) == (y.shape, y.stride(), y.dtype)


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    """As it stands there, but for a budget that tests have time for."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.M)
    code = code.replace('budget="20s"', 'budget="1trials"')
    shown = "print(y.shape, plan.note or 'tuned', np.allclose(y, tw.conv2d(x, w, padding=1), atol=1e-3))"
    (tmp_path / "readme.py").write_text(code + shown, encoding="utf-8")
    assert ran(tmp_path / "readme.py", tmp_path / "cache") == "(1, 64, 56, 56) tuned True\n"
