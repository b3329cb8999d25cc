"""Time the first use of a network's layers, in an empty cache: ``python benchmarks/time_plans.py``.

Layers are prepared by ``plan_all``, with ``--one-by-one`` by ``plan``. They are given as for
``tilewright bench``; none: those of a ResNet-50 of 0.75 times its channels, of which nothing is known.
``--choose`` times the model's choice alone, for an H200, which need not be here: seconds of a CPU, and the
time that it expects.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import tilewright as tw  # noqa: E402
from tilewright.device import parse_selector  # noqa: E402
from tilewright.kernels import FAMILIES, pick  # noqa: E402
from tilewright.problem import Problem  # noqa: E402
from tilewright.problem.shapes import as_problems  # noqa: E402
from tilewright.runtime import open_runtime  # noqa: E402
from tilewright.search.guesses import GUESSES  # noqa: E402
from tilewright.search.ranking import rank_all  # noqa: E402
from tilewright.search.space import usable  # noqa: E402
from tilewright.search.trials_file import device_of  # noqa: E402

TRIALS = Path(__file__).resolve().parent / "h200" / "trials.jsonl.gz"


def network(dtype: str) -> list[str]:
    """Return the layers of a ResNet-50 of 0.75 times its channels, with what is fused into them."""
    found = [f"n1c3h224w224k48r7s7p3u2-{dtype}+bias+relu+maxpool3u2p1"]
    channels, size = 48, 56
    for middle, stride in ((48, 1), (96, 2), (192, 2), (384, 2)):
        for step in (f"u{stride}" if stride > 1 else "", ""):
            image, after = f"h{size}w{size}", size // stride if step else size
            found += [
                f"n1c{channels}{image}k{middle}r1s1-{dtype}+bias+relu",
                f"n1c{middle}{image}k{middle}r3s3p1{step}-{dtype}+bias+relu",
                f"n1c{middle}h{after}w{after}k{4 * middle}r1s1-{dtype}+bias+add+relu",
            ]
            if channels != 4 * middle:
                found.append(f"n1c{channels}{image}k{4 * middle}r1s1{step}-{dtype}+bias")
            channels, size = 4 * middle, after
    return list(dict.fromkeys(found))


def choose(layers: list[Problem]) -> None:
    """Print what the model's choice of each layer takes, and which it is."""
    device = device_of(TRIALS)
    for layer in [layers[0], *layers]:  # the first once more: trials of other layers are read then
        families, _ = usable(pick(FAMILIES, ()), layer, device)
        start = time.process_time()
        config, expected_us = rank_all(layer, device, families, len(GUESSES))[0]
        seconds = time.process_time() - start
        print(f"{layer}: {seconds:.2f} s, {config.family}, {expected_us:.2f} us", flush=True)


def main() -> None:
    """Print the seconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("layers", nargs="*", help="problem strings, suites, files; none: a ResNet-50's")
    parser.add_argument("--device", help="as for tilewright.plan")
    parser.add_argument("--dtype", default="f32", help="of the ResNet-50")
    parser.add_argument("--one-by-one", action="store_true", help="by plan, not by plan_all")
    parser.add_argument("--choose", action="store_true", help="only the model's choice, for an H200")
    given = parser.parse_args()
    layers = list(dict.fromkeys(as_problems(given.layers or network(given.dtype))))
    if given.choose:
        choose(layers)
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEWRIGHT_CACHE"] = folder
        open_runtime(*parse_selector(given.device))
        start = time.perf_counter()
        if given.one_by_one:
            plans = [tw.plan(layer, given.device) for layer in layers]
        else:
            plans = tw.plan_all(layers, given.device)
        seconds = time.perf_counter() - start
        print(f"{len(plans)} layers on {plans[0].plan.device.name}: ready after {seconds:.2f} s")


if __name__ == "__main__":
    main()
