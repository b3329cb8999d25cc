"""What each parameter of a family is worth, by committed trials: ``python benchmarks/knobs.py [COMMIT]``.

Trials of one layer are compared that differ in one parameter alone, where the fastest of them is within 30%
of the family's best there: the slowest value's time over the fastest's, median and ninth decile, and how
often each value won of how often it was tried. The tuner tries what promises most: bad values are rarer
here than they are.

Writes ``benchmarks/knobs.json``, from which ``make_tables.py`` makes the tables of docs/knobs.md, from
the trials of an H100 as they were at a commit, HEAD if none is given; of a family that none are of, from
those of an H200. It needs no GPU, and half a minute.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tilewright.device import Device  # noqa: E402
from tilewright.kernels import FAMILIES  # noqa: E402
from tilewright.problem import Problem  # noqa: E402

TRIALS = "benchmarks/h100/trials.jsonl.gz"
OTHERS = "benchmarks/h200/trials.jsonl.gz"
NEAR, FEWEST = 1.3, 20  # of the family's best on a layer; comparisons that make a row


class Trial(NamedTuple):
    """A trial that was right: its layer, family, parameters and time in us."""

    layer: str
    family: str
    values: dict[str, int]
    time_us: float


def trials(text: str) -> tuple[Device, list[Trial]]:
    """Read the trials that were right, and the device that they are of."""
    head, *lines = text.splitlines()
    found = []
    for layer, config, outcome, time_us in map(json.loads, lines):
        if outcome == "correct" and time_us is not None:
            family, _, values = config.partition(":")
            pairs = (value.split("=") for value in values.split("."))
            found.append(Trial(layer, family, {name: int(value) for name, value in pairs}, time_us))
    return Device.of(json.loads(head)["device"]), found


def worth(found: Iterable[Trial]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return of each (family, parameter) what comparing its values says."""
    best: dict[tuple[str, str], float] = {}
    alike: dict[tuple[str, str], dict[tuple, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for layer, family, values, time_us in found:
        best[layer, family] = min(time_us, best.get((layer, family), time_us))
        for name, value in values.items():
            others = (layer, *(pair for pair in values.items() if pair[0] != name))
            times = alike[family, name][others]
            times[value] = min(time_us, times.get(value, time_us))
    known = {}
    for (family, name), groups in sorted(alike.items()):
        compared = [times for (layer, *_), times in groups.items()
                    if len(times) > 1 and min(times.values()) <= NEAR * best[layer, family]]  # fmt: skip
        if len(compared) >= FEWEST:
            known[family, name] = _figures(compared)
    return known


def _figures(compared: list[dict[int, float]]) -> dict[str, Any]:
    """Return the figures of one parameter, from the times by value of each comparison."""
    lost = [max(times.values()) / min(times.values()) - 1 for times in compared]
    won = Counter(min(times, key=lambda value: times[value]) for times in compared)
    tried = Counter(value for times in compared for value in times)
    return {
        "compared": len(compared),
        "median": round(statistics.median(lost), 4),
        "ninth_decile": round(statistics.quantiles(lost, n=10)[8], 4),
        "values": [{"value": value, "won": won[value], "tried": tried[value]} for value in sorted(tried)],
    }


def meanings(device: Device, found: Iterable[Trial]) -> dict[tuple[str, str], tuple[str, dict[int, str]]]:
    """Return of each (family, parameter) what it means, and the names of its values over all layers."""
    known: dict[tuple[str, str], tuple[str, dict[int, str]]] = {}
    families = {family.name: family for family in FAMILIES}
    for layer, name in dict.fromkeys((trial.layer, trial.family) for trial in found):
        for param in families[name].params(Problem.parse(layer), device) if name in families else ():
            _, names = known.setdefault((name, param.name), (param.doc, {}))
            names |= zip(param.values, param.names, strict=False)
    return known


def at(commit: str, path: str = TRIALS) -> tuple[str, str]:
    """Return the trials of a file as they were at a commit, and the commit that they had come with."""
    last = _git("log", "-1", "--format=%h", commit, "--", path).decode().strip()
    return gzip.decompress(_git("show", f"{last}:{path}")).decode(), last


def _git(*words: str) -> bytes:
    return subprocess.run(("git", *words), cwd=ROOT, capture_output=True, check=True).stdout


def main(commit: str = "HEAD") -> None:
    """Write the figures, a line for each family and parameter."""
    text, last = at(commit)
    device, found = trials(text)
    there = {trial.family for trial in found}
    others = [trial for trial in trials(at(commit, OTHERS)[0])[1] if trial.family not in there]
    told = meanings(device, found + others)
    lines = []
    for (family, name), figures in worth(found + others).items():
        meaning, names = told.get((family, name), ("", {}))
        for one in figures["values"]:
            one |= {"name": names[one["value"]]} if one["value"] in names else {}
        lines.append(json.dumps({"family": family, "knob": name, "meaning": meaning, **figures}))
    head = json.dumps({"device": device.name, "trials": TRIALS, "commit": last, "correct": len(found)})
    to = ROOT / "benchmarks" / "knobs.json"
    to.write_text(f'{head[:-1]}, "knobs": [\n' + ",\n".join(lines) + "\n]}\n", encoding="utf-8")
    print(f"{to.relative_to(ROOT)}: {len(lines)} parameters by {len(found):,} trials of {last}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("commit", nargs="?", default="HEAD", help="whose trials are read (default: HEAD)")
    main(parser.parse_args().commit)
