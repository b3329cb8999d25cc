"""PyTorch on CUDA with cudnn.benchmark, in both layouts; the epilogue as eager operations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilewright.checking.inputs import Inputs
from tilewright.device import Device
from tilewright.peers.base import Contestant, Offer, Peer, Setting, load, needs, symmetric
from tilewright.peers.eager import told
from tilewright.peers.gpu import GpuInputs, gpu_arrays
from tilewright.problem import Problem

Forward = Callable[[Any], Any]  # from x to the result


def no_cuda_torch(peer: str) -> str | None:
    """Say why PyTorch cannot use a GPU; None if it can."""
    reason = needs(peer, ("torch", "torch"))
    if reason is None and not load("torch").cuda.is_available():
        return f"{peer}: PyTorch {load('torch').__version__} sees no GPU; install a CUDA build of torch"
    return reason


def as_asked(problem: Problem) -> None:
    """Make PyTorch multiply in the problem's precision and add in f32 or wider, for the whole process.

    TF32 is allowed only if the problem asks for it; partial sums of matrix products in f16 or bf16 never.
    """
    torch = load("torch")
    torch.backends.cudnn.allow_tf32 = problem.math == "tf32"
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = problem.math == "tf32"
    matmul.allow_fp16_reduced_precision_reduction = False
    matmul.allow_bf16_reduced_precision_reduction = False


def tf32(problem: Problem) -> str:
    """Return the part of a ``detail`` that says that TF32 is allowed."""
    return ", TF32 allowed" if problem.math == "tf32" else ""


class PyTorch(Peer):
    """F.conv2d, which picks the fastest cuDNN engine that it finds, or its own kernel."""

    name = "pytorch"
    backends = ("cuda",)

    def absent(self, device: Device) -> str | None:
        return no_cuda_torch(self.name)

    def offer(self, problem: Problem, inputs: Inputs, setting: Setting) -> Offer:
        as_asked(problem)
        load("torch").backends.cudnn.benchmark = True
        offer = Offer()
        offer.attempt_layouts(self.name, partial(self._contestant, problem, inputs, setting))
        return offer

    def _contestant(self, problem: Problem, inputs: Inputs, setting: Setting, layout: str) -> Contestant:
        what = f"PyTorch {load('torch').__version__} conv2d, cudnn.benchmark, {layout}{tf32(problem)}"
        detail = what + ("" if symmetric(problem) else ", padded apart")
        detail += told(problem.epilogue, fused(problem))
        return contestant(self.name, problem, inputs, setting, layout, detail)


def fused(problem: Problem) -> tuple[str, ...]:
    """Return the steps of the epilogue that F.conv2d includes."""
    return ("bias",) if problem.epilogue.alpha == 1.0 else ()


def contestant(
    peer: str, problem: Problem, inputs: Inputs, setting: Setting, layout: str, detail: str,
    compiled: Callable[[Forward], Forward] = lambda layer: layer,
) -> Contestant:  # fmt: skip
    """Make a contestant of F.conv2d and the other steps, maybe ``compiled`` into one; run it once."""
    torch, gpu = load("torch"), gpu_arrays(setting)
    placed = gpu.place(problem, inputs, layout)
    layer = convolution(problem, placed, fused(problem))
    left = gpu.eager(problem, placed, fused(problem))
    all_steps = compiled(lambda x: left(layer(x)))
    last: list[Any] = [None]

    def run() -> None:
        with torch.inference_mode(), gpu.on_stream():
            last[0] = all_steps(placed.x)

    return gpu.contestant(peer, f"{peer} {layout}", detail, problem, layout, placed, run, last)


def convolution(problem: Problem, placed: GpuInputs, fused: tuple[str, ...]) -> Forward:
    """Return F.conv2d of x, with the bias if that is ``fused``; it pads separately if needed."""
    functional = load("torch").nn.functional
    top, bottom, left, right = problem.pad
    pad = (top, left) if symmetric(problem) else (0, 0)
    bias = placed.bias.reshape(-1) if "bias" in fused and placed.bias is not None else None
    rest = (placed.w, bias, problem.stride, pad, problem.dilation, problem.groups)

    def layer(x: Any) -> Any:
        if not symmetric(problem):
            x = functional.pad(x, (left, right, top, bottom))
        return functional.conv2d(x, *rest)

    return layer
