"""Time a whole ResNet-50 on a GPU, by PyTorch and by ours: ``python benchmarks/time_network.py``.

Batch norms are folded into the convolutions, as for inference; weights and input are random. Runs follow one
another, with warm caches. ``--budget 2s`` tunes the layers first: some two minutes for each kind.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "examples")]

try:
    import torch
except ImportError:
    sys.exit("this needs PyTorch and a GPU: in tilewright's folder run pip install -e '.[cuda,torch]'")

import pytorch_swap as swapped  # noqa: E402
from torch import nn  # noqa: E402

import tilewright as tw  # noqa: E402

KINDS = ("f32-nchw-1", "f32-nhwc-1", "f16-nchw-1", "f16-nhwc-1", "f16-nhwc-8")
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
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
        if isinstance(self.c, swapped.Layer):  # which adds the shortcut, and has the ReLU
            return self.c(self.b(self.a(x)), self.short(x))
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


def with_ours(network: nn.Sequential) -> nn.Sequential:
    """Return a copy whose convolutions tilewright runs, with ReLU and shortcut in the same kernels."""
    network = swapped.swap(copy.deepcopy(network))
    for block in network:
        for layer in (block.a, block.b, block.c) if isinstance(block, Block) else ():
            layer.act = "relu"
    return network


def tune(network: nn.Sequential, x: torch.Tensor, budget: str) -> None:
    """Tune all layers that the network has on x."""
    network(x)  # plans them
    plans = [plan for layer in swapped.LAYERS for plan, _ in layer.planned.values()]
    for problem in dict.fromkeys(plan.problem for plan in plans):
        tw.tune(problem, "cuda", budget)
    for layer in swapped.LAYERS:
        layer.planned.clear()


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


def ways(network: nn.Sequential, x: torch.Tensor) -> dict[str, float]:
    """Return the times of a network, called as it is, and recorded with and without torch.compile."""
    torch.compiler.reset()
    compiled = torch.compile(network, fullgraph=True)
    return {
        "eager": device_us(lambda: network(x)),
        "graph": device_us(graph(lambda: network(x))),
        "compiled_graph": device_us(graph(lambda: compiled(x))),
    }


def time_kind(kind: str, budget: str) -> dict[str, object]:
    """Return the times of one dtype, layout and batch, and how far the two answers are apart."""
    dtype, layout, batch = kind.split("-")
    order = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    torch.manual_seed(0)
    network = resnet50().cuda().eval().to(DTYPES[dtype], memory_format=order)
    x = torch.randn(int(batch), 3, 224, 224, device="cuda").to(DTYPES[dtype], memory_format=order)
    want, pytorch = network(x), ways(network, x)
    swapped.LAYERS.clear()
    ours = with_ours(network)
    if budget:
        tune(ours, x, budget)
    apart = float(f"{((ours(x) - want).abs().max() / want.abs().max()).item():.2g}")
    return {"kind": kind, "budget": budget, "pytorch_us": pytorch, "ours_us": ways(ours, x), "apart": apart}


def main() -> None:
    """Print a line for each kind, and write them to a file if one is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", default=KINDS, help=f"dtype-layout-batch: {', '.join(KINDS)}")
    parser.add_argument("--budget", default="", help="to tune each layer first; none: as they come")
    parser.add_argument("--json", type=Path, help="a file for the results")
    given = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    rows = []
    print(f"ResNet-50 on {torch.cuda.get_device_name()}, PyTorch {torch.__version__}; times in us")
    heads = ("PyTorch: eager", "graph", "compiled", "ours: eager", "graph", "compiled")
    print(" " * 12 + "".join(f"{head:>{len(head) + 3}}" for head in heads))
    with torch.no_grad():
        for kind in given.kinds:
            row = time_kind(kind, given.budget)
            theirs, ours = row["pytorch_us"].values(), row["ours_us"].values()
            line = "".join(
                f"{us:{len(head) + 3}.0f}" for us, head in zip((*theirs, *ours), heads, strict=True)
            )
            print(f"{kind:12}{line}   answers {row['apart']:.1e} apart", flush=True)
            rows.append(row)
            if given.json:
                device = torch.cuda.get_device_name()
                text = json.dumps({"device": device, "pytorch": torch.__version__, "rows": rows}, indent=1)
                given.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
