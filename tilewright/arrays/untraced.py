"""Keeps torch.compile out of what finds and launches kernels, where it has nothing to record."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def untraced(function: Callable[P, R]) -> Callable[P, R]:
    """Have torch.compile run a function as it is, in a break of its graph (with ``fullgraph`` it refuses).

    Otherwise it follows even the search for a kernel: a call then takes several times as long, the first one
    seconds more, with warnings of what cannot be traced. It costs 1 us a call where PyTorch's compiler was
    loaded.
    """
    outside: list[Callable[P, R]] = []

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if "torch._dynamo" not in sys.modules:  # which torch.compile loads, but not PyTorch by itself
            return function(*args, **kwargs)
        if not outside:
            outside.append(sys.modules["torch"].compiler.disable(function))
        return outside[0](*args, **kwargs)

    return call
