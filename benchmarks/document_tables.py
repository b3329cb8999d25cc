"""The tables of README.md and docs/*.md, made from committed results: never edited by hand.

What stands between one of these markers and ``<!-- end -->`` is made anew:

- ``<!-- table: cpu/resnet-f32 -->``: a short table of ``benchmarks/cpu/resnet-f32.json``;
- ``<!-- summary: h100 -->``: one line for each results file of ``benchmarks/h100``, or of several folders;
- ``<!-- headline: h100/resnet-f32, cpu/resnet-f32 -->``: one line for each of these files, with its layers
  of the lowest and the highest ratio;
- ``<!-- slower: h100/resnet-f32, cpu -->``: the layers that a peer runs faster, in these files, or in all
  files of a folder;
- ``<!-- knobs: direct -->``: what each parameter of a family is worth, by ``benchmarks/knobs.json``, which
  ``knobs.py`` makes; of the family ``trials`` the trials that it is made from.

The long tables, with every peer, go to ``TABLES.md`` beside the results files; those of a study's file to
a page of its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tilewright.bench.rows import BenchRow
from tilewright.errors import StoreError
from tilewright.problem import Problem
from tilewright.report.results import Results, load, mean_of_those
from tilewright.report.results_table import ran_peers, results_table, short_table
from tilewright.report.study import study_markdown
from tilewright.report.table import NONE, Table, markdown, ratio_text, time_text
from tilewright.studies.document import load as load_study

_MARKED = re.compile(
    r"(<!-- (table|summary|headline|slower|knobs): ([a-z0-9_/.-]+(?:, [a-z0-9_/.-]+)*) -->\n)"
    r".*?(<!-- end -->)",
    re.DOTALL,
)
_SHOWN, _SELDOM = 3, 0.1  # values of a parameter; none that was tried in fewer of the comparisons
_LITTLE = 0.06  # a parameter whose ninth decile is below is named alone


def documents(root: Path) -> list[Path]:
    """Return the documents of a checkout that may have such tables."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def with_tables(text: str, benchmarks: Path) -> str:
    """Return a document with every marked table made anew.

    A table whose results are not there yet says so in its place.

    Raises:
        StoreError: a results file is malformed, or a marker names a path outside ``benchmarks``.
    """
    make = {"table": _table, "summary": _summary, "headline": _headline, "slower": _slower, "knobs": _knobs}
    return _MARKED.sub(lambda match: match[1] + make[match[2]](match[3], benchmarks) + match[4], text)


def update(texts: Iterable[Path], benchmarks: Path) -> bool:
    """Rewrite the tables of documents, and those beside the results; say whether anything changed."""
    changed = False
    for document in texts:
        changed |= _rewrite(document, with_tables(document.read_text(encoding="utf-8"), benchmarks))
    for folder in sorted({path.parent for path in benchmarks.glob("*/*.json")}):
        changed |= _rewrite(folder / "TABLES.md", long_tables(sorted(folder.glob("*.json"))))
    for study in sorted(benchmarks.glob("*/studies/*.json")):
        changed |= _rewrite(study.with_suffix(".md"), study_markdown(load_study(study)))
    return changed


def _rewrite(path: Path, text: str) -> bool:
    changed = not path.exists() or path.read_text(encoding="utf-8") != text
    if changed:
        path.write_text(text, encoding="utf-8")
    return changed


def long_tables(paths: Iterable[Path]) -> str:
    """Return the tables of results files, with every peer."""
    parts = [f"## {path.stem}\n\n{markdown(results_table(load(path)))}\n" for path in paths]
    return "# Results in full\n\nMade by `python benchmarks/make_tables.py`.\n\n" + "\n".join(parts)


def _path(name: str, benchmarks: Path) -> Path:
    if ".." in name or name.startswith("/"):
        raise StoreError(f"table marker {name!r}: must name a file under {benchmarks}")
    return benchmarks / name


def _table(name: str, benchmarks: Path) -> str:
    path = _path(name + ".json", benchmarks)
    if not path.exists():
        return f"*No results yet: `{benchmarks.name}/{name}.json` is not there.*\n"
    return markdown(short_table(load(path))) + "\n"


def _summary(names: str, benchmarks: Path) -> str:
    folders = names.split(", ")
    paths = [path for name in folders for path in sorted(_path(name, benchmarks).glob("*.json"))]
    head = ("results", "rows", "peer / ours, geometric mean", "lowest", "floor / ours, geometric mean")
    named = [(path.parent.name + "/" if len(folders) > 1 else "") + path.stem for path in paths]
    body = tuple(_line(name, load(path)) for name, path in zip(named, paths, strict=True))
    return markdown(Table("", head, body)) + "\n"


