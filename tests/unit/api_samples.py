"""Arrays, what they should give, and a cache of the test's own, for the tests of the array interface."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.dispatch import choices
from tilewright.kernels.blueprint import Buffer
from tilewright.kernels.untuned.reference import Reference, numpy_conv
from tilewright.plans import plan_cache
from tilewright.problem import Problem

F = np.float32


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A store of the test's own, and a model with no opinion: the reference kernel runs."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(choices, "ranked_for", lambda *_: [])
    plan_cache.forget()


def some(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


def expected(text: str, x: Any, w: Any, bias: Any = None, z: Any = None) -> Any:
    return numpy_conv(Problem.parse(text), x, w, bias, z)[0]


def near(y: Any, want: Any) -> None:
    assert tuple(y.shape) == want.shape and y.dtype == F
    np.testing.assert_allclose(np.asarray(y), want, rtol=1e-5, atol=1e-5)


X, W, B = some(2, 4, 7, 9), some(6, 4, 3, 2, seed=1), some(6, seed=2)
Z = some(2, 6, 5, 8, seed=3)


def copy_unaligned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the reference copy arrays that are not aligned, as mma and hopper do."""
    plain = Reference.blueprint

    def copies(family: Any, *given: Any, aligned: bool = True) -> Any:
        blueprint = plain(family, *given, aligned)
        return blueprint if aligned else replace(blueprint, workspace=(Buffer("copied", 64),))

    monkeypatch.setattr(Reference, "blueprint", copies)
