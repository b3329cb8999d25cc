"""torch.compile with max-autotune: Inductor fuses the epilogue and may write the convolution in Triton."""

from __future__ import annotations

from functools import partial
from typing import Any

from tilewright.checking.inputs import Inputs
from tilewright.device import Device
from tilewright.peers.base import Contestant, Offer, Peer, Setting, as_output, load, needs, symmetric
from tilewright.peers.gpu import Gpu
from tilewright.peers.pytorch import as_asked, convolution, no_cuda_torch
from tilewright.problem import Problem

# As "max-autotune", but for CUDA graphs: those copy x into a buffer of their own at each run, and our
# protocol records a graph itself.
_MODE = "max-autotune-no-cudagraphs"


class Inductor(Peer):
    """The whole layer compiled at once, in both layouts; slow to compile, so only when asked for."""

    name = "inductor"
    backends = ("cuda",)
    usual = False

    def absent(self, device: Device) -> str | None:
        return no_cuda_torch(self.name) or needs(self.name, ("triton", "triton"))

    def offer(self, problem: Problem, inputs: Inputs, setting: Setting) -> Offer:
        as_asked(problem)
        load("torch").backends.cudnn.benchmark = True
        offer = Offer()
        offer.attempt_layouts("inductor", partial(_contestant, problem, inputs, setting))
        return offer


def _contestant(problem: Problem, inputs: Inputs, setting: Setting, layout: str) -> Contestant:
    torch, gpu = load("torch"), Gpu(setting)
    placed = gpu.place(problem, inputs, layout)
    fused = ("bias",) if problem.epilogue.alpha == 1.0 else ()
    layer, left = convolution(problem, placed, fused), gpu.eager(problem, placed, fused)

    def layer_and_epilogue(x: Any) -> Any:
        return left(layer(x))

    torch.compiler.reset()  # one layer's code at a time
    compiled = torch.compile(layer_and_epilogue, mode=_MODE, dynamic=False)
    last: list[Any] = [None]

    def run() -> None:
        with torch.inference_mode(), gpu.on_stream():
            last[0] = compiled(placed.x)

    def output() -> Any:
        return as_output(gpu.get(last[0]), problem)

    run()
    apart = "" if symmetric(problem) else ", padded by it"
    detail = f"PyTorch {torch.__version__} torch.compile {_MODE}, {layout}{apart}"
    pack_us = gpu.pack_us(setting, placed, layout)
    convert_us = gpu.convert_us(problem, setting, layout, placed, last[0])
    return Contestant(
        "inductor", f"inductor {layout}", detail, layout, run, output, pack_us=pack_us, convert_us=convert_us
    )
