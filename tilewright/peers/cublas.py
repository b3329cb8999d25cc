"""cuBLAS, through PyTorch's matrix products: a 1x1 convolution or a classifier layer is one of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilewright.checking.inputs import Inputs
from tilewright.device import Device
from tilewright.peers.base import Contestant, Offer, Peer, Setting, load, unwritten
from tilewright.peers.eager import told
from tilewright.peers.gpu import GpuInputs, gpu_arrays
from tilewright.peers.pytorch import as_asked, no_cuda_torch, tf32
from tilewright.problem import Problem
from tilewright.problem.epilogue import Epilogue

Product = tuple[Callable[[], Any], tuple[str, ...]]  # a function that enqueues it, and the fused steps


class Cublas(Peer):
    """One matrix product, for layers that are one; or a matrix times a vector."""

    name = "cublas"
    backends = ("cuda",)
    dtypes = ("f64", "f32", "f16", "bf16", "i8", "q8", "f8")

    def absent(self, device: Device) -> str | None:
        return no_cuda_torch(self.name)

    def offer(self, problem: Problem, inputs: Inputs, setting: Setting) -> Offer:
        offer = Offer()
        if problem.groups != 1 or any(problem.pad) or not (_pointwise(problem) or _classifier(problem)):
            offer.skipped["cublas"] = "the layer is no single matrix product"
            return offer
        as_asked(problem)
        offer.attempt_layouts("cublas", partial(_contestant, problem, inputs, setting, _product))
        if problem.n * problem.p * problem.q == 1 and not problem.is_integer and problem.dtype != "f8":
            vector = partial(_contestant, problem, inputs, setting, _vector)
            offer.attempt("cublas vector", partial(vector, "nchw"))
        return offer


def _pointwise(problem: Problem) -> bool:
    return (problem.r, problem.s, problem.stride) == (1, 1, (1, 1))


def _classifier(problem: Problem) -> bool:
    return (problem.r, problem.s, problem.dilation) == (problem.h, problem.w, (1, 1))


def _contestant(
    problem: Problem, inputs: Inputs, setting: Setting, how: Callable[..., Product], layout: str
) -> Contestant:
    torch, gpu = load("torch"), gpu_arrays(setting)
    placed = gpu.place(problem, inputs, layout)
    sums = gpu.put(unwritten(problem, pooled=False), layout)
    product, fused = how(torch, problem, layout, placed, sums)
    left = gpu.eager(problem, placed, fused)
    last: list[Any] = [sums]

    def run() -> None:
        with torch.inference_mode(), gpu.on_stream():
            product()
            last[0] = left(sums)

    what, way = ("vector", "cublas vector") if how is _vector else ("matmul", f"cublas {layout}")
    how_so = tf32(problem) + told(problem.epilogue, fused)
    detail = f"cuBLAS (PyTorch {torch.__version__}) {what}, {layout}{how_so}"
    return gpu.contestant("cublas", way, detail, problem, layout, placed, run, last)


def _product(torch: Any, problem: Problem, layout: str, placed: GpuInputs, sums: Any) -> Product:
    """Return the product that writes the sums: pixels are rows in nhwc, columns in nchw, per image."""
    e, bias, shape = problem.epilogue, placed.bias, tuple[int, ...]()
    if layout == "nchw" and not _classifier(problem):
        a, b = placed.w.reshape(problem.k, problem.c), placed.x.reshape(problem.n, problem.c, -1)
        shape, bias = (problem.n, problem.k, -1), None  # the bias is per row here, which cuBLAS does not add
    else:
        pixels = problem.n * problem.p * problem.q
        a, b = _flat(placed.x, layout).reshape(pixels, -1), _flat(placed.w, layout).reshape(problem.k, -1).t()
        shape = (pixels, problem.k)
    target = _flat(sums, layout).view(shape)
    z = None if placed.z is None else _flat(placed.z, layout).reshape(shape)
    if target.ndim == 3 and problem.n == 1:
        b, target, z = b[0], target[0], None if z is None else z[0]
    if problem.is_integer:
        return _whole(torch, a, b, target)
    if problem.dtype == "f8":
        return _eighths(torch, e, a, b, target, bias)
    if target.ndim == 3:
        return _into(e, torch.matmul, torch.baddbmm, (a.expand(problem.n, -1, -1), b), target, z)
    if bias is None or z is not None:
        return _into(e, torch.matmul, torch.addmm, (a, b), target, z)
    return _with_bias(torch, e, a, b, target, bias.reshape(-1))


def _vector(torch: Any, problem: Problem, layout: str, placed: GpuInputs, sums: Any) -> Product:
    """Return the filter times the only pixel."""
    matrix, pixel, target = placed.w.reshape(problem.k, -1), placed.x.reshape(-1), sums.view(-1)
    z = None if placed.z is None else placed.z.reshape(-1)
    return _into(problem.epilogue, torch.mv, torch.addmv, (matrix, pixel), target, z)


def _into(e: Epilogue, plain: Any, scaled: Any, factors: tuple[Any, Any], target: Any, z: Any) -> Product:
    """Return target = a b, or alpha a b + beta z, as a GEMM computes it."""
    if e.alpha == 1.0 and z is None:
        return lambda: plain(*factors, out=target), ()
    more = dict(alpha=e.alpha, beta=e.beta, out=target)  # beta = 0: target is not read
    return lambda: scaled(target if z is None else z, *factors, **more), ("alpha", "add")


def _with_bias(torch: Any, e: Epilogue, a: Any, b: Any, target: Any, bias: Any) -> Product:
    """Return target = alpha a b + a bias per column, with ReLU, which cuBLASLt can fuse."""
    if e.act == "relu":
        fused = partial(torch._addmm_activation, bias, a, b, alpha=e.alpha, out=target)
        return fused, ("alpha", "bias", "act")
    return partial(torch.addmm, bias, a, b, alpha=e.alpha, out=target), ("alpha", "bias")


def _whole(torch: Any, a: Any, b: Any, target: Any) -> Product:
    """Return the product of i8 matrices, summed in i32."""
    if target.ndim == 3:
        raise ValueError("PyTorch has no batched product of i8 matrices")
    return partial(torch._int_mm, a, b, out=target), ()


def _eighths(torch: Any, e: Epilogue, a: Any, b: Any, target: Any, bias: Any) -> Product:
    """Return the product of f8 matrices, with alpha and bias fused; cuBLASLt wants b column-major."""
    if target.ndim == 3 or b.stride(0) != 1:
        raise ValueError("cuBLAS multiplies matrices of f8 with the channels last, one at a time")
    alpha, one = (torch.full((), v, dtype=torch.float32, device=a.device) for v in (e.alpha, 1.0))
    shift = None if bias is None or e.add else bias.reshape(-1)
    more = dict(bias=shift, out_dtype=target.dtype, use_fast_accum=False)

    def product() -> Any:
        target.copy_(torch._scaled_mm(a, b, alpha, one, **more))

    return product, ("alpha",) if shift is None else ("alpha", "bias")


def _flat(array: Any, layout: str) -> Any:
    """View an array in its memory order."""
    return array if layout == "nchw" else array.permute(0, 2, 3, 1)
