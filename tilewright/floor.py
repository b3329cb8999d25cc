"""The floor: a lower bound on the time of any kernel that multiplies and adds as the formula says.

    floor = empty kernel + max(multiply-adds / peak of the dtype, bytes / read bandwidth)

Neither products with padding count nor inputs that no output depends on. Fast algorithms (Winograd,
Strassen) multiply less, and may beat it. Rates are the best ever measured on the device
(``measuring/calibrate.py``); those of tensor cores are from datasheets, at the highest clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.device.architectures import MMA_E4M3, MMA_SYNC, f64_rate, tensor_products
from tilewright.problem import DTYPE_BYTES, Problem

# Rates relative to f16. "accurate" takes three f16 products for one; f8 before sm_89 is widened to f16.
_OVER_F16 = {"f16": 1.0, "bf16": 1.0, "i8": 2.0, "q8": 2.0, "f8": 2.0, "tf32": 0.5, "accurate": 1 / 3}


@dataclass(frozen=True)
class Floor:
    """The least time of a layer on a device, and its terms; all in us."""

    empty_us: float
    arithmetic_us: float
    memory_us: float

    @property
    def us(self) -> float:
        """The floor itself."""
        return self.empty_us + max(self.arithmetic_us, self.memory_us)


def floor(problem: Problem, device: Device) -> Floor:
    """Return the floor of a layer."""
    return Floor(
        empty_us=device.rates.empty_us,
        arithmetic_us=least_flops(problem) / (peak_tflops(device, problem.precision) * 1e6),
        memory_us=least_bytes(problem, device) / (device.rates.read_gbs * 1e3),
    )


def floor_us(problem: Problem, device: Device) -> float:
    """Return the floor of a layer in us."""
    return floor(problem, device).us


def peak_tflops(device: Device, precision: str) -> float:
    """Return the peak of a precision in 1e12 flops/s, 2 per multiply-add; on tensor cores if they support it.

    Without them, f16, bf16 and f8 are multiplied as f32, i8 four at a time (dot4), and f64 on a CPU in
    vectors of half as many elements.
    """
    return max(_by_lanes(device, precision), _by_tensor_cores(device, precision))


def peak_from(device: Device, precision: str) -> str:
    """Return the peak's source: of tensor cores it is from datasheets, any other follows from f32's."""
    by_f32 = _by_lanes(device, precision) >= _by_tensor_cores(device, precision)
    return device.rates.source if by_f32 else "datasheet"


def _by_lanes(device: Device, precision: str) -> float:
    f64 = f64_rate(device.capability) if device.is_cuda else 0.5
    return device.rates.f32_tflops * {"f64": f64, "i8": 4.0, "q8": 4.0}.get(precision, 1.0)


def _by_tensor_cores(device: Device, precision: str) -> float:
    """Return the peak of tensor cores at the highest clock; 0 if there are none or they do not take it."""
    faster = _OVER_F16 if device.capability >= MMA_E4M3 else _OVER_F16 | {"f8": 1.0}
    older = device.capability < MMA_SYNC and precision in ("bf16", "tf32", "accurate")
    if precision not in faster or older:
        return 0.0
    products = tensor_products(device.capability) * faster[precision]
    return 2 * products * device.units * device.clock_ghz / 1e3


def least_flops(problem: Problem) -> int:
    """Return the multiplications and additions of the convolution, without those on padding."""
    pr = problem
    rows, columns = (_products(*side) for side in _sides(pr))
    return 2 * pr.n * pr.k * pr.cg * rows * columns


def least_bytes(problem: Problem, device: Device) -> int:
    """Return the least traffic with main memory, in bytes: each input once, and on a CPU the output.

    On a GPU only the part of y counts that exceeds the last-level cache: the rest need not reach memory
    before the kernel ends. A CPU's cache reads the lines of y before they are written.
    """
    pr = problem
    rows, columns = (_touched(*side) for side in _sides(pr))
    x_bytes = pr.n * pr.c * rows * columns * DTYPE_BYTES[pr.dtype]
    y_bytes = max(0, pr.y_bytes - device.l2_bytes) if device.is_gpu else pr.y_bytes
    return pr.bytes - pr.x_bytes + x_bytes - pr.y_bytes + y_bytes


def _sides(problem: Problem) -> tuple[tuple[int, int, int, int, int, int], ...]:
    """Return extent, taps, outputs, stride, dilation and leading padding of both dimensions of the image."""
    pr = problem
    return (
        (pr.h, pr.r, pr.p, pr.stride[0], pr.dilation[0], pr.pad[0]),
        (pr.w, pr.s, pr.q, pr.stride[1], pr.dilation[1], pr.pad[2]),
    )


def _products(extent: int, taps: int, outputs: int, stride: int, dilation: int, before: int) -> int:
    """Count the pairs (tap, output) whose place, tap * dilation + output * stride, is inside the image."""
    step = taps, outputs, stride, dilation
    return _pairs_below(before + extent, *step) - _pairs_below(before, *step)


def _touched(extent: int, taps: int, outputs: int, stride: int, dilation: int, before: int) -> int:
    """Count the places that are read: the pairs of ``_products``, except those whose place belongs to another
    pair too, with its tap ``far`` before and its output ``near`` after.
    """
    far, near = stride // gcd(stride, dilation), dilation // gcd(stride, dilation)
    again = _products(extent, taps - far, outputs - near, stride, dilation, before - far * dilation)
    return _products(extent, taps, outputs, stride, dilation, before) - again


def _pairs_below(bound: int, taps: int, outputs: int, stride: int, dilation: int) -> int:
    """Count the pairs (tap, output) whose place is below ``bound``."""
    if min(bound, taps, outputs) <= 0:
        return 0
    # Taps that have any output below it; and those that have all.
    some = min(taps, ceil_div(bound, dilation))
    all_of_them = max(0, min(some, ceil_div(bound - (outputs - 1) * stride, dilation)))
    last = bound - (some - 1) * dilation + stride - 1
    return all_of_them * outputs + _sum_of_quotients(some - all_of_them, last, dilation, stride)


def _sum_of_quotients(count: int, first: int, step: int, by: int) -> int:
    """Return the sum of ``(first + i * step) // by`` over i < ``count``, in as many steps as Euclid's gcd."""
    whole = count * (first // by) + count * (count - 1) // 2 * (step // by)
    first, step = first % by, step % by
    end = first + count * step
    if end < by:
        return whole
    return whole + _sum_of_quotients(end // by, end % by, by, step)  # count by columns instead of rows
