"""Peers agree with NumPy on awkward shapes, and say why they are absent."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from every_activation import WORDS

from tilewright import device
from tilewright.checking.deviation import deviation
from tilewright.checking.inputs import Inputs, normal_inputs
from tilewright.cli import bench
from tilewright.dtypes import numpy_dtype
from tilewright.errors import PeerError
from tilewright.kernels.requant import numpy_requantised
from tilewright.kernels.untuned.reference import numpy_conv
from tilewright.peers import PEERS, Offer, Peer, Setting, applicable, base, eager, named, usual
from tilewright.problem import Problem
from tilewright.problem.epilogue import Epilogue
from tilewright.runtime.base import Blocking

CPU = device.Device(
    name="test CPU", backend="opencl", type=device.DeviceType.CPU, index=0, arch="cpu", units=2, lanes=8,
    max_threads=1024, regs_per_thread=16, regs_per_unit=16, threads_per_unit=1024, blocks_per_unit=1,
    shared_per_block=32768, shared_per_unit=32768, l2_bytes=1 << 20, clock_ghz=2.0, max_cluster=1,
    driver="none", rates=device.Rates(10.0, 10.0, 0.1),
)  # fmt: skip
H100 = device.for_architecture("sm_90")
PEER = {peer.name: peer for peer in PEERS}
CPU_PEERS = [peer.name for peer in PEERS if "opencl" in peer.backends]

AWKWARD = [
    "n1c1h1w1k1r1s1-f32",
    "n2c3h7w5k11r3s2p1-f32+bias+relu",
    "n1c16h9w9k16r3s3p1-f32",
    "n1c32h8w7k48r1s1-f32+relu",
    "n1c16h13w11k32r5s3p2x1u2x3-f32+bias",
    "n2c6h9w11k9r3s3p1.0.2.1u2d1x2g3-f32-nhwc+bias",
    "n1c16h6w7k16r3s3p0.1.1.0-f32+relu",
    "n1c16h6w7k16r3s3p1.1.0.2-f32",
    "n1c16h6w7k16r3s3p0.2.1.1-f32",
    "n3c8h10w6k8r3s3p2d2g8-f32-nhwc",
    "n1c16h5w6k7r2s2u3-f32-nchw2nhwc",
    "n1c7h6w5k16r3s3p1-f32-nhwc2nchw+bias+relu",
    "n1c64h1w1k33r1s1-f32+bias",
    "n1c20h4w3k10r4s3-f32",
    "n2c4h5w5k4r3s3p4-f32",
    "n2c16h9w8k11r3s3p1-f32+alpha0.5+bias+add0.25+relu+maxpool2",
    "n1c16h9w8k16r3s3p1-f32-nhwc+bias+add+relu+avgpool2",
    "n1c16h9w8k16r3s3p1.0.2.1-f32-nhwc2nchw+bias+silu+avgpool3u2",
    "n1c16h9w8k16r3s3p1g2-f32+alpha-1.5+clamp-1:2+maxpool3u2p1",
    "n1c16h9w8k16r1s1-f32-nchw2nhwc+add0.5+leaky0.1",
    "n1c8h9w8k16r3s3p1-f64+bias+silu+avgpool2",
    "n1c16h9w8k16r3s3p1-f16-nhwc+alpha0.5+bias+add+leaky0.1+maxpool2",
    "n1c16h9w8k16r3s3p1-bf16+bias+add0.5+clamp0:6+avgpool2",
    "n1c16h9w8k16r3s3p1-i8-nhwc+bias+add+relu+maxpool2",
]
AWKWARD += [f"n1c16h5w6k8r3s3p1-f32{word}" for word in WORDS]
FEWEST = {"onednn": 2, "onnxruntime": 2}  # ways in which some offer every layer; of others 1 will do


def prepared(peer: Peer, problem: Problem, where: device.Device = CPU) -> tuple[Offer, Inputs]:
    """A peer's offer; skips the test where the peer is not installed."""
    reason = peer.absent(where)
    if reason:
        pytest.skip(reason)
    inputs = normal_inputs(problem, 7)
    return peer.prepare(problem, inputs, Setting(where, threads=2)), inputs


