"""Where configs, layers and estimates lie: rows of coordinates, whose distances say how alike they are.

The model errs alike on what is near: on similar configs, on layers of similar sizes, and on kernels whose
times are made up alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

import numpy as np
from numpy.typing import NDArray

from tilewright.kernels.config import Config
from tilewright.kernels.family import Param
from tilewright.problem import Problem
from tilewright.record import Estimate

Floats = NDArray[np.float64]

OPTIONS = 8  # a choice has fewer: numbers from 0 on
ROWS = 128  # of a matrix of distances, computed at once
PARTS = (
    "issue_slots_us", "shared_port_us", "l2_us", "dram_us", "stalls_us", "tensor_us",
    "stores_us", "combine_us", "first_loads_us", "other_launches_us",
)  # fmt: skip
SIZES = ("occupancy", "waves", "blocks_per_unit_at_once")
OCTAVE = 0.25  # an octave of a size counts as much as this share of a time


def coordinates(params: Sequence[Param], configs: Sequence[Config]) -> Floats:
    """Place configs, a row each: sizes in octaves; for a choice a coordinate of each option, any two 1 apart.

    Layers may offer fewer of a family's options: the places of all are alike.
    """
    columns = []
    for param in params:
        values = np.array([config[param.name] for config in configs], float)[:, None]
        options = 0.5 * (values == np.arange(OPTIONS))
        columns.append(options if param.names else np.log2(np.maximum(values, 0.5)))
    return np.hstack([np.empty((len(configs), 0)), *columns])


def features(problem: Problem) -> Floats:
    """Return the features of a layer: its sizes in octaves, and its choices."""
    pixels = problem.n * problem.p * problem.q
    shape = [log2(problem.c), log2(problem.k), log2(max(1, pixels)), 2.0 * problem.r, 2.0 * problem.stride[0]]
    return np.array([*shape, 2.0 * (problem.layout_in == "nhwc"), log2(problem.groups)])


def makeup(estimates: Sequence[Estimate]) -> Floats:
    """Place estimates, a row each: the share of each part of the time, and how the blocks fill the units."""
    rows = []
    for one in estimates:
        found = {**one.facts, **one.terms_us}
        shares = [found.get(part, 0.0) / one.total_us for part in PARTS]
        sizes = [OCTAVE * log2(max(found.get(size, 1.0), 0.01)) for size in SIZES]
        uneven = [found.get("useful_outputs", 1.0), min(found.get("tail", 0.0), 1.0) / 2.0]
        rows.append([*shares, *sizes, OCTAVE * log2(one.total_us), *uneven])
    return np.array(rows)


def distances(a: Floats, b: Floats) -> Floats:
    """Return the distance of every row of ``a`` from every row of ``b``: coordinate by coordinate, summed.

    A few rows at a time, which stay in the cache, and only coordinates that differ at all.
    """
    distance = np.zeros((len(a), len(b)))
    if not distance.size:
        return distance
    differ = np.flatnonzero(np.ptp(np.vstack([a, b]), axis=0))
    step = np.empty((min(ROWS, len(a)), len(b)))
    for at in range(0, len(a), ROWS):
        here = distance[at : at + ROWS]
        for i in differ:
            np.subtract(a[at : at + ROWS, i, None], b[:, i], out=step[: len(here)])
            here += np.abs(step[: len(here)], out=step[: len(here)])
    return distance
