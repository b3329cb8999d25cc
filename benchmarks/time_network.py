"""Time a whole ResNet-50, by PyTorch and by ours: ``python benchmarks/time_network.py``.

Batch norms are folded into the convolutions, as for inference; weights and input are random. Runs follow one
another, with warm caches, once all plans are prepared. On a GPU the ways are PyTorch's calls, and CUDA graphs
of them and of what torch.compile makes; on a CPU there are no graphs, but ONNX Runtime if it is installed.
PyTorch has no ``accurate``: beside it, it is strict. ``--budget 2s`` tunes the layers first: some two minutes
for each kind.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "examples")]

try:
    import torch
except ImportError:
    sys.exit("this needs PyTorch: in tilewright's folder run pip install -e '.[torch]'")

from pytorch_fuse import fuse  # noqa: E402
from pytorch_swap import prepare  # noqa: E402
from torch import nn  # noqa: E402

import tilewright as tw  # noqa: E402

KINDS = (  # the first on a CPU
    "f32-nchw-1", "f32-nhwc-1", "tf32-nchw-1", "tf32-nhwc-1", "accurate-nhwc-1", "f16-nchw-1", "f16-nhwc-1",
    "f16-nhwc-8",
)  # fmt: skip
WAYS = {"cuda": ("eager", "graph", "compiled_graph"), "cpu": ("eager", "compiled")}
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
MATHS = ("tf32", "accurate")  # of float32; PyTorch has the first
ROUNDS = 100


class Block(nn.Module):
    """A bottleneck: 1x1, 3x3 and 1x1, and a shortcut, which is a 1x1 itself where the shape changes."""

    def __init__(self, channels: int, middle: int, stride: int) -> None:
        super().__init__()
        self.a = nn.Conv2d(channels, middle, 1)
        self.b = nn.Conv2d(middle, middle, 3, stride, 1)
        self.c = nn.Conv2d(middle, 4 * middle, 1)
        changes = channels != 4 * middle or stride > 1
        self.short = nn.Conv2d(channels, 4 * middle, 1, stride) if changes else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output for x of shape (N, C, H, W)."""
        return torch.relu(self.c(torch.relu(self.b(torch.relu(self.a(x))))) + self.short(x))


def resnet50() -> nn.Sequential:
    """Return the network, with random weights."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for middle, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for i in range(blocks):
            layers.append(Block(channels, middle, 2 if i == 0 and middle > 64 else 1))
            channels = 4 * middle
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def graph(call: Callable[[], object]) -> Callable[[], None]:
    """Return a call that replays what ``call`` does, recorded as a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded, stream=side):
        call()
    return recorded.replay


def device_us(call: Callable[[], object]) -> float:
    """Return the median time between two events around a call, in us."""
    for _ in range(10):
        call()
    times = []
    for _ in range(ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return round(statistics.median(times), 1)


def host_us(call: Callable[[], object]) -> float:
    """Return the median time of a call on a CPU, in us."""
    times = []
    for _ in range(ROUNDS // 2 + 5):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6)
    return round(statistics.median(times[5:]), 1)


def ways(network: nn.Module, x: torch.Tensor) -> dict[str, float]:
    """Return the times of a network in each of the device's ``WAYS``."""
    torch.compiler.reset()
    compiled = torch.compile(network, fullgraph=True)
    if not x.is_cuda:
        return {"eager": host_us(lambda: network(x)), "compiled": host_us(lambda: compiled(x))}
    return {
        "eager": device_us(lambda: network(x)),
        "graph": device_us(graph(lambda: network(x))),
        "compiled_graph": device_us(graph(lambda: compiled(x))),
    }


def onnxruntime_us(network: nn.Sequential, x: torch.Tensor) -> float | None:
    """Return the time of a run in ONNX Runtime with as many threads; None: it, or onnx, is not installed.

    It has no convolution in bf16.
    """
    if x.dtype == torch.bfloat16:
        return None
    try:
        import onnx  # noqa: F401
        import onnxruntime
    except ImportError:
        return None
    file, options = io.BytesIO(), onnxruntime.SessionOptions()
    with warnings.catch_warnings(action="ignore"):  # this way to export is the old one, but needs no more
        torch.onnx.export(network, (x,), file, dynamo=False)
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: x.numpy()}
    return host_us(lambda: session.run(None, given))


def allow_tf32(yes: bool) -> None:
    """Let PyTorch round factors of float32 to 11 bits, or not."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = yes


def time_kind(kind: str, budget: str, device: str) -> dict[str, object]:
    """Return the times of one dtype or math, layout and batch, and how far ours is from the strict answer."""
    word, layout, batch = kind.split("-")
    dtype, math = (torch.float32, word) if word in MATHS else (DTYPES[word], "strict")
    order = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    torch.manual_seed(0)
    network = resnet50().to(device).eval().to(dtype, memory_format=order)
    x = torch.randn(int(batch), 3, 224, 224, device=device).to(dtype, memory_format=order)
    allow_tf32(False)
    want = network(x)
    allow_tf32(math == "tf32")
    pytorch = ways(network, x)
    ours = fuse(network, x, math)  # with ReLUs, shortcuts and the pool in the convolutions' plans
    start = time.perf_counter()
    plans = prepare(ours, x)
    prepare_s = round(time.perf_counter() - start, 2)
    if budget:
        for problem in dict.fromkeys(plan.problem for plan in plans):
            tw.tune(problem, x.device.type, budget)
    apart = float(f"{((ours(x) - want).abs().max() / want.abs().max()).item():.2g}")
    row = {
        "kind": kind, "budget": budget, "prepare_s": prepare_s, "pytorch_us": pytorch,
        "ours_us": ways(ours, x), "apart": apart,
    }  # fmt: skip
    return row if x.is_cuda else row | {"onnxruntime_us": onnxruntime_us(network, x)}


def main() -> None:
    """Print a line for each kind, and write them to a file if one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = ", ".join(KINDS)
    parser.add_argument("kinds", nargs="*", help=f"dtype-layout-batch; none: {kinds}; on a CPU the first")
    parser.add_argument("--device", choices=WAYS, help="where; none: on a GPU if there is one")
    parser.add_argument("--budget", default="", help="to tune each layer first; none: as they come")
    parser.add_argument("--json", type=Path, help="a file for the results")
    given = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    device = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cpu":
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        torch._inductor.config.freezing = True  # so that it packs filters once, as we do
    name = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} cores"
    about, rows = {"device": name, "pytorch": torch.__version__}, []
    print(f"ResNet-50 on {name}, PyTorch {torch.__version__}; times in us")
    heads = [f"{who}: {way}" for who in ("PyTorch", "ours") for way in WAYS[device]]
    print(" " * 16 + "".join(f"{head:>{len(head) + 3}}" for head in heads))
    with torch.no_grad():
        for kind in given.kinds or (KINDS if device == "cuda" else KINDS[:1]):
            row = time_kind(kind, given.budget, device)
            theirs, ours = row["pytorch_us"].values(), row["ours_us"].values()
            line = "".join(
                f"{us:{len(head) + 3}.0f}" for us, head in zip((*theirs, *ours), heads, strict=True)
            )
            onnx = f"   ONNX Runtime {row['onnxruntime_us']:.0f}" if row.get("onnxruntime_us") else ""
            about_it = f"answers {row['apart']:.1e} apart, prepared in {row['prepare_s']} s"
            print(f"{kind:16}{line}{onnx}   {about_it}", flush=True)
            rows.append(row)
            if given.json:
                given.json.write_text(json.dumps(about | {"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
