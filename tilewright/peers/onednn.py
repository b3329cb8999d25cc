"""oneDNN, through PyTorch on the CPU: plain, channels-last and prepacked; the fastest counts.

PyTorch's OpenMP threads spin after each parallel region, by default for several ms. They then take cores
from whoever runs next, and where anything else needs a core they wait for each other: a layer of 0.6 ms took
12 to 40 ms on 4 cores beside one busy process. With a spin of 20,000 rounds (about 0.3 ms, longer than the
gaps inside a layer, shorter than the flush between contestants) it took 0.5 to 5 ms there, and no longer
than by default on quiet cores. So that is set, unless the user has chosen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from tilewright.device import Device
from tilewright.peers.base import (
    Contestant,
    Offer,
    Peer,
    Run,
    Setting,
    as_nchw,
    as_output,
    bias_of,
    foreign,
    load,
    needs,
    symmetric,
    wall_us,
)
from tilewright.problem import Problem
from tilewright.runtime.base import Blocking
from tilewright.tuning.inputs import Inputs

_BLOCK = 16  # oneDNN's blocked layouts hold this many channels together on AVX-512, or divide it
_MAX_IDENTITY = 4096  # most channels for which the blocked input is made by an identity filter


class Onednn(Peer):
    """PyTorch's CPU convolutions, which are oneDNN's."""

    name = "onednn"
    backends = ("opencl", "numpy")

    def absent(self, device: Device) -> str | None:
        _spin_briefly()
        reason = needs(self.name, ("torch", "torch --index-url https://download.pytorch.org/whl/cpu"))
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
        self.x = torch.from_numpy(as_nchw(inputs.x, problem.layout_in))
        self.w = torch.from_numpy(inputs.w)
        bias = bias_of(problem, inputs)
        self.bias = None if bias is None else torch.from_numpy(bias)
        self.relu = problem.epilogue.act == "relu"
        self.little = torch.zeros(1 << 18)
        self.formats = {"nchw": torch.contiguous_format, "nhwc": torch.channels_last}
        top, bottom, left, right = problem.pad
        self.margins = (left, right, top, bottom)
        self.pad = [top, left] if symmetric(problem) else [0, 0]
        self.stride, self.dilation = list(problem.stride), list(problem.dilation)

    def padded(self, x: Any) -> Any:
        """Pad apart, inside the run, where PyTorch has no word for the padding."""
        return x if symmetric(self.problem) else self.torch.nn.functional.pad(x, self.margins)

    def plain(self, layout: str) -> Contestant:
        """F.conv2d as most people call it."""
        form, F = self.formats[layout], self.torch.nn.functional
        x = self.x.contiguous(memory_format=form)
        w = self.w.contiguous(memory_format=form)
        shape = (self.bias, self.stride, self.pad, self.dilation, self.problem.groups)

        def conv() -> Any:
            y = F.conv2d(self.padded(x), w, *shape)
            return y.relu_() if self.relu else y

        pack_us = wall_us(lambda: self.w.contiguous(memory_format=form)) if layout == "nhwc" else 0.0
        return self.contestant(f"onednn {layout}", "conv2d", layout, conv, pack_us)

    def packed(self, layout: str) -> Contestant:
        """The filter in oneDNN's own layout, the activation fused."""
        x = self.x.contiguous(memory_format=self.formats[layout])
        w, pack_us = self.pack(self.padded(x))

        def conv() -> Any:
            return self.pointwise(self.padded(x), w)

        return self.contestant(f"onednn {layout} packed", "prepacked filter", layout, conv, pack_us)

    def blocked(self) -> Contestant:
        """Input, filter and output all in oneDNN's blocked layout, as between two layers of a network."""
        torch, problem = self.torch, self.problem
        if not symmetric(problem) or problem.c % _BLOCK or problem.c > _MAX_IDENTITY:
            raise ValueError(f"needs symmetric padding and a multiple of {_BLOCK} channels")
        eye = torch.eye(problem.c).view(problem.c, problem.c, 1, 1).to_mkldnn()
        with torch.inference_mode(False), torch.no_grad():
            # x itself, exactly, as the output of a layer whose filter is the identity.
            plain = self.x.contiguous().to_mkldnn()
            x = torch.mkldnn_convolution(plain, eye, None, [0, 0], [1, 1], [1, 1], 1)
        w, pack_us = self.pack(self.x)
        bias = None if self.bias is None else self.bias.to_mkldnn()
        where = (self.pad, self.stride, self.dilation, problem.groups)

        def conv() -> Any:
            y = torch.mkldnn_convolution(x, w, bias, *where)
            return y.relu_() if self.relu else y

        made = self.contestant("onednn blocked", "prepacked filter", "blocked", conv, pack_us)
        y = conv()

        def convert() -> None:  # a reorder costs the same both ways: blocked to plain stands for its inverse
            x.to_dense()
            y.to_dense()

        made.convert_us = self.setting.quick_us(convert)
        return made

    def pointwise(self, x: Any, w: Any) -> Any:
        """Convolve with a reordered filter, the activation fused."""
        where = (self.pad, self.stride, self.dilation, self.problem.groups)
        activation = "relu" if self.relu else "none"
        return self.torch.ops.mkldnn._convolution_pointwise(x, w, self.bias, *where, activation, [], "")

    def pack(self, x: Any) -> tuple[Any, float]:
        """Reorder the filter for this input; return it and the time taken."""
        made: list[Any] = []
        reorder = self.torch.ops.aten.mkldnn_reorder_conv2d_weight
        rest: tuple[Any, ...] = (self.pad, self.stride, self.dilation, self.problem.groups, list(x.shape))
        pack_us = wall_us(lambda: made.append(reorder(self.w.to_mkldnn(), *rest)))
        return made[0], pack_us

    def contestant(
        self, name: str, what: str, layout: str, conv: Callable[[], Any], pack_us: float
    ) -> Contestant:
        """Wrap a function that returns y; its last result is kept for the check."""
        torch, problem = self.torch, self.problem
        last: list[Any] = [None]

        def run() -> None:
            with torch.no_grad():
                last[0] = conv()

        def output() -> Any:
            y = last[0].to_dense() if last[0].is_mkldnn else last[0]
            return as_output(y.numpy(), problem)

        apart = "" if symmetric(problem) else ", padded apart"
        detail = f"PyTorch {torch.__version__} {what}, {layout}{apart}, {self.setting.threads} threads"
        convert_us = 0.0 if layout == "blocked" else self.convert_us(layout)
        return Contestant(
            "onednn", name, detail, layout, Blocking(run, self.wake), output,
            pack_us=pack_us, convert_us=convert_us,
        )  # fmt: skip

    def wake(self) -> None:
        """Wake PyTorch's threads with a little parallel work; they spin for a while after it."""
        self.little.add_(1.0)

    def convert_us(self, layout: str) -> float:
        """Time to convert x and y where the problem has another layout."""
        form, total = self.formats[layout], 0.0
        x_too, y_too = foreign(self.problem, layout)
        if x_too:
            total += self.setting.quick_us(_copy(self.x, form))
        if y_too:
            shape = (self.problem.n, self.problem.k, self.problem.p, self.problem.q)
            y = self.torch.zeros(shape).contiguous(memory_format=form)
            total += self.setting.quick_us(_copy(y, self.formats[self.problem.layout_out]))
        return total


def _spin_briefly() -> None:
    """Bound the spinning of OpenMP threads; it counts only if PyTorch is not imported yet."""
    if "torch" not in sys.modules and "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "20000")


def _copy(tensor: Any, form: Any) -> Run:
    def copy() -> None:
        tensor.contiguous(memory_format=form)

    return copy
