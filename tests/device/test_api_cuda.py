"""The array interface on a real GPU: PyTorch and CuPy in place, on the caller's stream, without waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import tilewright as tw
from tilewright.dtypes import FULL
from tilewright.errors import ArrayError, CompileError
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.plans import plan_cache
from tilewright.plans.layer import LayerPlan
from tilewright.plans.stream_plans import MOST_STREAMS
from tilewright.problem import DTYPES
from tilewright.runtime import open_runtime
from tilewright.search.ranking import rank

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("gpu")]
LAYER = "n1c64h28w28k96r3s3p1-f32"


@pytest.fixture
def torch() -> Any:
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    module.backends.cudnn.allow_tf32 = False
    module.manual_seed(0)
    return module


@pytest.fixture
def layer(torch: Any) -> tuple[Any, Any, Any, Any]:
    x, w, b = (torch.randn(*shape, device="cuda") for shape in ((1, 64, 28, 28), (96, 64, 3, 3), (96,)))
    want = torch.nn.functional.conv2d(x.double(), w.double(), b.double(), padding=1).float()
    return x, w, b, want


def near(torch: Any, y: Any, want: Any) -> None:
    torch.testing.assert_close(y, want, rtol=1e-4, atol=1e-4)


def test_torch_layouts(torch: Any, layer: tuple[Any, Any, Any, Any]) -> None:
    x, w, b, want = layer
    y = tw.conv2d(x, w, b, padding=1)
    assert y.is_cuda and y.is_contiguous()
    near(torch, y, want)
    last = x.contiguous(memory_format=torch.channels_last)
    y = tw.conv2d(last, w, b, padding=1)
    assert y.is_contiguous(memory_format=torch.channels_last) and not y.is_contiguous()
    near(torch, y, want)
    out = torch.empty_like(y)
    assert tw.conv2d(last, w, b, padding=1, out=out) is out
    near(torch, out, want)
    nhwc = x.permute(0, 2, 3, 1).contiguous()
    near(torch, tw.conv2d(nhwc, w, b, padding=1, layout="nhwc").permute(0, 3, 1, 2), want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_dtypes_with_a_residual(torch: Any, dtype: str) -> None:
    kind, out = (getattr(torch, FULL[short]) for short in (dtype, "i32" if dtype == "i8" else dtype))
    x, w, b, z = (
        torch.randint(-3, 4, shape, device="cuda")
        for shape in ((2, 16, 14, 14), (24, 16, 3, 3), (24,), (2, 24, 14, 14))
    )
    want = torch.nn.functional.conv2d(x.double(), w.double(), b.double(), padding=1) + z
    want = torch.nn.functional.max_pool2d(want.relu(), 2).float().to(out)
    for form in (torch.contiguous_format, torch.channels_last):
        given, residual = (a.contiguous(memory_format=form) for a in (x.to(kind), z.to(out)))
        y = tw.conv2d(given, w.to(kind), b.to(out), z=residual, padding=1, activation="relu", pool="maxpool2")
        assert y.dtype == out and y.is_contiguous(memory_format=form)
        assert torch.equal(y, want)
        plan = tw.plan(f"n2c16h14w14k24r3s3p1-{dtype}{'-nhwc' * (form != torch.contiguous_format)}+bias+add")
        full = torch.empty_like(residual)
        assert plan(given, plan.pack(w.to(kind)), b.to(out), residual, full) is full
        pooled = torch.nn.functional.max_pool2d(full.double().relu(), 2).float().to(out)
        assert torch.equal(pooled, want)


def test_a_filter_of_a_model_in_channels_last_is_copied(
    torch: Any, layer: tuple[Any, Any, Any, Any]
) -> None:
    x, w, b, want = layer
    last = w.contiguous(memory_format=torch.channels_last)
    assert not last.is_contiguous()
    near(torch, tw.conv2d(x, last, b, padding=1), want)
    plan = tw.plan(LAYER + "+bias", "cuda")
    near(torch, plan(x, plan.pack(last), b), want)


def test_torch_is_refused_what_would_need_a_copy(torch: Any, layer: tuple[Any, Any, Any, Any]) -> None:
    x, w, b, _ = layer
    wide = torch.zeros(1, 64, 28, 56, device="cuda")
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: tw.conv2d(wide[..., ::2], w), r"x: strides .*x.contiguous\(\)"),
        (lambda: tw.conv2d(x, w.cpu()), "w: is a torch array on cpu, but x is a torch array on cuda:0"),
        (lambda: tw.conv2d(x, w, device="cpu"), "x: is on cuda:0"),
        (lambda: tw.conv2d(x, w, out=torch.empty(1, 96, 26, 26)), "out: is a torch array on cpu"),
        (lambda: tw.conv2d(x.half(), w), r"w: dtype float32 .* float16, as x is: call w.to\(torch.float16\)"),
        (lambda: tw.conv2d(x, w, padding=1, z=torch.zeros(1, 96, 28, 28)), "z: is a torch array on cpu"),
        (lambda: tw.conv2d(x, w, padding=1, z=wide[:, :1, :, ::2].expand(1, 96, 28, 28)), "z: strides"),
    ]
    for call, words in wrong:
        with pytest.raises(ArrayError, match=words):
            call()


def test_unaligned_tensors(torch: Any, layer: tuple[Any, Any, Any, Any]) -> None:
    x, w, b, want = layer
    room = torch.empty(x.numel() + 1, device="cuda")
    shifted = room[1:].view(x.shape)
    shifted.copy_(x)
    near(torch, tw.conv2d(shifted, w, b, padding=1), want)


def test_it_runs_on_the_current_stream_and_does_not_wait(
    torch: Any, layer: tuple[Any, Any, Any, Any]
) -> None:
    x, w, b, want = layer
    plan = tw.plan(LAYER + "+bias", "cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        packed = plan.pack(w)
        late = torch.zeros_like(x)
        plan(late, packed, b), tw.conv2d(late, w, b, padding=1)  # whatever is made at the first use
        torch.cuda._sleep(2_000_000_000)
        late.copy_(x)
        y, z = plan(late, packed, b), tw.conv2d(late, w, b, padding=1)
        assert not stream.query(), "a call waited for the device"
    stream.synchronize()
    near(torch, y, want)
    near(torch, z, want)


def test_a_plan_can_be_recorded_in_a_graph(torch: Any, layer: tuple[Any, Any, Any, Any]) -> None:
    x, w, b, want = layer
    plan = tw.plan(LAYER + "+bias", "cuda")
    packed, y = plan.pack(w), torch.empty_like(want)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        plan(x, packed, b, out=y)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        plan(x, packed, b, out=y)
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    near(torch, y, want)


def test_a_bound_call_runs_on_the_current_stream_and_can_be_recorded(
    torch: Any, layer: tuple[Any, Any, Any, Any]
) -> None:
    x, w, b, want = layer
    plan = tw.plan(LAYER + "+bias", "cuda")
    late, side = torch.zeros_like(x), torch.cuda.Stream()
    run = plan.bind(late, plan.pack(w), b)
    run()
    late.copy_(x)
    near(torch, run(), want)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        late.zero_()
        run()  # whatever is made at the first use
        torch.cuda._sleep(2_000_000_000)
        late.copy_(x)
        assert run() is run.out
        assert not side.query(), "a call waited for the device"
    side.synchronize()
    near(torch, run.out, want)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        run()
    run.out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    near(torch, run.out, want)


def test_a_graph_is_replayed_again_and_again_beside_calls(
    torch: Any, layer: tuple[Any, Any, Any, Any]
) -> None:
    x, w, b, want = layer
    plan = tw.plan(LAYER + "+bias", "cuda")
    packed, y, side = plan.pack(w), torch.empty_like(want), torch.cuda.Stream()
    with torch.cuda.stream(side):
        plan(x, packed, b, out=y)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        plan(x, packed, b, out=y)
    with torch.cuda.stream(side):
        for _ in range(20):
            y.zero_()
            graph.replay()
            near(torch, plan(x, packed, b), want)
            near(torch, y, want)


def test_memory_comes_and_goes_while_another_thread_records_a_graph(
    torch: Any, layer: tuple[Any, Any, Any, Any]
) -> None:
    x, w, b, want = layer
    plan, runtime = tw.plan(LAYER + "+bias", "cuda"), open_runtime("cuda")
    packed, y, side = plan.pack(w), torch.empty_like(want), torch.cuda.Stream()
    with torch.cuda.stream(side):
        plan(x, packed, b, out=y)
    torch.cuda.synchronize()

    def come_and_go() -> None:
        for nbytes in (1 << 20, 1 << 26):
            memory = runtime.alloc(nbytes)
            del memory

    graph = torch.cuda.CUDAGraph()
    with ThreadPoolExecutor(1) as other, torch.cuda.graph(graph, stream=side):
        plan(x, packed, b, out=y)
        other.submit(come_and_go).result()
        come_and_go()
        plan(x, packed, b, out=y)
    y.zero_()
    graph.replay()
    torch.cuda.synchronize()
    near(torch, y, want)


def _with_a_workspace(text: str = "n1c512h7w7k512r3s3p1-f32") -> LayerPlan:
    """A plan whose kernel has a workspace that is set to 0 when it is made."""
    layer, direct, device = tw.Problem.parse(text), family_of("direct"), open_runtime("cuda").device
    for config, _ in rank(layer, device, direct, 2000):
        if any(buffer.zeroed for buffer in direct.blueprint(layer, device, config).workspace):
            plan = _plan(layer, config)
            if plan is not None:
                return plan
    pytest.skip("the model likes no config with a workspace that is set to 0")


def _recorded(torch: Any, record: Callable[[Any], None], y: Any) -> None:
    """Record, on a stream that nobody used before, and replay."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        record(y)
    for _ in range(3):
        y.zero_()
        graph.replay()
    torch.cuda.synchronize()