def refuses(peer: Peer, problem: Problem, where: device.Device = CPU) -> bool:
    """Whether the peer cannot compute the problem's dtype; it must say so."""
    if problem.dtype in peer.dtypes:
        return False
    with pytest.raises(PeerError, match=f"it computes {', '.join(peer.dtypes)}, not {problem.dtype}"):
        prepared(peer, problem, where)
    return True


def agrees(offer: Offer, problem: Problem, inputs: Inputs) -> None:
    """Every contestant gives the reference, twice, in the problem's layout and dtype."""
    wanted, _ = numpy_conv(problem, inputs.x, inputs.w, inputs.bias, inputs.z)
    if problem.requantised:
        wanted = numpy_requantised(problem, wanted, inputs.scale)
    for contestant in offer.contestants:
        contestant.run()
        y = contestant.output()
        assert y.dtype == numpy_dtype(problem.dtype_out), contestant.name
        assert y.flags.c_contiguous and y.shape == problem.y_shape, contestant.name
        assert deviation(y, wanted).wrong(problem) == "", contestant.name


def uneven(problem: Problem) -> bool:
    """Whether opposite sides have different padding."""
    top, bottom, left, right = problem.pad
    return (top, left) != (bottom, right)


@pytest.mark.parametrize("text", AWKWARD)
@pytest.mark.parametrize("name", CPU_PEERS)
def test_cpu_peers_agree_with_numpy(name: str, text: str) -> None:
    problem = Problem.parse(text)
    if refuses(PEER[name], problem):
        return
    offer, inputs = prepared(PEER[name], problem)
    agrees(offer, problem, inputs)
    names = [c.name for c in offer.contestants]
    assert len(set(names)) == len(names) >= FEWEST.get(name, 1), offer.skipped
    for c in offer.contestants:
        foreign = c.layout not in (problem.layout_in, problem.layout_out) or c.layout == "blocked"
        assert c.peer == name and c.detail
        assert ("padded apart" in c.detail) == (name == "onednn" and uneven(problem))
        assert not foreign or c.convert_us > 0


@pytest.mark.parametrize("name", CPU_PEERS)
def test_cpu_peers_refuse_an_activation_that_they_do_not_know(name: str, unknown: Epilogue) -> None:
    problem = replace(Problem.parse("n1c16h5w6k8r3s3p1-f32"), epilogue=unknown)
    if reason := PEER[name].absent(CPU):
        pytest.skip(reason)
    inputs = normal_inputs(problem, 7)
    with pytest.raises(PeerError, match=r"unheard: has no operation of .* yet"):
        PEER[name].prepare(problem, inputs, Setting(CPU, threads=2))


@pytest.mark.parametrize("name", CPU_PEERS)
def test_a_conversion_is_timed_by_the_wall_clock(name: str) -> None:
    """It enqueues nothing: a runtime that is not told so counts the flush that it has enqueued before."""
    problem = Problem.parse("n1c8h6w5k12r3s3p1-f32-nhwc")
    seen: list[base.Run] = []

    def timed(run: base.Run) -> float:
        seen.append(run)
        return base.wall_us(run)

    if PEER[name].absent(CPU):
        pytest.skip(f"no {name}")
    offer = PEER[name].prepare(problem, normal_inputs(problem, 7), Setting(CPU, threads=2, timed=timed))
    assert seen or not any(one.convert_us for one in offer.contestants)
    assert all(isinstance(run, Blocking) for run in seen)


