"""f16 to f32 and back on a CPU, by its instructions, and by hand where it has none; f8 to f32."""

from __future__ import annotations

import numpy as np
import pytest
from here import computed

from tilewright.dtypes import numpy_dtype
from tilewright.kernels import family_of
from tilewright.kernels.family import Blueprint, Config
from tilewright.kernels.source import full_source
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime import opencl_programs
from tilewright.runtime.opencl import OpenclRuntime
from tilewright.runtime.opencl_programs import OPTIONS
from tilewright.runtime.opencl_vectors import PRELUDE
from tilewright.search.ranking import rank

COUNT = 1 << 16
TEXT = """
KERNEL(convert)(GLOBAL const ushort *halves, GLOBAL float *widened, GLOBAL const float *floats,
                GLOBAL ushort *narrowed) {
    const int i = GROUP(0);
    widened[i] = half_float(halves[i]);
    narrowed[i] = float_half(floats[i]);
}
"""


def _floats() -> np.ndarray:
    """Return numbers of every size, all bit patterns among them, and both sides of the edges of f16."""
    rng = np.random.default_rng(7)
    edges = np.float32([65504, 65520, 2.0**-14, 2.0**-24, 2.0**-25, 1 + 2.0**-11, 1 + 3 * 2.0**-11])
    edges = np.concatenate([np.nextafter(edges, np.float32(way)) for way in (0, np.inf)] + [edges])
    some = np.concatenate([edges, -edges, np.float32([0, -0.0, np.inf, -np.inf, np.nan])])
    sized = rng.standard_normal(COUNT // 2) * 10.0 ** rng.integers(-9, 6, COUNT // 2)
    bits = rng.integers(0, 1 << 32, COUNT - COUNT // 2 - some.size, dtype=np.uint32).view(np.float32)
    return np.concatenate([some, sized.astype(np.float32), bits])


@pytest.mark.parametrize("by_hand", [False, True])
def test_as_numpy_does(by_hand: bool, cpu: OpenclRuntime) -> None:
    defines = dict(DTYPE=1, VECTOR=1)
    source = full_source(Blueprint(TEXT, tuple(defines.items()), launches=(), workspace=(), packed_bytes=0))
    program = cpu.programs.of("#undef __F16C__\n" * by_hand + PRELUDE + source, OPTIONS)
    cl, halves, floats = cpu.cl, np.arange(COUNT, dtype=np.uint16), _floats()
    given = [cl.Buffer(cpu._context, cl.mem_flags.COPY_HOST_PTR, hostbuf=array) for array in (halves, floats)]
    made = [cl.Buffer(cpu._context, 0, size=COUNT * size) for size in (4, 2)]
    program.convert(cpu._queue, (COUNT,), (1,), given[0], made[0], given[1], made[1])
    widened, narrowed = np.empty(COUNT, np.float32), np.empty(COUNT, np.uint16)
    for array, buffer in zip((widened, narrowed), made, strict=True):
        cl.enqueue_copy(cpu._queue, array, buffer)
    assert _same(widened, halves.view(np.float16).astype(np.float32))
    with np.errstate(over="ignore"):
        assert _same(narrowed.view(np.float16), floats.astype(np.float16))


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("name", ["direct", "grouped", "reference"])
def test_every_f8(name: str, flushed: bool, cpu: OpenclRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """On devices too that take a denormal f32 for 0, as OpenCL lets them."""
    if flushed:
        monkeypatch.setattr(opencl_programs, "OPTIONS", (*OPTIONS, "-cl-denorms-are-zero"))
    problem, f8 = Problem.parse("n1c1h8w32k1r1s1-f8"), numpy_dtype("f8")
    kind = family_of(name)
    config = rank(problem, cpu.device, kind, 1)[0][0] if kind.tunable else Config.make(name, {"v": 1})
    x = np.arange(256, dtype=np.uint8).view(f8).reshape(problem.x_shape)
    y = computed(Plan.make(cpu, problem, config), x, np.ones(problem.w_shape, f8))
    assert np.array_equal(y, x.astype(np.float16), equal_nan=True)


def _same(found: np.ndarray, want: np.ndarray) -> bool:
    """Whether all bits are, but for those of a NaN."""
    word = np.uint32 if found.dtype.itemsize == 4 else np.uint16
    same = found.view(word) == want.view(word)
    return bool((same | (np.isnan(found) & np.isnan(want))).all())
