"""``tilewright report --worst``: the rows of several files where time is left."""

from __future__ import annotations

import copy
import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from test_report import DOCUMENT

from tilewright.bench.rows import BenchRow, OurFigure
from tilewright.cli import main
from tilewright.report.gather import Gathered, gather
from tilewright.report.results import Results
from tilewright.report.table import as_text
from tilewright.report.worst import above_floor_us, as_csv, document, table, worst_of

STUDY = Path(__file__).parent / "study_sample.json"
PLAIN = """\
3 of 3 rows, lowest share of the floor first; times in us, cold caches
layer          family  ours  floor  of floor  fastest peer  its time  ratio  above floor                   problem
h100 other R1  direct    50      5       10%             –         –      –           45   n1c64h56w56k256r1s1-f32
cpu some R2    direct   600    300       50%        onednn       900   1.50          300  n1c64h56w56k64r3s3p1-f32
cpu some R3         –   80†     40       50%   onnxruntime        60   0.75           40    n1c64h56w56k64r1s1-f32
ratio is fastest peer / ours
† not deterministic: sums of floats in no fixed order
left out: 1 row without a time of ours
left out: 1 file of studies"""  # noqa: E501 (a table as it is printed)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two benchmarks and a study: a row of ours without a peer, and one without a time of ours."""
    second = copy.deepcopy(DOCUMENT)
    alone = BenchRow("R1", "n1c64h56w56k256r1s1-f32", 5.0, OurFigure("direct", cold_us=50.0), {})
    absent = BenchRow("R4", "n1c64h56w56k256r1s1-f32", 5.0, OurFigure(reason="none is right"), {})
    second["rows"] = [absent.to_json(), alone.to_json()]
    paths = [tmp_path / "cpu/some.json", tmp_path / "h100/other.json"]
    for path, one in zip(paths, (DOCUMENT, second), strict=True):
        path.parent.mkdir()
        path.write_text(json.dumps(one))
    return [*paths, STUDY]


@pytest.fixture
def found(files: list[Path]) -> list[Gathered]:
    return gather(files)


def test_lowest_share_of_the_floor_of_all_files_is_first(found: list[Gathered]) -> None:
    assert as_text(table(worst_of(found, 10, "floor"))) == PLAIN


@pytest.mark.parametrize(
    ("by", "layers", "left_out"),
    [
        ("floor", ["R1", "R2", "R3"], ["1 row without a time of ours", "1 file of studies"]),
        ("time", ["R2", "R1", "R3"], ["1 row without a time of ours", "1 file of studies"]),
        ("ratio", ["R3", "R2"], ["1 row without a time of ours", "1 row without a peer's time",
                                 "1 file of studies"]),
    ],
)  # fmt: skip
def test_each_order(found: list[Gathered], by: str, layers: list[str], left_out: list[str]) -> None:
    for most in range(1, 4):
        worst = worst_of(found, most, by)
        assert [row.name for _, row in worst.rows] == layers[:most]
        assert (worst.among, list(worst.left_out)) == (len(layers), left_out)


def test_json_and_csv_have_the_same_rows(found: list[Gathered]) -> None:
    worst = worst_of(found, 2, "floor")
    said = document(worst)
    first, second = said["rows"]
    assert (said["by"], said["among"]) == ("floor", 3)
    assert (first["file"], first["layer"], first["floor_share"], first["ratio"]) == (
        "h100 other", "R1", 0.1, None,
    )  # fmt: skip
    assert (second["config"], second["peer"], second["peer_us"], second["above_floor_us"]) == (
        "direct:a=1", "onednn", 900.0, 300.0,
    )  # fmt: skip
    lines = list(csv.DictReader(io.StringIO(as_csv(worst))))
    as_texts = [{key: "" if it is None else str(it) for key, it in row.items()} for row in said["rows"]]
    assert lines == as_texts


def test_a_time_below_the_floor_is_not_above_it() -> None:
    beaten = BenchRow("R9", "n1c64h56w56k64r3s3p1-f32", 3000.0, OurFigure("winograd", cold_us=1000.0), {})
    assert above_floor_us(beaten) == -2000.0
    one = Gathered("x", None, Results({}, "", "", (beaten,)))
    (line,) = table(worst_of([one], 5, "time")).body
    assert line[-2:] == ("0", "n1c64h56w56k64r3s3p1-f32")


def test_without_rows_it_is_a_table_with_a_head() -> None:
    none = Gathered("x", None, Results({}, "", "", ()))
    lines = as_text(table(worst_of([none, *gather([STUDY])], 5, "ratio"))).splitlines()
    assert lines[0].startswith("0 of 0 rows") and lines[1].startswith("layer")
    assert lines[2:] == ["left out: 1 file of studies"]


def test_studies_alone_have_no_rows_to_compare(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(STUDY), "--worst", "5"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "study_sample: results of studies; want those of benchmarks" in shown.err


def _run(capsys: pytest.CaptureFixture[str], *args: Any) -> str:
    assert main(["report", *map(str, args)]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


def test_command_line(files: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(capsys, *files, "--worst", 10) == PLAIN + "\n"
    assert "| cpu some R3 |" in _run(capsys, *files, "--worst", 1, "--by", "ratio", "--markdown", "-")
    lines = _run(capsys, *files, "--worst", 2, "--by", "time", "--csv", "-").splitlines()
    assert [line.split(",")[:2] for line in lines[1:]] == [["cpu some", "R2"], ["h100 other", "R1"]]
    assert len(json.loads(_run(capsys, *files, "--worst", 2, "--json", "-"))["rows"]) == 2


def test_files_are_written_together(
    files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [tmp_path / name for name in ("w.md", "w.csv", "w.json")]
    markdown, rows, json_file = map(str, names)
    options = ["--worst", "1", "--markdown", markdown, "--csv", rows, "--json", json_file]
    assert main(["report", *map(str, files), *options]) == 0
    shown = capsys.readouterr()
    assert shown.out == "" and all(str(name) in shown.err for name in names)
    assert names[0].read_text().startswith("1 of 3 rows") and names[1].read_text().count("\n") == 2