@pytest.mark.parametrize(
    ("words", "nchw", "nhwc"),
    [
        ("+add", 0, 3), ("-nhwc+add", 3, 0), ("-nchw2nhwc+add", 2, 1), ("-nhwc2nchw+add", 1, 2),
        ("-nhwc+bias", 2, 0), ("-nchw2nhwc+bias", 1, 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["onednn", "onnxruntime", "pytorch"])
def test_each_array_of_another_layout_is_converted(
    name: str, words: str, nchw: int, nhwc: int, request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Here each takes 1 us: x, y and z."""
    monkeypatch.setattr(Setting, "quick_us", lambda self, run: (run(), 1.0)[1])
    if name == "pytorch":
        request.getfixturevalue("torch_for_gpu")
    problem = Problem.parse(f"n1c16h6w5k32r3s3p1-f32{words}")
    offer, _ = prepared(PEER[name], problem, CPU if name in CPU_PEERS else H100)
    wanted = dict(nchw=nchw, nhwc=nhwc, blocked=1)  # a layout of its own is converted at once
    assert offer.contestants and all(c.convert_us == wanted[c.layout] for c in offer.contestants)
    if name == "pytorch":
        assert [(c.layout, c.pack_us) for c in offer.contestants] == [("nchw", 0.0), ("nhwc", 1.0)]
    if name == "onednn":
        assert {c.name for c in offer.contestants if not c.pack_us} == {"onednn nchw"}


@pytest.mark.parametrize("threads", [1, 2])
def test_onednn_runs_on_as_many_threads_as_it_is_given(threads: int) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    problem = Problem.parse("n1c16h6w5k16r3s3p1-f32")
    offer = PEER["onednn"].prepare(problem, normal_inputs(problem, 7), Setting(CPU, threads))
    assert torch.get_num_threads() == threads
    assert all(c.detail.endswith(f", {threads} thread{'s' * (threads > 1)}") for c in offer.contestants)


@pytest.mark.parametrize(
    ("words", "plain", "packed", "blocked"),
    [
        ("", "", "", ""),
        ("+bias+relu", ", bias fused, relu apart", ", bias relu fused", ", bias fused, relu apart"),
        ("+alpha0.5+bias", ", alpha0.5 bias apart", ", alpha0.5 bias fused", ", alpha0.5 bias fused"),
        ("+bias+add+relu", ", bias fused, add relu apart", ", bias add relu fused",
         ", bias fused, add relu apart"),
        ("+add0.5+relu", ", add0.5 relu apart", ", add0.5 relu apart", ", add0.5 relu apart"),
        ("+add+silu+maxpool2", ", add silu maxpool2 apart", ", add silu maxpool2 apart",
         ", add silu maxpool2 apart"),
        ("+add", ", add apart", ", add fused", ", add apart"),
    ],
)  # fmt: skip
def test_onednn_fuses_all_that_it_can_and_says_so(words: str, plain: str, packed: str, blocked: str) -> None:
    offer, _ = prepared(PEER["onednn"], Problem.parse(f"n1c16h6w5k16r3s3p1-f32{words}"))
    version = importlib.import_module("torch").__version__
    told = {
        "onednn nchw": f"conv2d, nchw{plain}",
        "onednn nchw packed": f"prepacked filter, nchw{packed}",
        "onednn nhwc": f"conv2d, nhwc{plain}",
        "onednn nhwc packed": f"prepacked filter, nhwc{packed}",
        "onednn blocked": f"prepacked filter, blocked{blocked}",
    }
    if "onednn blocked" in offer.skipped:  # PyTorch has not every operation for its tensors
        del told["onednn blocked"]
    wanted = {name: f"PyTorch {version} {what}, 2 threads" for name, what in told.items()}
    assert {c.name: c.detail for c in offer.contestants} == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [("n1c16h6w5k16r3s3p1.0.0.1-f32", "symmetric"), ("n1c24h6w5k16r3s3p1-f32", "multiple of 16"),
     ("n1c4112h1w1k16r1s1-f32", "multiple of 16")],
)  # fmt: skip
def test_onednn_has_no_blocked_input_of_odd_layers(text: str, why: str) -> None:
    offer, _ = prepared(PEER["onednn"], Problem.parse(text))
    assert [c.name for c in offer.contestants] == [
        "onednn nchw", "onednn nchw packed", "onednn nhwc", "onednn nhwc packed"
    ]  # fmt: skip
    assert why in offer.skipped["onednn blocked"]


def test_pytorch_without_onednn_asks_for_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    mkldnn = SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(backends=SimpleNamespace(mkldnn=mkldnn)))
    assert PEER["onednn"].absent(CPU) == "onednn: this build of PyTorch has no oneDNN; install one that has"


def test_onnxruntime_runs_on_as_many_threads_as_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    ort = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")
    made, opened = list[Any](), ort.InferenceSession

    def noted(*of: Any, **how: Any) -> Any:
        made.append(opened(*of, **how))
        return made[-1]

    monkeypatch.setattr(ort, "InferenceSession", noted)
    offer, _ = prepared(PEER["onnxruntime"], Problem.parse("n1c16h6w5k16r3s3p1-f32+bias+relu"))
    levels = [getattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{level}") for level in ("ALL", "EXTENDED")]
    options = [one.get_session_options() for one in made]
    assert [one.graph_optimization_level for one in options] == levels
    assert all((one.intra_op_num_threads, one.inter_op_num_threads) == (2, 1) for one in options)
    assert all(c.detail.endswith(", with bias relu in its graph, 2 threads") for c in offer.contestants)


def test_onednn_knows_its_layouts() -> None:
    offer, _ = prepared(PEER["onednn"], Problem.parse("n1c16h9w9k16r3s3p1-f32"))
    assert {c.layout for c in offer.contestants} == {"nchw", "nhwc", "blocked"}, offer.skipped


@pytest.mark.parametrize("name", CPU_PEERS)
def test_an_empty_batch_is_refused(name: str) -> None:
    with pytest.raises(PeerError, match="empty|cannot be imported"):
        problem = Problem.parse("n0c4h5w5k4r3s3-f32")
        PEER[name].prepare(problem, normal_inputs(problem, 1), Setting(CPU))


LIBRARIES = {
    "onednn": "torch", "onnxruntime": "onnxruntime", "cudnn": "cudnn", "pytorch": "torch", "cublas": "torch",
    "inductor": "torch",
}  # fmt: skip


@pytest.mark.parametrize(("name", "library"), LIBRARIES.items())
def test_an_absent_peer_says_what_to_install(
    name: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # import then raises ModuleNotFoundError
    where = CPU if name in CPU_PEERS else H100
    reason = PEER[name].absent(where)
    assert reason is not None and "\n" not in reason
    assert reason.startswith(f"{name}: {library} cannot be imported") and "pip install" in reason
    problem = Problem.parse("n1c1h1w1k1r1s1-f32")
    with pytest.raises(PeerError, match="pip install"):
        PEER[name].prepare(problem, normal_inputs(problem, 1), Setting(where))


@pytest.mark.parametrize(("chosen", "seen"), [({}, "20000"), ({"GOMP_SPINCOUNT": "7"}, "7"),
                                              ({"OMP_WAIT_POLICY": "active"}, None)])  # fmt: skip
def test_asking_for_onednn_leaves_the_environment_alone(
    chosen: dict[str, str], seen: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's threads are told to spin briefly while it is imported, unless the user chose."""
    body = "import os\nfrom types import SimpleNamespace\nseen = os.environ.get('GOMP_SPINCOUNT')\n"
    body += "backends = SimpleNamespace(mkldnn=SimpleNamespace(is_available=lambda: True))\n"
    (tmp_path / "torch.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)  # and whatever there was is back in the end
    del sys.modules["torch"]
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in chosen.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    (peer,) = named("onednn")
    assert peer.absent(CPU) is None and os.environ == before
    assert sys.modules["torch"].seen == seen


@pytest.mark.parametrize("name", [peer.name for peer in PEERS if "cuda" in peer.backends])
def test_gpu_peers_do_not_crash_without_a_gpu(name: str) -> None:
    reason = PEER[name].absent(H100)
    assert reason is None or (reason.startswith(name) and "\n" not in reason)


def test_importing_peers_imports_no_library() -> None:
    code = (
        "import sys, tilewright.peers\n"
        "heavy = {'torch', 'onnx', 'onnxruntime', 'cudnn', 'cupy', 'cuda'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


def test_names() -> None:
    assert named("all") == PEERS and named("none") == ()
    assert [p.name for p in named("cudnn, onednn,cudnn")] == ["cudnn", "onednn"]
    with pytest.raises(PeerError, match=f"must be one of {', '.join(PEER)}, or all, or none"):
        named("miopen")
    for names in ("all,onednn", "onednn, none"):
        with pytest.raises(PeerError, match=r"peers '.*': (all|none) stands alone"):
            named(names)
    assert len(PEER) == len(PEERS) and not {"all", "none", ""} & set(PEER)
    assert [p.name for p in applicable(CPU)] == CPU_PEERS
    assert {*applicable(CPU), *applicable(H100)} == set(PEERS)
    for where in (CPU, H100):
        assert usual(where) == tuple(peer for peer in applicable(where) if peer.usual) != ()
    assert PEER["inductor"] in applicable(H100) and PEER["inductor"] not in usual(H100)
    gpu = replace(CPU, type=device.DeviceType.GPU)
    assert applicable(gpu) == usual(gpu) == ()  # a peer of CPUs is no rival to it


def test_bench_has_the_peers_of_its_device_in_one_order_however_they_are_named() -> None:
    """An earlier file of results goes on with them if they are the same."""
    backwards = ",".join(peer.name for peer in reversed(usual(CPU)))
    assert bench._peers(backwards, CPU) == bench._peers(None, CPU) == usual(CPU)
    assert bench._peers("all", H100) == applicable(H100) and bench._peers("none", H100) == ()


def test_a_peer_needs_no_more_than_a_peer_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """One way, of one dtype, only if it is named."""

    class Least(Peer):
        name, backends, usual, dtypes = "least", ("opencl",), False, ("f32",)

        def absent(self, device: device.Device) -> str | None:
            return None

        def offer(self, problem: Problem, inputs: Inputs, setting: Setting) -> Offer:
            y = numpy_conv(problem, inputs.x, inputs.w, inputs.bias, inputs.z)[0].astype(np.float32)
            one = base.Contestant("least", "least", "NumPy", problem.layout_in, Blocking(dict), lambda: y)
            return Offer([one])

    peers = importlib.import_module("tilewright.peers")
    monkeypatch.setattr(peers, "PEERS", (*PEERS, least := Least()))
    monkeypatch.setitem(PEER, "least", least)
    assert named("least") == (least,) and least in applicable(CPU) and least not in usual(CPU)
    for text in (*AWKWARD[:3], "n2c16h9w8k11r3s3p1-f32+alpha0.5+bias+add0.25+relu+maxpool2"):
        test_cpu_peers_agree_with_numpy("least", text)
    assert refuses(least, Problem.parse("n1c1h1w1k1r1s1-f16"))
    test_a_conversion_is_timed_by_the_wall_clock("least")
    test_an_empty_batch_is_refused("least")


def test_a_detail_tells_what_is_fused() -> None:
    e = Epilogue.parse(["alpha0.5", "bias", "add0.25", "relu", "maxpool2"])
    assert eager.told(e, ("alpha", "bias")) == ", alpha0.5 bias fused, add0.25 relu maxpool2 apart"
    assert eager.told(Epilogue(), ("bias",)) == ""
    assert eager.told(Epilogue(bias=True), ("bias",)) == ", bias fused"


def test_eager_steps_overwrite_their_argument() -> None:
    """A copy for each step would be slower: no fair competitor."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    bias, z = torch.ones(1, 3, 1, 1), torch.ones(2, 3, 4, 5)
    for act in ("relu", "leaky0.1", "silu", "clamp0:6"):
        y = torch.zeros(2, 3, 4, 5)
        steps = eager.eager(Epilogue.parse(["alpha0.5", "bias", "add0.25", act]), bias, z, ())
        assert steps(y) is y and (y > 0).all()


def test_eager_requantised_sums_are_rounded_to_even_and_saturate() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    scale = torch.full((1, 1, 1, 1), 0.5)
    sums = torch.tensor([-1000, -257, -256, -255, -3, 1, 3, 254, 255, 1000], dtype=torch.int32)
    y = eager.eager(Epilogue(), None, None, (), scale)(sums.view(1, 1, 1, -1))
    assert y.dtype == torch.int8
    assert y.flatten().tolist() == [-128, -128, -128, -128, -2, 0, 2, 127, 127, 127]


def test_a_peer_with_no_way_tells_the_commonest_reasons() -> None:
    offer = Offer(skipped={**{str(n): "no room" for n in range(5)}, **{letter: letter for letter in "abcd"}})
    assert offer.refusal == "no room (5 ways); a; b; 2 more reasons"
    assert Offer(skipped=dict(a="x", b="y", c="z", d="x")).refusal == "x (2 ways); y; z"
    assert Offer().refusal == "it offers no engine"


def test_nothing_is_written_at_first() -> None:
    for dtype in ("f64", "f32", "f16", "bf16"):
        y = base.unwritten(Problem.parse(f"n2c3h4w5k6r1s1-{dtype}+maxpool2"))
        assert y.shape == (2, 6, 2, 2) and np.isnan(y.astype(np.float64)).all()
    y = base.unwritten(Problem.parse("n2c3h4w5k6r1s1-i8+maxpool2"), pooled=False)
    assert y.shape == (2, 6, 4, 5) and (y == -1).all()


def test_an_offer_keeps_the_reason_of_what_failed() -> None:
    def broken() -> base.Contestant:
        raise RuntimeError("no room\n for  it")

    def breaks() -> base.Contestant:
        return base.Contestant("p", "b", "", "nchw", refuse, lambda: np.zeros(1))

    def refuse() -> None:
        raise NotImplementedError

    offer = Offer()
    offer.attempt("a", broken)
    offer.attempt("b", breaks)
    assert offer.skipped == {"a": "no room for it", "b": "NotImplementedError"} and not offer.contestants


def test_a_library_that_is_broken_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torn.py").write_text("raise OSError('undefined symbol:\\n' + 'x' * 500)")
    monkeypatch.syspath_prepend(tmp_path)
    told = base.needs("p", ("json", "json"), ("torn", "torn"))
    assert told and told.startswith("p: importing torn failed: undefined symbol: xxx") and len(told) < 250
    assert base.needs("p", ("json", "json")) is None


def test_a_setting_is_that_of_its_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream is another one while a graph is recorded."""
    runtime: Any = SimpleNamespace(device=CPU, stream=5, timed=lambda run: 7.0)
    for cores, threads in ((1, 1), (64, CPU.units)):
        monkeypatch.setattr(base, "cores", lambda cores=cores: cores)
        assert Setting.of(runtime).threads == threads
    setting = Setting.of(runtime)
    runtime.stream = 6
    assert (setting.device, setting.stream(), setting.quick_us(lambda: None)) == (CPU, 6, 7.0)


@pytest.fixture
def torch_for_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the GPU peers that go through PyTorch run on the CPU's tensors."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    gpu = importlib.import_module("tilewright.peers.gpu")
    pytorch = importlib.import_module("tilewright.peers.pytorch")

    class Here(gpu.TorchArrays):  # type: ignore[name-defined,misc]
        def __init__(self, setting: Setting) -> None:
            self._setting, self.torch, self.where = setting, torch, torch.device("cpu")

        def on_stream(self):  # type: ignore[no-untyped-def]
            return torch.no_grad()

        def wait(self) -> None: ...

    monkeypatch.setattr(gpu, "TorchArrays", Here)
    cublas = importlib.import_module("tilewright.peers.cublas")
    inductor = importlib.import_module("tilewright.peers.inductor")
    for module in (pytorch, cublas, inductor):
        monkeypatch.setattr(module, "no_cuda_torch", lambda peer: None)
    for module in (pytorch, cublas):
        monkeypatch.setattr(module, "as_asked", lambda problem: None)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)


@pytest.mark.parametrize("text", AWKWARD)
def test_pytorch_on_host_tensors(text: str, torch_for_gpu: None) -> None:
    problem = Problem.parse(text)
    if refuses(PEER["pytorch"], problem, H100):
        return
    offer, inputs = prepared(PEER["pytorch"], problem, H100)
    assert importlib.import_module("torch").backends.cudnn.benchmark
    assert [c.layout for c in offer.contestants] == ["nchw", "nhwc"], offer.skipped
    agrees(offer, problem, inputs)
    assert all(("padded apart" in c.detail) == uneven(problem) for c in offer.contestants)


@pytest.mark.parametrize(
    ("words", "told"),
    [("", ""), ("+bias+relu", ", bias fused, relu apart"), ("+alpha0.5+bias", ", alpha0.5 bias apart")],
)
@pytest.mark.parametrize(("pad", "apart"), [("p1", ""), ("p1.0.2.1", ", padded apart")])
def test_pytorch_tells_how_it_runs(words: str, told: str, pad: str, apart: str, torch_for_gpu: None) -> None:
    offer, _ = prepared(PEER["pytorch"], Problem.parse(f"n1c16h5w6k8r3s3{pad}-tf32{words}"), H100)
    version = importlib.import_module("torch").__version__
    assert [c.detail for c in offer.contestants] == [
        f"PyTorch {version} conv2d, cudnn.benchmark, {layout}, TF32 allowed{apart}{told}"
        for layout in ("nchw", "nhwc")
    ]


def test_pytorch_without_a_gpu_asks_for_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    here = SimpleNamespace(__version__="2.9+cpu", cuda=SimpleNamespace(is_available=lambda: False))
    monkeypatch.setitem(sys.modules, "torch", here)
    told = "pytorch: PyTorch 2.9+cpu sees no GPU; install a CUDA build of torch"
    assert PEER["pytorch"].absent(H100) == told
    here.cuda.is_available = lambda: True
    assert PEER["pytorch"].absent(H100) is None


def test_inductor_compiles_the_whole_layer(torch_for_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    inductor = importlib.import_module("tilewright.peers.inductor")
    monkeypatch.setattr(inductor, "needs", lambda *_: None)  # Triton, which PyTorch for the CPU does without
    real, modes = torch.compile, list[str]()

    def traced(function, mode: str, dynamic: bool):  # type: ignore[no-untyped-def]
        modes.append(mode)
        return real(function, backend="eager", dynamic=dynamic, fullgraph=True)

    monkeypatch.setattr(torch, "compile", traced)
    problem = Problem.parse("n2c16h9w8k11r3s3p1.0.2.1-f32+alpha0.5+bias+add0.25+relu+maxpool2")
    offer, inputs = prepared(PEER["inductor"], problem, H100)
    agrees(offer, problem, inputs)
    assert modes == ["max-autotune-no-cudagraphs"] * 2


def test_inductor_needs_triton(torch_for_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    reason = PEER["inductor"].absent(H100)
    assert reason and reason.startswith("inductor: triton cannot be imported") and "pip install" in reason


GEMMS = [
    "n1c32h8w7k48r1s1-f32+relu", "n3c5h4w6k7r1s1-f32-nhwc+bias+relu", "n1c64h1w1k33r1s1-f32+bias",
    "n2c20h4w3k10r4s3-f32", "n1c6h5w5k8r5s5-f32-nchw2nhwc+bias", "n1c1h1w1k1r1s1-f32",
    "n1c32h8w7k48r1s1-f32+alpha0.5+bias+add0.25+silu", "n3c5h4w6k7r1s1-f32+alpha2+add+maxpool2",
    "n3c5h4w6k7r1s1-f32-nhwc+alpha0.5+bias+relu+avgpool2", "n1c64h1w1k33r1s1-f32+alpha0.5+bias+add+clamp0:6",
    "n2c20h4w3k10r4s3-f64+alpha0.5+bias", "n1c64h1w1k33r1s1-f16+bias+leaky0.1", "n4c64h1w1k33r1s1-bf16+add",
    "n32c64h1w1k40r1s1-i8+bias+add+relu", "n32c64h1w1k40r1s1-i8+bias+relu+requant",
    "n1c32h8w7k48r1s1-tf32-nhwc+bias", "n1c32h8w6k48r1s1-f8-nhwc+alpha0.5+bias+relu",
    "n1c32h8w6k48r1s1-f8-nhwc", "n1c32h8w6k48r1s1-f8-nhwc+bias+add+relu",
]  # fmt: skip


@pytest.mark.parametrize("text", GEMMS)
def test_cublas_on_host_tensors(text: str, torch_for_gpu: None) -> None:
    problem = Problem.parse(text)
    offer, inputs = prepared(PEER["cublas"], problem, H100)
    pixel = ["nchw"] if problem.n * problem.p * problem.q == 1 else []
    rows = ["nchw"] if problem.dtype != "f8" else []  # its second factor has to lie by columns
    assert [c.layout for c in offer.contestants] == [*rows, "nhwc", *pixel], offer.skipped
    agrees(offer, problem, inputs)
    ways = [f"cublas {layout}" for layout in (*rows, "nhwc")] + ["cublas vector"] * len(pixel)
    assert [c.name for c in offer.contestants] == ways
    for c in offer.contestants:
        assert ("vector, nchw" if "vector" in c.name else f"matmul, {c.layout}") in c.detail
        assert ("TF32 allowed" in c.detail) == (problem.math == "tf32")


@pytest.mark.parametrize("name", ["pytorch", "cublas"])
def test_each_peer_in_pytorch_multiplies_as_asked(
    name: str, torch_for_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TF32 stays allowed for the whole process until someone says otherwise."""
    asked: list[Problem] = []
    for module in ("pytorch", "cublas"):
        monkeypatch.setattr(f"tilewright.peers.{module}.as_asked", asked.append)
    problem = Problem.parse("n1c32h4w3k8r1s1-tf32")
    PEER[name].offer(problem, normal_inputs(problem, 7), Setting(H100))
    assert asked == [problem]


def test_cublas_tells_what_its_gemm_computes(torch_for_gpu: None) -> None:
    def details(text: str) -> list[str]:
        offer, _ = prepared(PEER["cublas"], Problem.parse(text), H100)
        return [c.detail.split(", ", 2)[2] for c in offer.contestants]

    rows = "n2c32h4w3k8r1s1-f32-nhwc"
    assert details(rows + "+alpha0.5+bias+add0.25+silu")[1] == "alpha0.5 add0.25 fused, bias silu apart"
    assert details(rows + "+alpha0.5+bias+relu+maxpool2")[1] == "alpha0.5 bias relu fused, maxpool2 apart"
    assert details("n1c32h1w1k8r1s1-f32+alpha0.5+bias")[2] == "alpha0.5 fused, bias apart"


def test_tf32_only_where_it_is_asked_for_and_sums_never_in_the_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    matmul, names = torch.backends.cuda.matmul, ("fp16_reduced_precision", "bf16_reduced_precision")
    flags = ["allow_tf32", *(f"allow_{name}_reduction" for name in names)]
    before = {flag: getattr(matmul, flag) for flag in flags}
    try:
        as_asked = importlib.import_module("tilewright.peers.pytorch").as_asked
        layer = Problem.parse("n1c8h4w4k8r1s1-tf32")
        as_asked(layer)
        assert [getattr(matmul, flag) for flag in flags] == [True, False, False]
        assert torch.backends.cudnn.allow_tf32
        for kind in ("f32", "accurate", "f16"):
            as_asked(layer.with_dtype(kind))
            assert not any(getattr(matmul, flag) for flag in flags)
            assert not torch.backends.cudnn.allow_tf32
    finally:
        for flag, value in before.items():
            setattr(matmul, flag, value)


def test_cublas_has_no_batch_of_whole_numbers(torch_for_gpu: None) -> None:
    offer, _ = prepared(PEER["cublas"], Problem.parse("n2c32h5w4k40r1s1-i8"), H100)
    assert [c.layout for c in offer.contestants] == ["nhwc"]
    assert "no batched product" in offer.skipped["cublas nchw"]


@pytest.mark.parametrize("shape", ["r3s3", "r1s1p1", "r1s1u2", "r1s1g2", "r5s5p1", "r3s3d2", "r5s5g2"])
def test_cublas_refuses_what_is_no_matrix_product(shape: str, torch_for_gpu: None) -> None:
    with pytest.raises(PeerError, match="no single matrix product"):
        prepared(PEER["cublas"], Problem.parse(f"n1c4h5w5k4{shape}-f32"), H100)
