"""The reference family: the formula in f64, never tuned, and the same in NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilewright.device import Device
from tilewright.epilogue import Epilogue
from tilewright.kernels.family import Blueprint, Config, Family, Launch, Param, Rule
from tilewright.problem import Problem

if TYPE_CHECKING:
    import numpy as np

    F64 = np.ndarray[Any, np.dtype[np.float64]]

_LARGE = 1 << 31


def spread(device: Device, items: int) -> tuple[int, dict[str, int]]:
    """Return how many blocks an untuned kernel gets, and the defines of ``loop.h``."""
    cpu = device.lanes != 32
    threads = 1 if cpu else 256
    blocks = max(1, min(device.units * (8 if cpu else 16), -(-items // threads)))
    return blocks, dict(MAX_THREADS=threads, MIN_BLOCKS=1, THREADS_ALL=blocks * threads, CHUNKED=int(cpu))


def sizes(problem: Problem) -> dict[str, int]:
    """Return the defines that spell out a problem to the untuned kernels."""
    pr = problem
    return dict(
        SIZE_N=pr.n, SIZE_C=pr.c, SIZE_H=pr.h, SIZE_W=pr.w, SIZE_K=pr.k, SIZE_R=pr.r, SIZE_S=pr.s,
        SIZE_P=pr.p, SIZE_Q=pr.q, CG=pr.cg, KG=pr.kg, GROUP_COUNT=pr.groups,
        PAD_TOP=pr.pad[0], PAD_BOTTOM=pr.pad[1], PAD_LEFT=pr.pad[2], PAD_RIGHT=pr.pad[3],
        STRIDE_H=pr.stride[0], STRIDE_W=pr.stride[1],
        DILATION_H=pr.dilation[0], DILATION_W=pr.dilation[1],
        X_NHWC=int(pr.layout_in == "nhwc"), Y_NHWC=int(pr.layout_out == "nhwc"),
        **pr.epilogue.defines(),
        OFFSET64=int(max(pr.x_bytes, pr.y_bytes, pr.w_bytes) >= _LARGE),
    )  # fmt: skip


def problem_of(defines: dict[str, int]) -> Problem:
    """Return the problem that ``sizes`` spelt out."""
    d = defines
    return Problem(
        n=d["SIZE_N"], c=d["SIZE_C"], h=d["SIZE_H"], w=d["SIZE_W"], k=d["SIZE_K"], r=d["SIZE_R"],
        s=d["SIZE_S"], pad=(d["PAD_TOP"], d["PAD_BOTTOM"], d["PAD_LEFT"], d["PAD_RIGHT"]),
        stride=(d["STRIDE_H"], d["STRIDE_W"]), dilation=(d["DILATION_H"], d["DILATION_W"]),
        groups=d["GROUP_COUNT"], layout_in="nhwc" if d["X_NHWC"] else "nchw",
        layout_out="nhwc" if d["Y_NHWC"] else "nchw",
        epilogue=Epilogue.of(d),
    )  # fmt: skip


class Reference(Family):
    """f64 sums straight from the formula; takes every problem, on every device."""

    name = "reference"
    tunable = False

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Take everything."""
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return one parameter with one value: a config must have something to print."""
        return (Param("v", (1,), "nothing to choose"),)

    def rules(self) -> tuple[Rule, ...]:
        """Return no rules."""
        return ()

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Lay out the one launch that writes y in f32."""
        full = reference_f64(problem, device)
        main = replace(full.launches[0], kernel="reference", args=("x", "w", "bias", "y"))
        return replace(full, launches=(main,))

    def chain(self, problem: Problem, config: Config) -> int:
        """Return 1: f64 sums round once, to f32, as far as f32 can tell."""
        return 1


def reference_f64(problem: Problem, device: Device) -> Blueprint:
    """Return the launch that writes y and conv(|x|, |w|) + |bias|, both f64, in y's layout.

    Its buffers are x, w (kcrs), bias, ref, size.
    """
    strip = 8 if device.lanes != 32 else 1
    items = problem.n * problem.k * problem.p * -(-problem.q // strip)
    blocks, defines = spread(device, items)
    threads = defines["MAX_THREADS"]
    launch = Launch("reference_f64", (blocks, 1, 1), (threads, 1, 1), ("x", "w", "bias", "ref", "size"))
    return Blueprint(
        source="reference.cu",
        defines=tuple((sizes(problem) | defines | dict(STRIP=strip)).items()),
        launches=(launch,),
        packed_bytes=problem.w_bytes,
    )


def numpy_conv(problem: Problem, x: Any, w: Any, bias: Any = None) -> tuple[F64, F64]:
    """Compute y and conv(|x|, |w|) + |bias| with NumPy in f64.

    Args:
        problem: the layer; its epilogue is applied to y.
        x: input of shape ``problem.x_shape``.
        w: filter of shape ``problem.w_shape`` (kcrs).
        bias: shape (K,), where the problem has one.

    Returns:
        Two f64 arrays of shape ``problem.y_shape``.
    """
    import numpy as np

    pr = problem
    x, w = np.asarray(x, np.float64).reshape(pr.x_shape), np.asarray(w, np.float64).reshape(pr.w_shape)
    with np.errstate(all="ignore"):
        y, size = _conv(pr, x, w), _conv(pr, np.abs(x), np.abs(w))
        if pr.epilogue.bias:
            b = np.asarray(bias, np.float64).reshape(1, pr.k, 1, 1)
            y, size = y + b, size + np.abs(b)
        if pr.epilogue.act == "relu":
            y = np.where(y < 0, 0.0, y)
    if pr.layout_out == "nhwc":
        y, size = y.transpose(0, 2, 3, 1), size.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(y), np.ascontiguousarray(size)


def _conv(pr: Problem, x: F64, w: F64) -> F64:
    """Sum one matrix product per filter tap; x in its own layout, the result nchw."""
    import numpy as np

    x = x.transpose(0, 3, 1, 2) if pr.layout_in == "nhwc" else x
    padded = np.pad(x, ((0, 0), (0, 0), pr.pad[:2], pr.pad[2:]))
    y = np.zeros((pr.n, pr.groups, pr.kg, pr.p * pr.q))
    for r in range(pr.r):
        for s in range(pr.s):
            top, left = r * pr.dilation[0], s * pr.dilation[1]
            rows = slice(top, top + (pr.p - 1) * pr.stride[0] + 1, pr.stride[0])
            columns = slice(left, left + (pr.q - 1) * pr.stride[1] + 1, pr.stride[1])
            part = padded[:, :, rows, columns].reshape(pr.n, pr.groups, pr.cg, pr.p * pr.q)
            y += w[:, :, r, s].reshape(1, pr.groups, pr.kg, pr.cg) @ part
    return y.reshape(pr.n, pr.k, pr.p, pr.q)
