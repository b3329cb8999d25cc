"""Verify random configs of random layers in full: ``python benchmarks/check_random.py cuda --seconds 300``.

The tuner checks what it times: layers that somebody benches. These layers nobody thought of (odd sizes,
strides, padding, groups, epilogues, layouts, dtypes), drawn until the family that had the fewest configs so
far takes one. Configs of it, and of others that had few, are verified: exact sums, bound, NaN and infinity,
canaries, repeatability, unaligned arrays. A kernel that spills is a CompileError, which a search passes by,
too. A process that crashes or hangs is replaced, and what it did is named.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tilewright.checking.verify import Verifier  # noqa: E402
from tilewright.errors import ProblemError, RunError, TilewrightError  # noqa: E402
from tilewright.kernels import FAMILIES  # noqa: E402
from tilewright.kernels.config import Config  # noqa: E402
from tilewright.problem import Problem  # noqa: E402
from tilewright.runtime import open_runtime  # noqa: E402
from tilewright.search.space import Space  # noqa: E402

# How often, and what the sizes of a layer are drawn from: any; as networks have them; groups; a pixel; a row.
# u and v: stride down and across; d and e: dilation. Where w, s, v or e are missing they are h, r, u and d
# (AS); others are 1. Channels are those of a group.
ODD, FEW, APART = (1, 2, 3, 7, 11, 16, 17, 33, 130), (1, 2, 3, 5, 8, 12, 20, 48, 60, 65), (1, 1, 2, 3, 5)
SIDES = (5, 7, 8, 12, 14, 16, 19, 20, 24, 28, 32, 35, 40, 56, 64, 75, 100)
CHANNELS = (1, 3, 4, 8, 16, 17, 24, 32, 48, 64, 72, 80, 96, 128, 130, 160, 192, 256, 320)
KINDS: tuple[tuple[int, dict[str, tuple[int, ...]]], ...] = (
    (35, dict(n=(1, 2, 9), c=FEW, h=ODD, w=ODD, k=FEW, r=ODD, s=ODD, u=APART, v=APART, d=APART, e=APART,
              g=(1, 1, 2, 3, 5, 16))),
    (30, dict(n=(1, 1, 2, 4, 8), c=CHANNELS, h=SIDES, k=CHANNELS, r=(1, 1, 3, 3, 3, 5, 7, 9), u=(1, 1, 2, 3),
              d=(1, 1, 1, 2))),
    (15, dict(n=(1, 2, 8), c=CHANNELS, h=SIDES, w=SIDES, k=CHANNELS, r=(1, 2, 3, 5), s=(1, 3, 4, 6),
              u=(1, 2))),
    (10, dict(n=(1, 2, 5), c=(1, 1, 1, 2, 4, 8), h=SIDES, k=(1, 1, 2, 8), r=(1, 3, 3, 5, 7, 13), u=(1, 1, 2),
              d=(1, 1, 2), g=(8, 16, 24, 32, 48, 96, 144))),
    (5, dict(n=(1, 2, 3, 7, 8, 16, 33, 64), c=(8, 40, 100, 512, 1152, 2048), k=(1, 10, 48, 100, 128, 1000))),
    (5, dict(n=(1, 2, 4), c=(1, 16, 64, 80, 256), w=(100, 333, 1000, 1500), k=(16, 32, 80, 128),
             s=(1, 3, 5, 7, 11), v=(1, 1, 2, 3, 5), e=(1, 1, 2))),
    (5, dict(n=(1, 3, 9, 70), c=(33, 65, 72, 130, 264), h=(3, 4, 6, 7, 8, 12, 14, 17, 28),
             k=(8, 33, 40, 136))),
    (1, dict(c=(1024, 1100), h=(32, 33), k=(1024, 1300))),
)  # fmt: skip
AS = dict(w="h", s="r", v="u", e="d")
LAYOUTS = ("nchw", "nchw", "nhwc", "nhwc", "nchw2nhwc", "nhwc2nchw")
DTYPES = ("f64", "f32", "f16", "bf16", "i8", "q8", "f8", "tf32", "accurate")
STEPS = (("+alpha0.5",), ("+bias",), ("+add", "+add0.5"), ("+relu", "+leaky0.1", "+silu", "+relu6"),
         ("+maxpool2", "+maxpool3u2p1", "+avgpool2"))  # fmt: skip
OF_INTEGERS = ("+bias", "+add", "+relu", "+maxpool2", "+maxpool3u2p1")
MOST_FLOPS, MOST_BYTES = {True: 3e8, False: 4e9}, 64 << 20  # on a CPU, on a GPU; of x and of y
FAMILIES_EACH, CONFIGS_EACH, HUNG_S = 3, 2, 60.0
MOST_DRAWN = 3000  # layers until the family that had the fewest takes one; that takes a second
PASSED_BY = ("CompileError", "OutOfMemory", "EmptySpace")  # as a search does


def layers(rng: random.Random, cpu: bool) -> Iterator[Problem]:
    """Yield random layers without end."""
    weights, kinds = zip(*KINDS, strict=True)
    while True:
        v = {letter: rng.choice(values) for letter, values in rng.choices(kinds, weights)[0].items()}
        for letter in "nchwkrsuvdeg":
            v.setdefault(letter, v[AS[letter]] if letter in AS else 1)
        halves = v["d"] * (v["r"] // 2), v["e"] * (v["s"] // 2)
        beside = [((half, half),) * 3 + ((0, 0), (1, 1), (0, 1), (half + 3, half)) for half in halves]
        pads = ".".join(str(pad) for pairs in beside for pad in rng.choice(pairs))  # top, bottom, left, right
        dtype, wanted = rng.choice(DTYPES), rng.random() < 0.5
        steps = [rng.choice(words) for words in STEPS if wanted and rng.random() < 0.5]
        if dtype in ("i8", "q8"):
            steps = [step for step in steps if step in OF_INTEGERS] + ["+requant"] * (dtype == "q8")
        v["c"], v["k"] = v["c"] * v["g"], v["k"] * v["g"]
        text = "n{n}c{c}h{h}w{w}k{k}r{r}s{s}u{u}x{v}d{d}x{e}g{g}".format(**v)
        tail = f"-{dtype.replace('q8', 'i8')}-{rng.choice(LAYOUTS)}{''.join(steps)}"
        try:
            problem = Problem.parse(f"{text}p{pads}{tail}")
        except ProblemError:  # there is no such layer
            continue
        if problem.flops <= MOST_FLOPS[cpu] and max(problem.x_bytes, problem.y_bytes) <= MOST_BYTES:
            yield problem


def check(where: str, seed: int, end: float, tell: Callable[..., object]) -> None:
    """Verify until ``end``; tell of each config before and after."""
    runtime, rng, counts = open_runtime(where), random.Random(seed), Counter[str]()
    drawn = layers(rng, runtime.unified)
    while True:
        least = min(FAMILIES, key=lambda kind: (counts[kind.name], rng.random()))
        for problem in islice(drawn, MOST_DRAWN):
            if least.refuses(problem, runtime.device) is None:
                break
        counts[least.name] += 1  # also if it takes none of them
        kinds = [kind for kind in FAMILIES if kind.refuses(problem, runtime.device) is None]
        verifier = None
        for kind in sorted(kinds, key=lambda kind: (counts[kind.name], rng.random()))[:FAMILIES_EACH]:
            counts[kind.name] += kind is not least
            for _ in range(CONFIGS_EACH):
                if time.time() > end:
                    return
                config: Config | str = kind.name
                try:
                    config = Space(kind, problem, runtime.device).sample(rng)
                    tell("begun", problem, config)
                    if verifier is None or verifier.spoilt:
                        verifier = Verifier(runtime, problem)
                    found = verifier.check(verifier.candidate(config), full=True)
                    tell("right" if found.ok else "WRONG", problem, config, found.reason)
                except TilewrightError as error:
                    tell(type(error).__name__, problem, config, error)
                    if isinstance(error, RunError):
                        return  # the device may be unusable: another process goes on


def watched(where: str, seconds: float, processes: int, seed: int) -> list[list[str]]:
    """Verify in processes of their own; return what each of them told, line by line."""
    end, told = time.time() + seconds, list[list[str]]()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, str(number)) for number in range(processes)]
        running = dict[Path, subprocess.Popen[bytes]]()
        while time.time() < end or any(one.poll() is None for one in running.values()):
            for file in files:
                one = running.get(file)
                if one and time.time() - file.stat().st_mtime > HUNG_S:
                    one.kill()
                if (one is None or one.poll() is not None) and time.time() < end - 5:
                    seed += 1
                    file.touch()
                    left = str(end - time.time())
                    given = where, "--seed", str(seed), "--seconds", left, "--into", str(file)
                    running[file] = subprocess.Popen([sys.executable, __file__, *given])
            time.sleep(0.5)
        for file in filter(Path.exists, files):
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            told += [line for line in lines if line[0] != "begun"]
            pairs = zip(lines, [*lines[1:], ["begun"]], strict=False)  # the second may be a new process's
            told += [["crashed or hung", *one[1:]] for one, after in pairs if one[0] == after[0] == "begun"]
    return told


def main() -> None:
    """Print what is not as it must be, and how many configs of each family are right."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("device", help="cuda or cpu")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--into", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.into:
        with Path(given.into).open("a", buffering=1) as file:
            check(given.device, given.seed, time.time() + given.seconds,
                  lambda *line: file.write(json.dumps([str(word) for word in line]) + "\n"))  # fmt: skip
        return
    open_runtime(given.device)  # says so if there is none
    told = watched(given.device, given.seconds, given.processes, given.seed * 10_000)
    for outcome, *what in told:
        if outcome not in ("right", *PASSED_BY):
            print(outcome, *what)
    print(Counter(outcome for outcome, *_ in told))
    print(Counter(config.partition(":")[0] for outcome, _, config, *_ in told if outcome == "right"))


if __name__ == "__main__":
    main()