def test_the_first_call_on_a_stream_can_be_recorded(torch: Any) -> None:
    """Its workspace is made then, and that of a kernel for arrays that are not aligned."""
    plan = _with_a_workspace()
    x, w = (torch.randn(*shape, device="cuda") for shape in (plan.problem.x_shape, plan.problem.w_shape))
    want = torch.nn.functional.conv2d(x.double(), w.double(), padding=1).float()
    room = torch.empty(x.numel() + 1, device="cuda")
    shifted = room[1:].view(x.shape)
    shifted.copy_(x)
    packed, y = plan.pack(w), torch.empty_like(want)
    for given in (x, shifted):
        _recorded(torch, lambda out, given=given: plan(given, packed, out=out), y)
        torch.testing.assert_close(y, want, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(plan(x, packed), want, rtol=1e-3, atol=1e-3)


def test_the_first_call_on_a_stream_can_be_recorded_with_constant_memory(torch: Any) -> None:
    config = "small:bands=1.f=0.mb=1.ni=1.out=0.stages=1.th=1.threads=64.tk=4.tw=10"
    plan = tw.plan("n300c1h14w14k4r5s5-f32", "cuda", config=config)
    x, w = (torch.randn(*shape, device="cuda") for shape in (plan.problem.x_shape, plan.problem.w_shape))
    packed, y = plan.pack(w), torch.empty(plan.problem.y_shape, device="cuda")
    _recorded(torch, lambda out: plan(x, packed, out=out), y)
    torch.testing.assert_close(y, torch.nn.functional.conv2d(x, w), rtol=1e-3, atol=1e-3)


def test_a_call_that_packs_the_filter_can_be_recorded_at_once(
    torch: Any, layer: tuple[Any, Any, Any, Any]
) -> None:
    x, w, b, want = layer
    y = torch.empty_like(want)
    tw.conv2d(x, w, b, padding=1)
    _recorded(torch, lambda out: tw.conv2d(x, w, b, padding=1, out=out), y)
    near(torch, y, want)


def test_a_layer_is_planned_while_another_thread_records_a_graph(
    torch: Any, layer: tuple[Any, Any, Any, Any]
) -> None:
    x, w, b, want = layer
    plan, config = tw.plan(LAYER + "+bias", "cuda"), _with_a_workspace().config
    packed, y = plan.pack(w), torch.empty_like(want)
    with ThreadPoolExecutor(1) as other:

        def record(out: Any) -> None:
            plan(x, packed, b, out=out)
            other.submit(tw.plan, "n1c512h7w7k512r3s3p1-f32", "cuda", config=config).result(60)
            plan(x, packed, b, out=out)

        _recorded(torch, record, y)
    near(torch, y, want)


def test_layers_that_are_planned_together_answer_as_one_by_one(torch: Any, own_cache: None) -> None:
    """Among them winners that ship, which are verified in a process of its own, and guesses."""
    layers = [
        tw.Problem.parse(text)
        for text in ("n1c64h56w56k64r1s1-f32", "n1c256h14w14k256r3s3p1-f32", "n1c5h9w7k6r3s3p1-f32",
                     "n1c64h56w56k64r1s1-f32", "n1c128h28w28k128r3s3p1-f16-nhwc")
    ]  # fmt: skip
    plan_cache.forget()
    plans = tw.plan_all(layers, "cuda")
    assert [plan.problem for plan in plans] == layers
    assert [plan is tw.plan(layer, "cuda") for plan, layer in zip(plans, layers, strict=True)] == [True] * 5
    for plan, layer in zip(plans, layers, strict=True):
        dtype = torch.float16 if layer.dtype == "f16" else torch.float32
        order = torch.channels_last if layer.layout_in == "nhwc" else torch.contiguous_format
        x = torch.randn(layer.n, layer.c, layer.h, layer.w, device="cuda").to(dtype, memory_format=order)
        w = (torch.randn(layer.w_shape, device="cuda") / layer.terms**0.5).to(dtype)
        y = plan(x, plan.pack(w))
        want = torch.nn.functional.conv2d(x.double(), w.double(), padding=layer.pad[0])
        torch.testing.assert_close(y.double(), want, rtol=2e-3, atol=2e-3)


def test_what_a_threads_own_default_stream_had_goes_with_the_thread(torch: Any) -> None:
    cupy = pytest.importorskip("cupy")
    plan = _with_a_workspace()
    x, w = (cupy.random.rand(*one, dtype="f") for one in (plan.problem.x_shape, plan.problem.w_shape))
    packed = plan.pack(w)
    want, before = plan(x, packed), plan.allocated_bytes
    cupy.cuda.Device().synchronize()
    answers: list[Any] = []

    def call() -> None:
        with cupy.cuda.Stream.ptds:
            answers.append([plan(x, packed) for _ in range(20)][-1])  # under way at the thread's end

    for _ in range(10):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert plan.allocated_bytes == before and not [key for key in plan._streams.by_stream if key[0] == 2]
    cupy.cuda.Device().synchronize()
    assert all(float(abs(y - want).max()) <= 1e-3 * float(abs(want).max()) for y in answers)


def test_streams_that_come_and_go_do_not_fill_the_device(torch: Any) -> None:
    """What a later one has goes once its kernels are done, though the stream itself may have ended before."""
    cupy = pytest.importorskip("cupy")
    plan = _with_a_workspace()
    x, w = (cupy.random.rand(*one, dtype="f") for one in (plan.problem.x_shape, plan.problem.w_shape))
    packed = plan.pack(w)
    want = plan(x, packed)
    cupy.cuda.Device().synchronize()
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3 * MOST_STREAMS)]  # no handle comes twice
    answers: list[Any] = []
    while streams:
        with streams.pop():
            answers.append([plan(x, packed) for _ in range(20)][-1])  # under way as the next one comes
    assert len(plan._streams.by_stream) == 2 * MOST_STREAMS
    cupy.cuda.Device().synchronize()
    assert all(float(abs(y - want).max()) <= 1e-3 * float(abs(want).max()) for y in answers)


