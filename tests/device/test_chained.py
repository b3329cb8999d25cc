"""Calls that begin while what runs before them on the stream ends must not read what is not there yet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from every_family import examples

import tilewright as tw
from tilewright.device import for_architecture
from tilewright.dtypes import FULL
from tilewright.kernels import FAMILIES
from tilewright.problem import Problem
from tilewright.problem.epilogue import Epilogue
from tilewright.runtime.nvrtc import import_core

pytestmark = pytest.mark.gpu
ROUNDS = 40
FLOATS = ("f64", "f32", "f16", "bf16")  # as PyTorch has random ones
# A kernel of somebody else that lets the next one begin at once, and writes late.
SLOW = r"""
extern "C" __global__ void slow(const int *from, int *to, int words) {
    asm volatile("griddepcontrol.launch_dependents;");
    for (long long start = clock64(); clock64() - start < 60000;) {}
    for (int i = blockIdx.x * 256 + threadIdx.x; i < words; i += gridDim.x * 256) to[i] = from[i];
}
"""
LAYERS = [
    ("direct", "n1c64h28w28k64r3s3p1-f32"),
    ("gemm", "n1c256h28w28k256r1s1-f32"),
    ("gemv", "n1c512h1w1k512r1s1-f32-nhwc"),
    ("grouped", "n1c64h56w56k64r3s3p1g64-f32"),
    ("grouped_mma", "n1c64h56w56k64r3s3p1g8-f16-nhwc"),
    ("hopper", "n1c128h28w28k128r3s3p1-f16-nhwc"),
    ("hopper", "n1c128h28w28k128r3s3p1-f16"),
    ("hopper", "n1c128h28w28k128r3s3p1-accurate-nhwc"),
    ("im2col", "n1c64h28w28k64r3s3p1-f32"),
    ("kn2row", "n1c64h96w96k3r7s7p3-f16-nhwc"),
    ("mma", "n1c64h28w28k64r3s3p1-f16-nhwc"),
    ("mma", "n1c64h28w28k64r3s3p1-f16"),
    ("narrow", "n1c32h96w96k3r3s3p1-f32"),
    ("planar", "n16c256h14w14k256r1s1-f16"),
    ("pointwise", "n8c256h28w28k256r1s1-f16"),
    ("pointwise", "n8c256h28w28k256r1s1u2-f16"),
    ("reference", "n1c16h28w28k16r3s3p1-f32"),
    ("reference", "n1c16h28w28k16r3s3p1-f32+maxpool2"),
    ("shifted", "n8c128h28w28k128r3s3p1-f16"),
    ("small", "n64c4h24w24k4r3s3p1-f32"),
    ("stem", "n2c3h64w64k32r3s3p1-f16-nhwc"),
    ("strassen", "n1c1024h32w32k1024r1s1-f32"),
    ("toeplitz", "n1c64h56w56k64r3s3p1g64-f16"),
    ("winograd", "n1c64h28w28k64r3s3p1-f32"),
    ("winograd4", "n1c64h28w28k64r3s3p1-f32"),
    ("winograd_rows", "n64c4h24w24k4r7s7p3-f32"),
]


def _layers() -> Iterator[tuple[str, str]]:
    """Yield those, and of a family that none is of its first example of floats, without the epilogue."""
    yield from LAYERS
    h100, listed = for_architecture("sm_90"), {name for name, _ in LAYERS}
    for one in FAMILIES:
        if one.races and one.tunable and one.name not in listed:
            shown = [problem for problem in examples(one) if problem.dtype in FLOATS]
            plain = [replace(problem, epilogue=Epilogue()) for problem in shown]
            yield from [(one.name, str(each)) for each in plain if one.refuses(each, h100) is None][:1]


@pytest.fixture
def torch(gpu: None) -> Any:
    return pytest.importorskip("torch")


class Slow:
    """Copies a tensor by a kernel during which the next one may begin."""

    def __init__(self, torch: Any) -> None:
        """Compile it; skips the test on a device where no kernel begins early."""
        if torch.cuda.get_device_capability() < (9, 0):
            pytest.skip("launches overlap since sm_90")
        self.core, self.current = import_core(), torch.cuda.current_stream
        major, minor = torch.cuda.get_device_capability()
        options = self.core.ProgramOptions(arch=f"sm_{major}{minor}")
        self.kernel = self.core.Program(SLOW, "c++", options).compile("cubin").get_kernel("slow")

    def copy(self, source: Any, target: Any) -> None:
        """Enqueue it on the current stream, of PyTorch."""
        stream = self.core.Stream.from_handle(self.current().cuda_stream)
        words = source.numel() * source.element_size() // 4
        config = self.core.LaunchConfig(grid=16, block=256)
        at = source.data_ptr(), target.data_ptr(), np.int32(words)
        self.core.launch(stream, config, self.kernel, *at)


class Sequence:
    """What a network does: each call reads what the one before wrote, and writes over what that one read."""

    def __init__(self, torch: Any, text: str, family: str) -> None:
        """Plan the layer; inputs and filters are random."""
        self.torch, problem = torch, Problem.parse(text)
        torch.manual_seed(0)
        self.plan = tw.plan(problem, "cuda", family=family, deterministic=True)
        kind, terms = getattr(torch, FULL[problem.dtype]), problem.c // problem.groups * problem.r * problem.s
        self.inputs = [torch.randn(problem.x_shape, device="cuda").to(kind) for _ in range(3)]
        self.filters = [(torch.randn(problem.w_shape, device="cuda") / terms**0.5).to(kind) for _ in range(2)]
        self.x, self.w = torch.empty_like(self.inputs[0]), torch.empty_like(self.filters[0])
        self.y = torch.empty(problem.y_shape, device="cuda", dtype=kind)
        self.y2 = torch.empty_like(self.y)
        self.back = problem.x_shape == problem.y_shape
        self.packed = self.plan.pack(self.filters[0])

    def step(self, i: int, packs: bool, wait: Callable[[], object]) -> Any:
        """Run the layer on a new input, and if shapes allow it on its output twice."""
        self.x.copy_(self.inputs[i % 3])
        wait()
        if packs:
            self.w.copy_(self.filters[i % 2])
            wait()
            self.packed = self.plan.pack(self.w)
            wait()
        self.plan(self.x, self.packed, out=self.y)
        wait()
        for source, target in ((self.y, self.x), (self.x, self.y)) if self.back else ():
            self.plan(source, self.packed, out=target)
            wait()
        return self.y.clone()

    def steps(self, packs: bool, wait: Callable[[], object] = lambda: None) -> Any:
        """Return all outputs, with ``wait`` after each launch."""
        return self.torch.stack([self.step(i, packs, wait) for i in range(ROUNDS)])


@pytest.mark.parametrize(("family", "text"), [*_layers()])
def test_a_call_waits_for_a_kernel_that_lets_it_begin_early(family: str, text: str, torch: Any) -> None:
    slow, sequence = Slow(torch), Sequence(torch, text, family)
    plan, packed, y = sequence.plan, sequence.packed, sequence.y
    wants = [plan(x, packed) for x in sequence.inputs]
    for i in range(6):
        sequence.x.zero_()
        torch.cuda.synchronize()
        slow.copy(sequence.inputs[i % 3], sequence.x)
        plan(sequence.x, packed, out=y)
        assert torch.equal(y, wants[i % 3])
        torch.cuda.synchronize()
        slow.copy(y, sequence.y2)  # reads what the next one writes
        plan(sequence.inputs[(i + 1) % 3], packed, out=y)
        assert torch.equal(sequence.y2, wants[i % 3])


@pytest.mark.parametrize(("family", "text"), [*_layers()])
def test_calls_behind_one_another_answer_as_calls_apart(family: str, text: str, torch: Any) -> None:
    """Bits are the same, also where the filter was packed right before, and in a graph."""
    sequence = Sequence(torch, text, family)
    for packs in (True, False):
        want = sequence.steps(packs, torch.cuda.synchronize)
        assert want.isfinite().all() and len(want.flatten(1).unique(dim=0)) == (6 if packs else 3)
        for _ in range(3):
            assert torch.equal(sequence.steps(packs), want)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = sequence.steps(packs=False)
    for _ in range(3):
        kept.zero_()
        graph.replay()
        assert torch.equal(kept, want)


def test_a_call_behind_two_streams_waits_for_both(torch: Any) -> None:
    """Also in a graph, where the call's launch has two before it."""
    sequence = Sequence(torch, "n1c256h28w28k256r1s1-f32", "gemm")
    plan, packed, source = sequence.plan, sequence.packed, sequence.inputs[0]
    side, slow = torch.cuda.Stream(), torch.randn(4096, 4096, device="cuda")
    want = plan(source, packed)

    def forked() -> Any:
        sequence.x.zero_()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            sequence.x.copy_(source + (slow @ slow).sum() * 0)
        plan(source, packed, out=sequence.y)
        torch.cuda.current_stream().wait_stream(side)
        return plan(sequence.x, packed)

    assert torch.equal(forked(), want)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = forked()
    for _ in range(3):
        y.zero_()
        graph.replay()
        assert torch.equal(y, want)


