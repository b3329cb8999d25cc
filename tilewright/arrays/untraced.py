"""Keeps torch.compile from tracing the code that chooses and launches kernels."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def untraced(function: Callable[P, R]) -> Callable[P, R]:
    """Make torch.compile run a function untraced, with a graph break (with ``fullgraph`` it refuses).

    Otherwise it traces even the choice of a kernel: a call then takes several times as long, the first one
    seconds more, with warnings about what cannot be traced. The cost is 1 us a call once PyTorch's compiler
    is loaded.
    """
    outside: list[Callable[P, R]] = []

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if "torch._dynamo" not in sys.modules:  # loaded by torch.compile, not by PyTorch itself
            return function(*args, **kwargs)
        if not outside:
            outside.append(sys.modules["torch"].compiler.disable(function))
        return outside[0](*args, **kwargs)

    return call
