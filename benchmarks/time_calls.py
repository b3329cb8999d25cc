"""Time what a call costs the host, on a GPU with PyTorch: ``python benchmarks/time_calls.py``.

A small layer, called 300 times on end: the kernel takes 3 us, so what is left is the way to its launch.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

try:
    import torch
except ImportError:
    sys.exit("this needs PyTorch and a GPU: in tilewright's folder run pip install -e '.[cuda,torch]'")

import tilewright as tw  # noqa: E402

LAYER = "n1c64h14w14k64r3s3p1-f32+bias+relu"
CALLS, ROUNDS = 300, 15


def host_us(call: Callable[[], object]) -> float:
    """Return the median time of a call, in us; the device is waited for after each round."""
    times = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - start) / CALLS * 1e6)
        torch.cuda.synchronize()
    return statistics.median(times[1:])  # the first warms up


def main() -> None:
    """Print a line for each way to call."""
    layer = tw.Problem.parse(LAYER)
    x, w = (torch.randn(shape, device="cuda") for shape in (layer.x_shape, layer.w_shape))
    bias, plan = torch.randn(layer.k, device="cuda"), tw.plan(layer, "cuda")
    packed = plan.pack(w)
    out = plan(x, packed, bias)
    calls: dict[str, Callable[[], object]] = {
        "plan(x, packed, bias)": lambda: plan(x, packed, bias),
        "plan(..., out=out)": lambda: plan(x, packed, bias, out=out),
        "plan.bind(..., out=out)": plan.bind(x, packed, bias, out=out),
        "tw.conv2d(x, w, bias)": lambda: tw.conv2d(x, w, bias, padding=1, activation="relu"),
        "torch.conv2d(x, w, bias)": lambda: torch.conv2d(x, w, bias, padding=1),
    }
    with torch.no_grad():
        for name, call in calls.items():
            print(f"{name:26}{host_us(call):7.1f} us")


if __name__ == "__main__":
    main()
