"""PyTorch on CUDA with cudnn.benchmark, in both layouts."""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.device import Device
from tilewright.peers.base import (
    Contestant,
    Offer,
    Peer,
    Setting,
    as_nchw,
    as_output,
    bias_of,
    load,
    needs,
    symmetric,
)
from tilewright.peers.gpu import Gpu
from tilewright.problem import Problem
from tilewright.tuning.inputs import Inputs


def no_cuda_torch(peer: str) -> str | None:
    """Say why PyTorch cannot use a GPU; None if it can."""
    reason = needs(peer, ("torch", "torch"))
    if reason is None and not load("torch").cuda.is_available():
        return f"{peer}: PyTorch {load('torch').__version__} sees no GPU; install a CUDA build of torch"
    return reason


def strict_f32() -> None:
    """Switch TF32 off in PyTorch, for the whole process: a strict contestant multiplies in f32."""
    torch = load("torch")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False


class PyTorch(Peer):
    """F.conv2d, which picks the fastest cuDNN engine that it finds, or a kernel of its own."""

    name = "pytorch"
    backends = ("cuda",)

    def absent(self, device: Device) -> str | None:
        return no_cuda_torch(self.name)

    def offer(self, problem: Problem, inputs: Inputs, setting: Setting) -> Offer:
        strict_f32()
        load("torch").backends.cudnn.benchmark = True
        offer = Offer()
        offer.attempt_layouts("pytorch", partial(_contestant, problem, inputs, setting))
        return offer


def _contestant(problem: Problem, inputs: Inputs, setting: Setting, layout: str) -> Contestant:
    torch, gpu = load("torch"), Gpu(setting)
    functional = torch.nn.functional
    x = gpu.put(as_nchw(inputs.x, problem.layout_in), layout)
    w = gpu.put(inputs.w, layout)
    bias = bias_of(problem, inputs)
    shift = None if bias is None else gpu.put(bias)
    top, bottom, left, right = problem.pad
    pad = (top, left) if symmetric(problem) else (0, 0)
    rest = (problem.stride, pad, problem.dilation, problem.groups)
    last: list[Any] = [None]

    def run() -> None:
        with torch.inference_mode(), gpu.on_stream():
            padded = x if symmetric(problem) else functional.pad(x, (left, right, top, bottom))
            y = functional.conv2d(padded, w, shift, *rest)
            last[0] = y.relu_() if problem.epilogue.act == "relu" else y

    def output() -> Any:
        return as_output(gpu.get(last[0]), problem)

    run()
    pack_us = 0.0 if layout == "nchw" else setting.quick_us(gpu.copying(gpu.put(inputs.w), w))
    apart = "" if symmetric(problem) else ", padded apart"
    detail = f"PyTorch {torch.__version__} conv2d, cudnn.benchmark, {layout}{apart}"
    convert_us = gpu.convert_us(problem, setting, layout, x, last[0])
    return Contestant(
        "pytorch", f"pytorch {layout}", detail, layout, run, output, pack_us=pack_us, convert_us=convert_us
    )
