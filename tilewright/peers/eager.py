"""Epilogues as PyTorch runs them: arrays as tensors, and one operation for each step."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial, reduce
from typing import Any

import numpy as np

from tilewright.peers.base import Array, load, unknown
from tilewright.problem.epilogue import Epilogue

Step = Callable[[Any], Any]


def to_tensor(array: Array) -> Any:
    """View a NumPy array as a tensor; PyTorch does not know the bfloat16 and float8 of ml_dtypes."""
    torch = load("torch")
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    if array.dtype.name == "float8_e4m3fn":
        return torch.from_numpy(array.view(np.int8)).view(torch.float8_e4m3fn)
    return torch.from_numpy(array)


def words(epilogue: Epilogue) -> dict[str, str]:
    """Return the steps of an epilogue by name, each with its word, in the order in which they are done.

    The names are alpha, bias, add, act and pool; sums come before the activation in any order.
    """
    e = epilogue
    there = dict(alpha=e.alpha != 1.0, bias=e.bias, add=e.add, act=bool(e.act), pool=e.pool is not None)
    return dict(zip([name for name in there if there[name]], str(e).split("+")[1:], strict=True))


def told(epilogue: Epilogue, fused: Collection[str]) -> str:
    """Return the part of a ``detail`` that says which steps are fused and which run separately."""
    parts = words(epilogue).items()
    inside = " ".join(word for name, word in parts if name in fused)
    apart = " ".join(word for name, word in parts if name not in fused)
    return (f", {inside} fused" if inside else "") + (f", {apart} apart" if apart else "")


def eager(epilogue: Epilogue, bias: Any, z: Any, done: Collection[str], scale: Any = None) -> Step:
    """Return a function of the remaining steps of an epilogue, each a kernel of its own; it overwrites its
    argument unless there are none: all but the pool are in place.

    Args:
        epilogue: the whole epilogue.
        bias: tensor of shape (1, K, 1, 1), if there is one.
        z: the residual, in the shape of the sum, if there is one.
        done: steps that are done already.
        scale: tensor of shape (1, K, 1, 1), if sums of i8 are requantised at the end.
    """
    alpha, beta = epilogue.alpha, epilogue.beta
    known = {
        "alpha": lambda y: y.mul_(alpha),
        "bias": lambda y: y.add_(bias),
        "add": (lambda y: y.add_(z)) if beta == 1.0 else (lambda y: y.add_(z, alpha=beta)),
        "act": _activation(epilogue),
        "pool": _pool(epilogue),
    }
    steps: list[Step] = [known[name] for name in words(epilogue) if name not in done]
    if scale is not None:
        torch = load("torch")
        steps.append(lambda y: y.float().mul_(scale).round_().clamp_(-128, 127).to(torch.int8))
    return lambda y: reduce(lambda made, step: step(made), steps, y)


def _activation(e: Epilogue) -> Step:
    functional = load("torch").nn.functional
    known: dict[str, Step] = {
        "": lambda y: y,
        "relu": lambda y: y.relu_(),
        "leaky": lambda y: functional.leaky_relu_(y, e.low),
        "silu": partial(functional.silu, inplace=True),
        "clamp": lambda y: y.clamp_(e.low, e.high),
    }
    if e.act not in known:
        raise unknown(e, "PyTorch")
    return known[e.act]


def _pool(e: Epilogue) -> Step:
    functional, pool = load("torch").nn.functional, e.pool
    if pool is None:
        return lambda y: y
    if pool.mode == "max":
        return lambda y: functional.max_pool2d(y, pool.size, pool.stride, pool.pad)
    return lambda y: functional.avg_pool2d(y, pool.size, pool.stride)