def _slower(names: str, benchmarks: Path) -> str:
    lines = []
    for name in names.split(", "):
        folder = _path(name, benchmarks)
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else [_path(name + ".json", benchmarks)]:
            results = load(path)
            lost = sorted((row.ratio, row.name) for row in results.rows if row.ratio and row.ratio < 0.995)
            told = ", ".join(f"{layer} {ratio_text(ratio)}" for ratio, layer in lost)
            where = f"`{path.parent.name}/{path.stem}`, {len(lost)} of {len(results.rows)}"
            lines += [f"- {where}: {told}\n"] if lost else []
    return "".join(lines) or "- None.\n"


def _knobs(family: str, benchmarks: Path) -> str:
    path = benchmarks / "knobs.json"
    if not path.exists():
        return f"*No figures yet: `{path.name}` is not there.*\n"
    found = json.loads(path.read_text(encoding="utf-8"))
    if family == "trials":
        count, of = f"{found['correct']:,} trials", f"`{found['trials']}` at {found['commit']}"
        return f"Made by `python benchmarks/knobs.py` from the {count} of {of} ({found['device']}).\n"
    knobs = sorted((one for one in found["knobs"] if one["family"] == family), key=lambda one: -one["median"])
    body = [(f"`{one['knob']}`", one["meaning"], _worth(one), _won(one)) for one in knobs if _is_worth(one)]
    others = ", ".join(f"`{one['knob']}` {_worth(one)}" for one in knobs if not _is_worth(one))
    head = ("knob", "what it is", "worth", "won, of how often tried")
    table = markdown(Table("", head, tuple(body), words=True))
    return f"{table}\n" + (f"\nWorth little: {others}.\n" if others else "")


def _is_worth(knob: dict[str, Any]) -> bool:
    return bool(knob["ninth_decile"] >= _LITTLE)


def _worth(knob: dict[str, Any]) -> str:
    return f"{knob['median']:.0%} ({knob['ninth_decile']:.0%})"


def _won(knob: dict[str, Any]) -> str:
    """The values of a parameter that won most often, of how often they were tried."""
    values = [one for one in knob["values"] if one["tried"] >= _SELDOM * knob["compared"]]
    best = sorted(values, key=lambda one: -one["won"] / one["tried"])[:_SHOWN]
    named = (f"{one['value']}, {one['name']}" if "name" in one else str(one["value"]) for one in best)
    return "; ".join(
        f"{name}: {one['won']} of {one['tried']}" for name, one in zip(named, best, strict=True)
    )


def _headline(names: str, benchmarks: Path) -> str:
    head = ("device", "layers", "peers timed", "fastest peer / ours, geometric mean", "lowest", "highest")
    body = [_told(name, load(_path(name + ".json", benchmarks))) for name in names.split(", ")]
    return markdown(Table("", head, tuple(body), words=True)) + "\n"


def _told(name: str, results: Results) -> tuple[str, ...]:
    """A line of the headline: a results file of layers of one precision."""
    problems = [Problem.parse(row.problem) for row in results.rows]
    suite, precision = name.rpartition("/")[2].partition("-")[0], problems[0].precision
    batches = sorted({problem.n for problem in problems})
    layers = f"{suite}, {precision}, batch {', '.join(map(str, batches))} ({len(results.rows)})"
    rows = sorted((row for row in results.rows if row.ratio), key=lambda row: row.ratio or 0)
    # cuDNN's engines of one kind ("cudnn-gemm") are cuDNN.
    ran = dict.fromkeys(peer.partition("-")[0] for row in results.rows for peer in ran_peers(row))
    ends = (_duel(rows[0]), _duel(rows[-1])) if rows else (NONE, NONE)
    return (str(results.device["name"]), layers, ", ".join(ran), f"**{ratio_text(results.geomean)}**", *ends)


def _duel(row: BenchRow) -> str:
    """A layer's ratio, and the two times that it is of."""
    peer = row.best_peer
    assert peer is not None
    ours, theirs = time_text(row.ours.compared_us), time_text(row.peers[peer].cold_us)
    return f"{ratio_text(row.ratio)} ({row.name}: {ours} us, {peer} {theirs})"


def _line(name: str, results: Results) -> tuple[str, ...]:
    ratios = [row.ratio for row in results.rows if row.ratio]
    share = mean_of_those([row.floor_share for row in results.rows])
    lowest = ratio_text(min(ratios, default=None))
    rows = str(len(results.rows)) + f", {len(ratios)} with a peer" * (len(ratios) < len(results.rows))
    return (name, rows, ratio_text(results.geomean), lowest, f"{share or 0:.0%}")
