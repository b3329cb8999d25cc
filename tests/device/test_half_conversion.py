"""f16 to f32 and back on a CPU: by its instructions, and by hand where it has none."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.kernels.family import Blueprint
from tilewright.kernels.source import full_source
from tilewright.runtime.opencl import OPTIONS, OpenclRuntime

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
    program = cpu._program("#undef __F16C__\n" * by_hand + source, OPTIONS)
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


def _same(found: np.ndarray, want: np.ndarray) -> bool:
    """Whether all bits are, but for those of a NaN."""
    word = np.uint32 if found.dtype.itemsize == 4 else np.uint16
    same = found.view(word) == want.view(word)
    return bool((same | (np.isnan(found) & np.isnan(want))).all())
