"""What a parameter of a family is worth, by the trials that ship: ``python benchmarks/knobs.py [FILE]``.

Trials of one layer are compared that differ in one parameter alone, where the fastest of them is within 30%
of the family's best there: the slowest value's time over the fastest's, median and ninth decile, and how
often each value won of how often it was tried. The tuner tries what promises most: bad values are rarer
here than they are.
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
from collections import Counter, defaultdict
from pathlib import Path

NEAR, FEWEST = 1.3, 20  # of the family's best on a layer; comparisons that make a row


def trials(path: Path) -> list[tuple[str, str, dict[str, int], float]]:
    """Read layer, family, parameters and time of the trials that were right."""
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for line in file][1:]
    found = []
    for layer, config, outcome, *time_us in rows:
        if outcome == "correct" and time_us:
            family, _, values = config.partition(":")
            pairs = (value.split("=") for value in values.split("."))
            found.append((layer, family, {name: int(value) for name, value in pairs}, time_us[0]))
    return found


def main(path: Path) -> None:
    """Print a row for each family and parameter."""
    best: dict[tuple[str, str], float] = {}
    alike: dict[tuple[str, str], dict[tuple, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for layer, family, values, time_us in trials(path):
        best[layer, family] = min(time_us, best.get((layer, family), time_us))
        for name, value in values.items():
            others = (layer, *(pair for pair in values.items() if pair[0] != name))
            times = alike[family, name][others]
            times[value] = min(time_us, times.get(value, time_us))
    for (family, name), groups in sorted(alike.items()):
        pairs = [times for (layer, *_), times in groups.items()
                 if len(times) > 1 and min(times.values()) <= NEAR * best[layer, family]]  # fmt: skip
        if len(pairs) < FEWEST:
            continue
        worth = [max(times.values()) / min(times.values()) - 1 for times in pairs]
        won = Counter(min(times, key=lambda value: times[value]) for times in pairs)
        tried = Counter(value for times in pairs for value in times)
        values_won = ", ".join(f"{value}: {won[value]} of {tried[value]}" for value in sorted(tried))
        print(f"{family:13} {name:7} {len(pairs):5} median {statistics.median(worth):4.0%}"
              f" p90 {statistics.quantiles(worth, n=10)[8]:4.0%}   {values_won}")  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "h100" / "trials.jsonl.gz")
