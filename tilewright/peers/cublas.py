"""cuBLAS, through torch.matmul: a 1x1 convolution or a classifier layer is a matrix product."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

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
)
from tilewright.peers.gpu import Gpu
from tilewright.peers.pytorch import no_cuda_torch, strict_f32
from tilewright.problem import Problem
from tilewright.tuning.inputs import Inputs


class Cublas(Peer):
    """One matrix product, for layers that are one."""

    name = "cublas"
    backends = ("cuda",)

    def absent(self, device: Device) -> str | None:
        return no_cuda_torch(self.name)

    def offer(self, problem: Problem, inputs: Inputs, setting: Setting) -> Offer:
        offer = Offer()
        if problem.groups != 1 or any(problem.pad) or not (_pointwise(problem) or _classifier(problem)):
            offer.skipped["cublas"] = "the layer is no single matrix product"
            return offer
        strict_f32()
        offer.attempt_layouts("cublas", partial(_contestant, problem, inputs, setting))
        return offer


def _pointwise(problem: Problem) -> bool:
    return (problem.r, problem.s, problem.stride) == (1, 1, (1, 1))


def _classifier(problem: Problem) -> bool:
    return (problem.r, problem.s, problem.dilation) == (problem.h, problem.w, (1, 1))


def _contestant(problem: Problem, inputs: Inputs, setting: Setting, layout: str) -> Contestant:
    torch, gpu = load("torch"), Gpu(setting)
    x = gpu.put(as_nchw(inputs.x, problem.layout_in), layout)
    bias = bias_of(problem, inputs)
    shift = None if bias is None else gpu.put(bias.reshape(1, -1, 1, 1))
    w = gpu.put(inputs.w, layout)
    shape = (problem.n, problem.k, problem.p, problem.q)
    y = gpu.put(_nan(shape), layout)
    product = _product(torch, problem, layout, x, w, y)

    def run() -> None:
        with torch.inference_mode(), gpu.on_stream():
            product()
        if problem.epilogue:
            gpu.bias_relu(y, shift, problem.epilogue.act == "relu")

    def output() -> Any:
        return as_output(gpu.get(y), problem)

    pack_us = 0.0 if layout == "nchw" else setting.quick_us(gpu.copying(gpu.put(inputs.w), w))
    apart = ", epilogue apart" if problem.epilogue else ""
    detail = f"cuBLAS (PyTorch {torch.__version__}) matmul, {layout}{apart}"
    convert_us = gpu.convert_us(problem, setting, layout, x, y)
    return Contestant(
        "cublas", f"cublas {layout}", detail, layout, run, output, pack_us=pack_us, convert_us=convert_us
    )


def _product(torch: Any, problem: Problem, layout: str, x: Any, w: Any, y: Any) -> Callable[[], Any]:
    """Return the product that writes y: pixels are rows in nhwc, columns in nchw; a classifier has one."""
    if not _pointwise(problem) or layout == "nhwc":
        pixels = problem.n * problem.p * problem.q
        rows = _flat(x, layout).reshape(pixels, -1)
        filters = _flat(w, layout).reshape(problem.k, -1).t()
        target = _flat(y, layout).view(pixels, problem.k)
        return lambda: torch.matmul(rows, filters, out=target)
    columns = x.reshape(problem.n, problem.c, -1)
    filters = w.reshape(problem.k, problem.c)
    target = y.view(problem.n, problem.k, -1)
    if problem.n == 1:
        return lambda: torch.matmul(filters, columns[0], out=target[0])
    return lambda: torch.matmul(filters, columns, out=target)


def _flat(array: Any, layout: str) -> Any:
    """View an array in the order of its memory."""
    return array if layout == "nchw" else array.permute(0, 2, 3, 1)


def _nan(shape: tuple[int, ...]) -> Any:
    return np.full(shape, np.nan, np.float32)
