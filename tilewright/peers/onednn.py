"""oneDNN, through PyTorch on the CPU: plain, channels-last and prepacked; the fastest counts.

A prepacked filter includes alpha, and oneDNN fuses bias, residual and activation. Otherwise PyTorch does the
steps of the epilogue itself; also f64, and f16 if the CPU has no arithmetic for it.

PyTorch's OpenMP threads spin after each parallel region, by default for several ms. They take cores from the
next contestant, and if anything else needs a core they wait for each other: a layer of 0.6 ms took 12 to
40 ms on 4 cores beside one busy process. With a spin of 20,000 rounds (about 0.3 ms, longer than the gaps
inside a layer, shorter than the flush between contestants) it took 0.5 to 5 ms there, and no longer than by
default on idle cores. So that is set, unless the user has chosen a value.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.arrays.use import on_host
from tilewright.checking.inputs import Inputs
from tilewright.device import Device
from tilewright.errors import TORCH_CPU, count
from tilewright.peers.base import (
    Array,
    Contestant,
    Offer,
    Peer,
    Setting,
    as_nchw,
    as_output,
    foreign,
    load,
    needs,
    symmetric,
    unknown,
    unwritten,
    wall_us,
)
from tilewright.peers.eager import Step, eager, to_tensor, told
from tilewright.problem import Problem
from tilewright.runtime.base import Blocking, Run

_SPINS = "GOMP_SPINCOUNT"
_BLOCK = 16  # channels in a block of oneDNN's layouts on AVX-512; elsewhere a divisor of this
_FUSED = ("alpha", "bias")  # always, with a prepacked filter
_MAX_IDENTITY = 4096  # most channels for which an identity filter makes the blocked input


class Onednn(Peer):
    """PyTorch's CPU convolutions, which are oneDNN's."""

    name = "onednn"
    backends = ("opencl", "numpy")

    def absent(self, device: Device) -> str | None:
        with _spinning_briefly():
            reason = needs(self.name, ("torch", TORCH_CPU))
        if reason is None and not load("torch").backends.mkldnn.is_available():
            return f"{self.name}: this build of PyTorch has no oneDNN; install one that has"
        return reason

    def offer(self, problem: Problem, inputs: Inputs, setting: Setting) -> Offer:
        layer = _Layer(problem, inputs, setting)
        offer = Offer()
        for layout in ("nchw", "nhwc"):
            offer.attempt(f"onednn {layout}", lambda at=layout: layer.plain(at))  # type: ignore[misc]
            offer.attempt(f"onednn {layout} packed", lambda at=layout: layer.packed(at))  # type: ignore[misc]
        offer.attempt("onednn blocked", layer.blocked)
        return offer


class _Layer:
    """One problem's tensors and the ways to run it."""

    def __init__(self, problem: Problem, inputs: Inputs, setting: Setting) -> None:
        torch = self.torch = load("torch")
        torch.set_num_threads(setting.threads)
        self.problem = problem
        self.setting = setting
        self.x, self.w = to_tensor(as_nchw(inputs.x, problem.layout_in)), to_tensor(inputs.w)
        self.bias = to_tensor(inputs.bias) if problem.epilogue.bias else None
        self.z = None if inputs.z is None else to_tensor(as_nchw(inputs.z, problem.layout_out))
        self.little = torch.zeros(1 << 18)
        self.formats = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
        top, bottom, left, right = problem.pad
        self.margins = (left, right, top, bottom)
        self.pad = [top, left] if symmetric(problem) else [0, 0]
        self.stride, self.dilation = list(problem.stride), list(problem.dilation)

    def padded(self, x: Any) -> Any:
        """Pad separately, inside the run, if F.conv2d cannot express the padding."""
        return x if symmetric(self.problem) else self.torch.nn.functional.pad(x, self.margins)

    def plain(self, layout: str) -> Contestant:
        """F.conv2d as most users call it."""
        form, F = self.formats[layout], self.torch.nn.functional
        x = self.x.contiguous(memory_format=form)
        w = self.w.contiguous(memory_format=form)
        fused = ("bias",) if self.problem.epilogue.alpha == 1.0 else ()
        shape = (self.bias if fused else None, self.stride, self.pad, self.dilation, self.problem.groups)
        left = self.eager(fused, form)

        def conv() -> Any:
            return left(F.conv2d(self.padded(x), w, *shape))

        pack_us = wall_us(lambda: self.w.contiguous(memory_format=form)) if layout == "nhwc" else 0.0
        return self.contestant(f"onednn {layout}", "conv2d", layout, conv, pack_us, fused)

    def packed(self, layout: str) -> Contestant:
        """The filter in oneDNN's own layout, alpha included; everything fused that PyTorch allows."""
        form, fused = self.formats[layout], _FUSED + self.more_fused()
        x = self.x.contiguous(memory_format=form)
        w, pack_us = self.pack(self.padded(x))
        z = None if self.z is None else self.z.contiguous(memory_format=form)
        left = self.eager(fused, form)

        def conv() -> Any:
            return left(self.pointwise(self.padded(x), w, z))

        return self.contestant(f"onednn {layout} packed", "prepacked filter", layout, conv, pack_us, fused)

    def blocked(self) -> Contestant:
        """Input, filter and output in oneDNN's blocked layout, as between two layers of a network."""
        torch, problem = self.torch, self.problem
        if not symmetric(problem) or problem.c % _BLOCK or problem.c > _MAX_IDENTITY:
            raise ValueError(f"needs symmetric padding and a multiple of {_BLOCK} channels")
        eye = torch.eye(problem.c, dtype=self.x.dtype).view(problem.c, problem.c, 1, 1).to_mkldnn()
        with torch.inference_mode(False), torch.no_grad():
            # Exactly x, as the output of a layer whose filter is the identity.
            plain = self.x.contiguous().to_mkldnn()
            x = torch.mkldnn_convolution(plain, eye, None, [0, 0], [1, 1], [1, 1], 1)
        w, pack_us = self.pack(self.x)
        bias = None if self.bias is None else self.bias.to_mkldnn()
        z = None if self.z is None else self.z.contiguous().to_mkldnn()
        where = (self.pad, self.stride, self.dilation, problem.groups)
        left = eager(problem.epilogue, None, z, _FUSED)

        def conv() -> Any:
            return left(torch.mkldnn_convolution(x, w, bias, *where))

        made = self.contestant("onednn blocked", "prepacked filter", "blocked", conv, pack_us, _FUSED)
        y = conv()

        def convert() -> None:  # a reorder costs the same both ways: blocked to plain stands for its inverse
            x.to_dense()
            y.to_dense()

        made.convert_us = self.setting.quick_us(Blocking(convert, self.wake))
        return made

    def eager(self, done: tuple[str, ...], form: Any) -> Step:
        """Return the remaining steps of the epilogue, on tensors of a layout."""
        bias = None if self.bias is None else self.bias.view(1, -1, 1, 1)
        z = None if self.z is None else self.z.contiguous(memory_format=form)
        return eager(self.problem.epilogue, bias, z, done)

    def more_fused(self) -> tuple[str, ...]:
        """Return the other fused steps: an activation, or a residual of factor 1 and its ReLU."""
        e = self.problem.epilogue
        if not e.add:
            return ("act",)
        return ("add", "act") if e.beta == 1.0 and e.act in ("", "relu") else ()

    def pointwise(self, x: Any, w: Any, z: Any) -> Any:
        """Convolve with a reordered filter and the fused steps."""
        where = (self.pad, self.stride, self.dilation, self.problem.groups)
        e, more = self.problem.epilogue, self.more_fused()
        convolve = self.torch.ops.mkldnn._convolution_pointwise
        if "add" in more:
            return convolve.binary(x, z, w, self.bias, *where, "add", 1.0, e.act or None, [], "")
        known = {
            "": ("none", []), "relu": ("relu", []), "leaky": ("leaky_relu", [e.low]), "silu": ("swish", []),
            "clamp": ("hardtanh", [e.low, e.high]),
        }  # fmt: skip
        fused = e.act if "act" in more else ""
        if fused not in known:
            raise unknown(e, "oneDNN")
        return convolve(x, w, self.bias, *where, *known[fused], "")

    def pack(self, x: Any) -> tuple[Any, float]:
        """Reorder the filter, with alpha, for this input; return it and the time in us."""
        made: list[Any] = []
        reorder, alpha = self.torch.ops.aten.mkldnn_reorder_conv2d_weight, self.problem.epilogue.alpha
        rest: tuple[Any, ...] = (self.pad, self.stride, self.dilation, self.problem.groups, list(x.shape))

        def run() -> None:
            w = self.w if alpha == 1.0 else self.w * alpha
            made.append(reorder(w.to_mkldnn(), *rest))

        pack_us = wall_us(run)
        return made[0], pack_us

    def contestant(
        self, name: str, what: str, layout: str, conv: Callable[[], Any], pack_us: float,
        fused: tuple[str, ...],
    ) -> Contestant:  # fmt: skip
        """Make a contestant of a function that returns y; its last result is kept for the check."""
        torch, problem = self.torch, self.problem
        last: list[Any] = [None]

        def run() -> None:
            with torch.no_grad():
                last[0] = conv()

        def output() -> Array:
            y = last[0].to_dense() if last[0].is_mkldnn else last[0]
            return as_output(on_host(y), problem)

        apart = ("" if symmetric(problem) else ", padded apart") + told(problem.epilogue, fused)
        threads = count(self.setting.threads, "thread")
        detail = f"PyTorch {torch.__version__} {what}, {layout}{apart}, {threads}"
        convert_us = 0.0 if layout == "blocked" else self.convert_us(layout)
        return Contestant(
            "onednn", name, detail, layout, Blocking(run, self.wake), output,
            pack_us=pack_us, convert_us=convert_us,
        )  # fmt: skip

    def wake(self) -> None:
        """Wake PyTorch's threads with a little parallel work; they spin for a while after it."""
        self.little.add_(1.0)

    def convert_us(self, layout: str) -> float:
        """Time to convert x, z and y where the problem has another layout."""
        form, theirs = self.formats[layout], self.formats[self.problem.layout_out]
        x_too, y_too = foreign(self.problem, layout)
        y = to_tensor(unwritten(self.problem)).contiguous(memory_format=form)
        copies = [_copy(self.x, form)] if x_too else []
        copies += [_copy(y, theirs)] if y_too else []
        copies += [_copy(self.z, form)] if y_too and self.z is not None else []
        return sum(self.setting.quick_us(Blocking(copy, self.wake)) for copy in copies)


@contextmanager
def _spinning_briefly() -> Iterator[None]:
    """Limit the spinning of PyTorch's OpenMP threads; PyTorch reads the limit once, when it is imported."""
    if "torch" in sys.modules or {"OMP_WAIT_POLICY", _SPINS} & os.environ.keys():
        yield
        return
    os.environ[_SPINS] = "20000"
    try:
        yield
    finally:
        os.environ.pop(_SPINS, None)


def _copy(tensor: Any, form: Any) -> Run:
    def copy() -> None:
        tensor.contiguous(memory_format=form)

    return copy
