"""The f64 reference of large batches on a CPU: a few images at a time, so that the caches hold the work."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from tilewright.checking.inputs import Inputs
from tilewright.kernels.untuned.reference import numpy_conv
from tilewright.problem import Problem

_PART_BYTES = 4 << 20  # of the outputs that are worked on at once
_THREADS = 2  # more slow down the large products, which have their own


def host_reference(problem: Problem, host: Inputs, sized: bool) -> tuple[Any, Any]:
    """Compute y and its size as ``numpy_conv`` does; the size is empty where it is not ``sized``."""
    import numpy as np

    y = np.empty(problem.y_shape)
    size = np.empty(problem.y_shape if sized else 0)
    images = max(1, _PART_BYTES * problem.n // (8 * problem.z_elements))

    def work(first: int) -> None:
        some = slice(first, first + images)
        x, z = host.x[some], None if host.z is None else host.z[some]
        part = replace(problem, n=len(x))
        y[some], found = numpy_conv(part, x, host.w, host.bias, z, sized)
        if sized:
            size[some] = found

    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(work, range(0, problem.n, images)))
    return y, size
