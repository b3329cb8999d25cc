"""What README.md and docs/ say can be done: links lead somewhere, commands and problem strings are read."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest
import typer
from document_tables import documents
from every_family import taken
from test_direct_cpu import CORES

import tilewright
from tilewright.cli import app, bench, options, report, study
from tilewright.device import ARCHITECTURES
from tilewright.kernels import FAMILIES
from tilewright.peers import PEERS
from tilewright.problem import LAYOUTS, Problem, shapes
from tilewright.problem.activations import ACTIVATIONS
from tilewright.report.worst import ORDERS
from tilewright.search.strategies import STRATEGIES
from tilewright.studies.study_run import NAMES

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*documents(ROOT), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
each_document = pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def prose(text: str) -> str:
    """The text without its blocks of code and its generated tables."""
    for what in (r"<!-- (?:table|summary|headline|slower|knobs): .*?^<!-- end -->", r"```.*?^```"):
        text = re.sub(rf"^{what}$", "", text, flags=re.DOTALL | re.MULTILINE)
    return text


def commands(text: str) -> list[list[str]]:
    """Every line of a shell block, and every span of code, that begins with ``tilewright``."""
    lines = [line for block in blocks(text, "sh") for line in block.splitlines()]
    lines += re.findall(r"`(tilewright [^`]*)`", prose(text))
    words = [shlex.split(line, comments=True) for line in lines]
    return [found[1:] for found in words if found[:1] == ["tilewright"] and "…" not in found]


def options_of(command: Any) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts} | {"--help", "--version"}


def anchors(path: Path) -> set[str]:
    """What may stand behind a ``#`` in a link to a document: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)$", prose(path.read_text(encoding="utf-8")), re.MULTILINE)
    return {slug(heading) for heading in headings}