def test_the_own_default_stream_of_each_thread_has_a_workspace_of_its_own(
    torch: Any, layer: tuple[Any, Any, Any, Any]
) -> None:
    cupy = pytest.importorskip("cupy")
    x, w, b, want = (cupy.asarray(one) for one in layer)
    plan = tw.plan(LAYER + "+bias", "cuda")
    packed = plan.pack(w)
    cupy.cuda.Device().synchronize()
    meet = threading.Barrier(2)

    def call() -> int:
        with cupy.cuda.Stream.ptds:
            meet.wait()  # both threads are there, so they are two
            for _ in range(50):
                y = plan(x, packed, b)
            assert float(abs(y - want).max()) <= 1e-3 * float(abs(want).max())
            meet.wait()  # what a thread had goes with it: nobody ends before both have counted
            kept = {id(one) for key, one in list(plan._streams.by_stream.items()) if key[0] == 2}
            meet.wait()
        return len(kept)

    with ThreadPoolExecutor(2) as pool:
        assert [job.result() for job in [pool.submit(call) for _ in range(2)]] == [2, 2]


def test_the_same_where_only_arrays_that_are_not_aligned_need_a_workspace(torch: Any) -> None:
    """``hopper`` reads x in nhwc as it is, but where it is not aligned it is copied first."""
    cupy = pytest.importorskip("cupy")
    problem, kind = tw.Problem.parse("n1c64h56w56k64r3s3p1-f16-nhwc"), family_of("hopper")
    device = open_runtime("cuda").device
    if reason := kind.refuses(problem, device):
        pytest.skip(reason)
    config = rank(problem, device, kind, 1, pins=dict(x=0, combine=0))[0][0]
    assert not any(buffer.nbytes for buffer in kind.blueprint(problem, device, config).workspace)
    plan = tw.plan(problem, "cuda", config=config)
    w = cupy.ones(problem.w_shape, cupy.float16)
    packed, meet = plan.pack(w), threading.Barrier(2)
    whole = [cupy.full(1 + problem.n * 56 * 56 * 64, value, cupy.float16) for value in (1, 2)]
    inputs = [one[1:].reshape(problem.x_shape) for one in whole]  # two bytes on
    wanted = [plan(one.copy(), packed) for one in inputs]
    cupy.cuda.Device().synchronize()

    def call(which: int) -> int:
        with cupy.cuda.Stream.ptds:
            meet.wait()
            answers = [plan(inputs[which], packed) for _ in range(50)]
            cupy.cuda.Stream.ptds.synchronize()
            assert all(bool((one == wanted[which]).all()) for one in answers)
            meet.wait()
            kept = [key for key in list(plan.plan._unaligned) if key and key[0] == 2]
            meet.wait()
        return len(kept)

    with ThreadPoolExecutor(2) as pool:
        assert [job.result() for job in [pool.submit(call, which) for which in range(2)]] == [2, 2]