@pytest.mark.parametrize("between", [False, True])
def test_a_call_on_the_default_stream_waits_for_streams_that_block_it(between: bool, torch: Any) -> None:
    """CuPy's streams are such: nobody says so, but what runs there is over before the default one goes on."""
    slow, sequence = Slow(torch), Sequence(torch, "n1c256h28w28k256r1s1-f32", "gemm")
    plan, packed, x, y = sequence.plan, sequence.packed, sequence.x, sequence.y
    wants = [plan(one, packed) for one in sequence.inputs]
    driver = pytest.importorskip("cuda.bindings.driver")
    status, handle = driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_DEFAULT)
    assert status == driver.CUresult.CUDA_SUCCESS
    blocking = torch.cuda.ExternalStream(int(handle))
    for i in range(6):
        x.zero_()
        torch.cuda.synchronize()
        if between:
            slow.copy(y, sequence.y2)  # the launch before on the default stream lets the call begin early
        with torch.cuda.stream(blocking):
            slow.copy(sequence.inputs[i % 3], x)
        plan(x, packed, out=y)
        with torch.cuda.stream(blocking):
            slow.copy(y, sequence.y2)  # and the other way round
        assert torch.equal(sequence.y2, wants[i % 3])
        assert torch.equal(y, wants[i % 3])
    torch.cuda.synchronize()
    driver.cuStreamDestroy(handle)