def slug(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@each_document
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            name, _, anchor = target.partition("#")
            found = path.parent / name if name else path
            assert found.exists(), target
            assert not anchor or anchor in anchors(found), target


@each_document
def test_commands_are_known_with_their_options(path: Path) -> None:
    for words in commands(path.read_text(encoding="utf-8")):
        command: Any = typer.main.get_command(app)
        for word in words:
            if word in getattr(command, "commands", {}):
                command = command.commands[word]
            elif word.startswith("--"):
                assert word in options_of(command), words
        assert not words or words[0].startswith("-") or command.name != "tilewright", words


@each_document
def test_python_is_python_that_names_what_there_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for block in blocks(text, "python"):
        ast.parse(block)
    for name in re.findall(r"\btw\.([A-Za-z_0-9]+)", text):
        assert name in tilewright.__all__, name


@each_document
def test_problem_strings_are_read(path: Path) -> None:
    like = re.compile(r"\bn[0-9]+c[0-9]+h[0-9]+[a-z0-9.]*(?:-[a-z0-9]+)*(?:\+[a-z0-9.:]+)*")
    for text in like.findall(path.read_text(encoding="utf-8")):
        Problem.parse(text.rstrip("."))


def test_every_family_suite_and_command_is_told_of() -> None:
    read = {path.name: path.read_text(encoding="utf-8") for path in DOCUMENTS}
    for family in FAMILIES:
        assert f"`{family.name}`" in read["families.md"], f"{family.name}: give it a section in families.md"
    table = read["README.md"].partition("\n## Families\n")[2].partition("\n## ")[0]
    rows = " ".join(re.findall(r"^\|([^|]*)\|", table, re.MULTILINE))
    missing = [one.name for one in FAMILIES if one.tunable and f"`{one.name}`" not in rows]
    assert missing == [], "the table of families in README.md has a row for each"
    for suite in shapes.suites():
        assert suite in read["problems.md"], suite
    top: Any = typer.main.get_command(app)
    for name in top.commands:
        assert f"tilewright {name}" in read["README.md"], name


def columns() -> dict[str, tuple[set[str], set[str]]]:
    """The dtypes and devices of each family, as the table of docs/families.md has them."""
    text, told = (ROOT / "docs" / "families.md").read_text(encoding="utf-8"), {}
    rows = re.findall(r"^\| \[([^]]*)\]\(#[^|]*\|[^|]*\| ([^|]*) \| ([^|]*) \|", text, re.MULTILINE)
    for names, *cells in rows:
        told |= dict.fromkeys(re.findall(r"`(\w+)`", names), tuple(set(cell.split(", ")) for cell in cells))
    return told


def test_dtypes_of_each_family_are_those_that_it_computes() -> None:
    computed = {one.name: {Problem.parse(each).precision for each in one.examples} for one in FAMILIES}
    told = {name: dtypes for name, (dtypes, _) in columns().items()}
    assert told == {name: found for name, found in computed.items() if name != "reference"}, (
        "families.md has a row for each family, with the dtypes of its spec's examples"
    )


def test_families_that_run_on_a_cpu_are_said_to() -> None:
    told = {name for name, (_, devices) in columns().items() if "CPU" in devices}
    assert told == {one.name for one in FAMILIES if taken(one, CORES)} - {"reference"}


def test_every_activation_is_told_of() -> None:
    table = (ROOT / "docs" / "problems.md").read_text(encoding="utf-8")
    for name, one in ACTIVATIONS.items():
        for word in (name, *(one.short or ())[:1]):
            assert f"`+{word}" in table, word
            assert f'"{word}"' in f'{tilewright.conv2d.__doc__}""', word


def test_what_knobs_says_of_worth_is_where_the_notes_have_it() -> None:
    """Names in italics begin a paragraph or a part of NOTES.md; each part is in its table of contents."""
    notes = (ROOT / "benchmarks" / "h100" / "NOTES.md").read_text()
    parts = re.findall(r"^#{2,} (.*)$", notes, re.MULTILINE)
    begin = tuple(" ".join(name.split()) for name in (*re.findall(r"\*\*([^*]+)\*\*", notes), *parts))
    worth = (ROOT / "docs" / "knobs.md").read_text().partition("**Worth** is")[2]
    italic = re.findall(r"(?<![*\w])\*([^*]+)\*(?!\*)", worth)
    names = {" ".join(name.split()) for name in italic} - {"italics"}
    told = json.loads((ROOT / "benchmarks" / "knobs.json").read_text())["knobs"]
    untold = {one["family"] for one in told} - set(re.findall(r"`(\w+)`", worth))
    assert untold == set(), "of a family whose trials are committed, docs/knobs.md has a section"
    assert len(names) > 20
    assert not [name for name in names if not any(one.startswith(name) for one in begin)]
    contents = set(re.findall(r"\]\(#([^)]+)\)", notes))
    assert contents == {slug(part) for part in parts}


def test_every_peer_is_told_of() -> None:
    """In --peers, in the order of PEERS, and in the table of docs/measuring.md."""
    here = {at: ", ".join(one.name for one in PEERS if at in one.backends) for at in ("opencl", "cuda")}
    rare = " and ".join(one.name for one in PEERS if not one.usual)
    wanted = f"commas: {here['opencl']} on a CPU; {here['cuda']} on an NVIDIA GPU; or all, or none. "
    assert f"{wanted}Default: all but {rare}." in get_args(bench.Peers)[1].help
    text = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (CPU|CUDA) \|", text.partition("## Peers")[2], re.MULTILINE)
    assert dict(rows) == {one.name: "CUDA" if "cuda" in one.backends else "CPU" for one in PEERS}


def test_choices_of_options_are_those_that_there_are() -> None:
    """In their order, but for studies; what stands in brackets says what each is."""

    def named(text: str, before: str = "", behind: str = r"\.") -> list[str]:
        listed = re.split(f"{before}(.*?){behind}", re.sub(r" \([^)]*\)", "", text), maxsplit=1)[1]
        return re.split(r",? or |, ", listed)

    table = (ROOT / "docs" / "search.md").read_text(encoding="utf-8").partition("| `--strategy` |")[2]
    told = re.findall(r"^\| `(\w+)`", table.partition("\n\n")[0], re.MULTILINE)
    tuned = re.findall(r"strategy: what to try first: (.*?)\.", str(tilewright.tune.__doc__), re.DOTALL)[0]
    assert [*STRATEGIES] == told == named(get_args(options.Strategy)[1].help, "first: ")
    assert [*STRATEGIES] == re.findall(r'"(\w+)"', tuned)
    assert sorted(NAMES) == sorted(named(get_args(study.Name)[1].help, "^"))
    assert [*ORDERS] == named(get_args(report.By)[1].help, "worst: ")
    assert [*ARCHITECTURES] == named(get_args(options.Arch)[1].help, "architecture, ", ";")
    page = (ROOT / "docs" / "new_family.md").read_text(encoding="utf-8")
    assert [*ARCHITECTURES] == named(page.replace(" and ", " or "), "its examples for ", ", runs")
    everywhere = (options.OneLayout, options.Layout)
    assert [named(get_args(one)[1].help, "own: ") for one in everywhere] == [[*LAYOUTS], [*LAYOUTS, "both"]]


def test_what_plain_leaves_out_is_said_wherever_it_is_offered() -> None:
    names = {re.sub(r"\d|_rows", "", one.name) for one in FAMILIES if one.races and not one.plain}
    assert names >= {"winograd", "strassen", "toeplitz", "grouped_mma"}
    functions = tilewright.conv2d, tilewright.plan, tilewright.tune
    told = {f"tw.{one.__name__}": str(one.__doc__) for one in functions}
    pages = [ROOT / "docs" / f"{page}.md" for page in ("families", "numerics")]
    told |= {page.name: page.read_text(encoding="utf-8") for page in pages}
    told["--family"] = get_args(options.Families)[1].help
    missing = [(where, name) for where, text in told.items() for name in names if name not in text.lower()]
    assert missing == [], "what is not plain is named there"
