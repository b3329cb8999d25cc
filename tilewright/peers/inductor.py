"""torch.compile with max-autotune: Inductor fuses the epilogue and may write the convolution in Triton."""

from __future__ import annotations

from functools import partial

from tilewright.checking.inputs import Inputs
from tilewright.device import Device
from tilewright.peers.base import Contestant, Setting, load, needs, symmetric
from tilewright.peers.pytorch import PyTorch, contestant, no_cuda_torch
from tilewright.problem import Problem

# "max-autotune" without CUDA graphs: those copy x into their own buffer in each run, and our protocol records
# a graph itself.
_MODE = "max-autotune-no-cudagraphs"


class Inductor(PyTorch):
    """The whole layer compiled at once, in both layouts; slow to compile, so only if named."""

    name = "inductor"
    usual = False

    def absent(self, device: Device) -> str | None:
        return no_cuda_torch(self.name) or needs(self.name, ("triton", "triton"))

    def _contestant(self, problem: Problem, inputs: Inputs, setting: Setting, layout: str) -> Contestant:
        torch = load("torch")
        torch.compiler.reset()  # one layer's code at a time
        apart = "" if symmetric(problem) else ", padded by it"
        detail = f"PyTorch {torch.__version__} torch.compile {_MODE}, {layout}{apart}"
        compiled = partial(torch.compile, mode=_MODE, dynamic=False)
        return contestant(self.name, problem, inputs, setting, layout, detail, compiled)