def _on_streams(torch: Any, calls: Sequence[Callable[[], Any]], want: Sequence[Any]) -> None:
    """Each call has a stream of its own; all are under way at once, again and again."""
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in calls]
    for _ in range(50):
        ys = []
        for call, stream in zip(calls, streams, strict=True):
            with torch.cuda.stream(stream):
                ys.append(call())
        torch.cuda.synchronize()
        for y, one in zip(ys, want, strict=True):
            torch.testing.assert_close(y, one, rtol=1e-3, atol=1e-3)


def _plan(layer: tw.Problem, config: Config) -> LayerPlan | None:
    """Make a plan of a config, unless it spills: that only the compiler knows."""
    try:
        return tw.plan(layer, "cuda", config=config)
    except CompileError:
        return None


def test_streams_do_not_share_a_workspace(torch: Any) -> None:
    runtime = open_runtime("cuda")
    layer = tw.Problem.parse("n1c512h7w7k512r3s3p1-f32")
    choices = [c for c, _ in rank(layer, runtime.device, family_of("direct"), 2000)]
    plans = (_plan(layer, c) for c in choices if family_of("direct").blueprint(
        layer, runtime.device, c).workspace)  # fmt: skip
    plan = next(filter(None, plans), None)
    if plan is None:
        pytest.skip("the model likes no config with a workspace")
    xs = [torch.randn(*layer.x_shape, device="cuda") for _ in range(4)]
    w = torch.randn(*layer.w_shape, device="cuda")
    packed = plan.pack(w)
    want = [torch.nn.functional.conv2d(x.double(), w.double(), padding=1).float() for x in xs]
    _on_streams(torch, [lambda x=x: plan(x, packed) for x in xs], want)
    _on_streams(torch, [plan.bind(x, packed) for x in xs], want)


