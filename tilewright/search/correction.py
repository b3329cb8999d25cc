"""What measurements say of the model's error, and which configs to measure next.

The error, log(time / estimate), is modelled as a Gaussian process over a family's parameters: similar configs
have similar errors. A measurement corrects its neighbourhood and leaves the rest as uncertain as it was. The
next config is the one of largest expected improvement on the best time: near-twins of a config that is
measured, or about to be, have little to add.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from math import erf, log, pi, sqrt

import numpy as np
from threadpoolctl import ThreadpoolController

from tilewright.kernels.config import Config
from tilewright.kernels.family import Param
from tilewright.search.places import Floats, coordinates, distances

# The process: an error that all configs of a problem share, one of each config with an exponential kernel,
# and noise. Standard deviations are of log(time / expected time). Source: the search replayed on
# benchmarks/h100/trials.jsonl.gz.
COMMON = 0.12  # standard deviation of the error that all configs of a problem share
OWN = 0.10  # standard deviation of what differs among them
LENGTH_SCALE = 4.0  # of the kernel, in octaves of parameters, summed
NOISE = 0.02  # standard deviation of what no neighbour tells
MOST = 400  # measured configs that are looked at, the fastest first

_erf = np.vectorize(erf, otypes=[float])
_alone = threading.RLock()


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController | None:
    """Return the libraries whose threads can be limited.

    None if any file that is loaded has a name that is not UTF-8, as kernels have in a cache folder of such a
    name: threadpoolctl reads the names of all.
    """
    try:
        return ThreadpoolController()
    except UnicodeError:  # of a name that is read, or that was read and cannot be written
        return None


@contextmanager
def on_one_core() -> Iterator[None]:
    """Keep linear algebra to one core, within a ``with`` or as a decorator.

    Its threads wait for each other: where compilers keep all cores busy, a matrix of a few hundred rows takes
    25 times as long. The limit holds for the whole process, so our own threads take turns here.
    """
    with _alone:
        libraries = _libraries()
        with libraries.limit(limits=1, user_api="blas") if libraries else nullcontext():
            yield


@on_one_core()
def choose(
    params: Sequence[Param], fresh: Sequence[Config], estimate_us: Callable[[Config], float],
    measured_us: Mapping[Config, float], waiting: Sequence[Config], best_us: float, count: int,
) -> tuple[list[Config], float]:  # fmt: skip
    """Return the configs to measure next, in this order, and the gain that is expected of the first of them,
    as a share of the best time.

    Args:
        params: of the family.
        fresh: configs to choose among.
        estimate_us: the model's time of a config.
        measured_us: the time of each measured config.
        waiting: configs that were chosen before and are not measured yet.
        best_us: the least time to improve on; infinity if there is none.
        count: how many to choose, at most.
    """
    pool = [*sorted(fresh, key=estimate_us), *waiting]
    known = sorted(measured_us, key=measured_us.__getitem__)[:MOST]
    errors = np.array([log(measured_us[c] / estimate_us(c)) for c in known])
    error, variance, seen = _given(params, pool, [*known, *waiting], errors)
    expected = np.log(np.array([estimate_us(c) for c in pool])) + error
    places = coordinates(params, pool)
    free = np.arange(len(pool)) < len(fresh)
    best = min([log(best_us), *expected[len(fresh) :]])
    chosen: list[Config] = []
    first = np.inf if best == np.inf else 0.0
    for _ in range(min(count, len(fresh))):
        gain = _improvement(best - expected, np.sqrt(variance)) if best < np.inf else -expected
        pick = int(np.argmax(np.where(free, gain, -np.inf)))
        if not chosen and best < np.inf:
            first = float(gain[pick])
        chosen.append(pool[pick])
        free[pick], best = False, min(best, expected[pick])
        # As if it were measured, and as expected: only what is uncertain changes.
        told = _covariance(places, places[pick : pick + 1])[:, 0] - seen.T @ seen[:, pick]
        seen = np.vstack([seen, told / sqrt(variance[pick])])
        variance = np.maximum(variance - seen[-1] ** 2, NOISE**2)
    return chosen, first


def _given(
    params: Sequence[Param], pool: Sequence[Config], points: Sequence[Config], errors: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the posterior mean and variance of the pool's errors, and how the points explain them.

    The errors of the first points are known; those of the others are yet to be measured.
    """
    at, places = coordinates(params, points), coordinates(params, pool)
    root = np.linalg.cholesky(_covariance(at, at) + NOISE**2 * np.eye(len(at)))
    seen = np.linalg.solve(root, _covariance(at, places))
    known = len(errors)
    white = np.linalg.solve(root[:known, :known], errors)
    variance = COMMON**2 + OWN**2 + NOISE**2 - (seen**2).sum(axis=0)
    return seen[:known].T @ white, np.maximum(variance, NOISE**2), seen


def _covariance(a: Floats, b: Floats) -> Floats:
    """Return the covariance of the errors of two lists of configs."""
    covariance: Floats = COMMON**2 + OWN**2 * np.exp(-distances(a, b) / LENGTH_SCALE)
    return covariance


def _improvement(ahead: Floats, deviation: Floats) -> Floats:
    """Return the expected improvement of normal variables whose means are ``ahead`` of the best."""
    z = ahead / deviation
    below: Floats = 0.5 * (1.0 + _erf(z / sqrt(2.0)))
    gain: Floats = ahead * below + deviation * np.exp(-0.5 * z**2) / sqrt(2.0 * pi)
    return gain