def test_streams_do_not_share_constant_memory(torch: Any) -> None:
    config = "small:bands=1.f=0.mb=1.ni=1.out=0.stages=1.th=1.threads=64.tk=4.tw=10"
    plan = tw.plan("n300c1h14w14k4r5s5-f32", "cuda", config=config)
    x = torch.randn(*plan.problem.x_shape, device="cuda")
    filters = [torch.randn(*plan.problem.w_shape, device="cuda") for _ in range(4)]
    want = [torch.nn.functional.conv2d(x.double(), w.double()).float() for w in filters]
    packed = [plan.pack(w) for w in filters]
    _on_streams(torch, [lambda one=one: plan(x, one) for one in packed], want)


def test_a_fresh_thread_can_call(torch: Any, layer: tuple[Any, Any, Any, Any]) -> None:
    x, w, b, want = layer
    found: list[object] = []

    def work() -> None:
        try:
            found.append(tw.conv2d(x, w, b, padding=1))
            found.append(tw.conv2d(x, w, b, padding=(1, 1, 1, 1), deterministic=True))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    for y in found:
        assert torch.is_tensor(y), y
        near(torch, y, want)
    assert len(found) == 2


def test_every_gpu_is_used_where_its_arrays_are(torch: Any) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("there is one GPU")
    for current in (0, 1):
        torch.cuda.set_device(current)
        for index in (0, 1):
            x, w = (torch.randn(*s, device=f"cuda:{index}") for s in ((1, 16, 9, 9), (24, 16, 3, 3)))
            y = tw.conv2d(x, w, padding=1)
            assert y.device == x.device and torch.cuda.current_device() == current
            assert torch.ones(1, device="cuda").device.index == current
            near(torch, y, torch.nn.functional.conv2d(x.double(), w.double(), padding=1).float())
    torch.cuda.set_device(0)


def test_cupy(torch: Any, layer: tuple[Any, Any, Any, Any]) -> None:
    cupy = pytest.importorskip("cupy")
    x, w, b = (cupy.from_dlpack(t) for t in layer[:3])
    want = cupy.asnumpy(cupy.from_dlpack(layer[3]))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        torch.cuda.synchronize()
        y = tw.conv2d(x, w, b, padding=1)
        stream.synchronize()
    assert isinstance(y, cupy.ndarray)
    assert abs(cupy.asnumpy(y) - want).max() < 1e-3
    with pytest.raises(ArrayError, match=r"x: strides .*cupy.ascontiguousarray\(x\)"):
        tw.conv2d(x[..., ::2], w)
    with pytest.raises(ArrayError, match="w: is a torch array"):
        tw.conv2d(x, layer[1])
