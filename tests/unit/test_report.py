"""Results documents, tables, Markdown, plots and the tables of README.md and docs/."""

from __future__ import annotations

import copy
import csv
import html
import io
import json
import math
import re
import sys
import xml.etree.ElementTree
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import document_tables
import pytest

from tilewright.bench.rows import BenchRow, OurFigure, PeerFigure
from tilewright.errors import OutputError, StoreError
from tilewright.report import gather, plot, plot_study, results
from tilewright.report.gather import as_csv, of_document
from tilewright.report.results_table import results_table, short_table
from tilewright.report.study import study_markdown
from tilewright.report.table import BEATS_NOTE, NOISY_NOTE, Table, as_text, bytes_text, markdown, time_text
from tilewright.studies.document import StudyResult, load

ROOT = Path(__file__).resolve().parents[2]

DOCUMENT: dict[str, Any] = {
    "device": {"name": "Some CPU, 4 cores", "driver": "1"},
    "date": "2025-01-02T03:04:05",
    "commit": "0123456789abcdef",
    "protocol": {},
    "rows": [
        {
            "name": "R2",
            "problem": "n1c64h56w56k64r3s3p1-f32",
            "floor_us": 300.0,
            "ours": {
                "family": "direct", "config": "direct:a=1", "cold_us": 600.0, "ci95_us": 4.25,
                "warm_us": 500.0,
                "max_error": 1e-6, "error_bound": 4e-6, "worst": 0.25, "deterministic": True,
                "workspace_bytes": 1536, "families": {"direct": 600.0, "winograd": "none right: 2 compile"},
            },
            "peers": {
                "onednn": {"cold_us": 900.0, "detail": "nchw"},
                "onnxruntime": {"cold_us": 1200.0, "detail": "nchw"},
                "cudnn": {"reason": "no CUDA device"},
            },
        },
        {
            "name": "R3",
            "problem": "n1c64h56w56k64r1s1-f32",
            "floor_us": 40.0,
            "ours": {"cold_us": 80.0, "ci95_us": 0.5, "deterministic": False, "worst": 0.5},
            "peers": {
                "onednn": {"reason": "crashed"},
                "onnxruntime": {"cold_us": 60.0},
                "cudnn": {"reason": "no CUDA device"},
            },
        },
    ],
}  # fmt: skip

PLAIN = """\
Some CPU, 4 cores, 2025-01-02, 0123456789; times in us, cold caches
layer  family  ours     ±  floor  of floor  onednn  onnxruntime  ratio  error/bound  workspace
R2     direct   600  4.25    300       50%     900         1200   1.50         0.25       1.5k
R3          –   80†   0.5     40       50%       –           60   0.75          0.5          0
ratio is fastest peer / ours: geometric mean 1.06 over 2 layers, lowest 0.75
† not deterministic: sums of floats in no fixed order
cudnn has no time for any layer: no CUDA device
onednn has no time for R3: crashed"""


def test_csv_has_every_figure_with_its_row_and_column() -> None:
    lines = list(csv.DictReader(io.StringIO(as_csv([of_document("a file", DOCUMENT)]))))
    assert {line["file"] for line in lines} == {"a file"}
    found = {(line["part"], line["column"]): line["value"] for line in lines}
    assert (found["R2", "floor_us"], found["R2", "tilewright cold_us"]) == ("300.0", "600.0")
    assert (found["R3", "onnxruntime cold_us"], found["R3", "onednn reason"]) == ("60.0", "crashed")
    assert all(line["value"] for line in lines) and len(found) == len(lines), "of figures and words alone"
    assert {line["row"] for line in lines} == {row["problem"] for row in DOCUMENT["rows"]}


def test_two_runs_of_a_study_are_told_apart() -> None:
    sample = json.loads((Path(__file__).parent / "study_sample.json").read_text())
    other = {**sample, "device": {**sample["device"], "name": "EPYC"}, "quick": True}
    both = [of_document("h100 toy", sample), of_document("cpu toy", other)]
    titles = [table.title for table in gather.tables(both)]
    assert len(set(titles)) == len(titles)
    assert all(sample["name"] in title for title in titles) and "(EPYC, " in titles[-1]
    assert "quick sizes" in titles[-1]
    name = sample["name"]
    anchors = re.findall('<section id="([^"]*)">', gather.html("t", both))
    assert anchors == [f"study-{name}-h100-toy", f"study-{name}-cpu-toy"]
    assert f'<section id="study-{name}">' in gather.html("t", both[:1])


def test_csv_of_a_study_has_every_value_of_its_rows() -> None:
    study = of_document("s", json.loads((Path(__file__).parent / "study_sample.json").read_text()))
    assert isinstance(study.results, StudyResult)
    lines = list(csv.DictReader(io.StringIO(as_csv([study]))))
    found = {(line["part"], line["row"], line["column"]): line["value"] for line in lines}
    assert found == {
        (part.title, str(number), key): str(value)
        for part in study.results.parts for number, row in enumerate(part.rows)
        for key, value in row.items() if value not in (None, "")
    }  # fmt: skip
    assert len(found) == len(lines) > 20


def test_plain_table() -> None:
    assert as_text(results_table(results.parse(DOCUMENT))) == PLAIN


def test_layers_of_one_name_are_told_apart() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["rows"].append({**document["rows"][1], "problem": "n1c64h56w56k64r1s1-i8-nhwc2nchw+requant"})
    table = results_table(results.parse(document))
    assert [row[0] for row in table.body] == ["R2", "R3 f32 nchw", "R3 q8 nhwc2nchw"]
    assert "onednn has no time for R3 f32 nchw, R3 q8 nhwc2nchw: crashed" in table.notes
    document["rows"].append({**document["rows"][0], "name": "R3", "problem": "n1c8h9w9k8r1s1-f32"})
    table = results_table(results.parse(document))
    first = f"R3 {document['rows'][1]['problem']}"
    assert [row[0] for row in table.body] == ["R2", first, "R3 q8 nhwc2nchw", "R3 n1c8h9w9k8r1s1-f32"]


def test_a_title_says_that_the_checkout_was_changed() -> None:
    changed = {**DOCUMENT, "commit": "0123456789abcdef-dirty, 89abcde (R3, on another host)"}
    assert ", 0123456789-dirty, 89abcde; times in us" in results_table(results.parse(changed)).title


def test_one_layer_is_no_plural() -> None:
    alone = results.parse({**DOCUMENT, "rows": DOCUMENT["rows"][:1]})
    assert any("over 1 layer, lowest" in note for note in results_table(alone).notes)


def test_markdown_table() -> None:
    lines = markdown(results_table(results.parse(DOCUMENT))).splitlines()
    assert lines[2:5] == [
        "| layer | family | ours | ± | floor | of floor | onednn | onnxruntime | ratio | error/bound "
        "| workspace |",
        "| --- |" + " ---: |" * 10,
        "| R2 | direct | 600 | 4.25 | 300 | 50% | 900 | 1200 | 1.50 | 0.25 | 1.5k |",
    ]


def test_conversion_has_a_column_of_its_own() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["rows"][0]["peers"]["onednn"]["convert_us"] = 77.0
    shown = results_table(results.parse(document))
    assert shown.head[6:9] == ("onednn", "onednn converts", "onnxruntime")
    assert [row[7] for row in shown.body] == ["77", "–"]
    assert any(note.startswith("converts: what it would cost") for note in shown.notes)
    assert shown.body[0][9] == "1.50"


def test_calls_are_compared_with_calls() -> None:
    """On a CPU peers are timed from call to return, our kernels by events: then our calls have a column."""
    document = copy.deepcopy(DOCUMENT)
    document["rows"][0]["ours"]["call_us"] = 750.0
    shown = results_table(results.parse(document))
    assert shown.head[6:8] == ("our call", "onednn")
    assert [(row[2], row[5], row[6], row[9]) for row in shown.body] == [
        ("600", "50%", "750", "1.20"), ("80†", "50%", "–", "0.75")
    ]  # fmt: skip
    assert any("whole calls (our call)" in note for note in shown.notes)
    short = short_table(results.parse(document))
    assert [dict(zip(short.head, row, strict=True))["our call"] for row in short.body] == ["750", "–"]


def test_a_noisy_call_is_marked_and_so_is_a_ratio_of_it() -> None:
    """On a CPU the ratio is of calls: their interval counts, not that of the kernels."""
    document = copy.deepcopy(DOCUMENT)
    ours = document["rows"][0]["ours"]
    ours |= {"call_us": 750.0, "ci95_us": 1.0, "call_ci95_us": 50.0}
    for laid in (results_table(results.parse(document)), short_table(results.parse(document))):
        first = dict(zip(laid.head, laid.body[0], strict=True))
        assert (first["ours"], first["our call"], first["ratio"]) == ("600", "750~", "1.20~")
        assert NOISY_NOTE in laid.notes
    ours |= {"ci95_us": 90.0, "call_ci95_us": 5.0}
    laid = results_table(results.parse(document))
    first = dict(zip(laid.head, laid.body[0], strict=True))
    assert (first["ours"], first["our call"], first["ratio"]) == ("600~", "750", "1.20")
    del ours["call_ci95_us"]  # of an older version
    assert results.parse(document).rows[0].noisy


def test_a_time_below_its_floor_is_marked_and_explained() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["rows"][0]["floor_us"] = 900.0
    shown = results_table(results.parse(document))
    assert [row[5] for row in shown.body] == ["150%‡", "50%"] and BEATS_NOTE in shown.notes
    assert BEATS_NOTE not in results_table(results.parse(DOCUMENT)).notes


def test_each_family_may_have_a_column() -> None:
    shown = results_table(results.parse(DOCUMENT), families=True)
    assert shown.head[6:10] == ("our direct", "our winograd", "onednn", "onnxruntime")
    assert [row[6:8] for row in shown.body] == [("600", "–"), ("–", "–")]
    told = "columns of families: the best times in the store"
    assert any(note.startswith(told) for note in shown.notes)
    assert not any(told in note for note in results_table(results.parse(DOCUMENT)).notes)


def test_a_long_reason_is_cut_in_a_note() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["rows"][0]["ours"] = {"reason": "a" * 1000}
    notes = results_table(results.parse(document)).notes
    assert f"tilewright has no time for R2: {'a' * 159}…" in notes
    document["rows"][0]["ours"] = {"cold_us": 1.0, "note": "b" * 1000}
    assert f"R2: {'b' * 159}…" in results_table(results.parse(document)).notes


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (1536, "1.5k"), (20480, "20k"), (3 << 20, "3.0M")],
)
def test_bytes_text(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_what_the_bench_writes_is_read_back() -> None:
    ours = OurFigure(family="direct", config="direct:a=1", cold_us=2.5, worst=0.25, note="untuned")
    peers = {"onednn": PeerFigure(cold_us=5.0, tried={"a": 1.0}), "cudnn": PeerFigure(reason="absent")}
    row = BenchRow("R2", "n1c64h56w56k64r3s3p1-f32", 1.25, ours, peers)
    document = json.loads(json.dumps({"device": {}, "rows": [row.to_json()]}))
    assert results.parse(document).rows == (row,)


def test_a_row_is_compared_with_the_fastest_peer_that_ran() -> None:
    ours = OurFigure(cold_us=4.0, ci95_us=0.1)
    peers = {
        "absent": PeerFigure(reason="no CUDA device"), "behind": PeerFigure(cold_us=9.0, ci95_us=5.0),
        "first": PeerFigure(cold_us=6.0, ci95_us=0.1), "last": PeerFigure(cold_us=12.0),
    }  # fmt: skip
    row = BenchRow("R2", "n1c64h56w56k64r3s3p1-f32", 1.0, ours, peers)
    assert (row.best_peer, row.ratio, row.floor_share, row.noisy) == ("first", 1.5, 0.25, False)
    assert [row.over_ours(name) for name in ("behind", "absent", "unheard")] == [2.25, None, None]
    called = replace(row, ours=replace(ours, call_us=8.0))
    assert (called.ratio, called.floor_share) == (0.75, 0.25)
    for none in (replace(row, peers={"absent": peers["absent"]}), replace(row, ours=OurFigure())):
        assert none.ratio is None
    assert replace(row, peers={"behind": peers["behind"]}).noisy


def test_times_are_written_to_a_nanosecond_and_errors_as_they_are() -> None:
    ours = OurFigure(cold_us=4.00049, tune_s=1.23456, stolen=0.12345, max_error=1.23456e-7, worst=0.123456)
    row = BenchRow("R2", "n1c64h56w56k64r3s3p1-f32", 1.00049, ours, {"p": PeerFigure(reason="absent")})
    document = row.to_json()
    found = document["ours"]
    shares = document["floor_us"], found["cold_us"], found["tune_s"], found["stolen"]
    assert shares == (1.0, 4.0, 1.235, 0.123)
    assert (found["max_error"], found["worst"]) == (1.23456e-7, 0.123456)
    assert "reason" not in found and document["peers"]["p"]["reason"] == "absent"


def test_errors_of_any_size_are_read_back() -> None:
    """A factor makes them large, and so does a wrong answer, of which a row tells."""
    document = copy.deepcopy(DOCUMENT)
    figures = document["rows"][0]
    figures["ours"] |= {"max_error": 2e33, "error_bound": 5e35, "worst": 1e300}
    figures["peers"]["onednn"]["max_error"] = 2e33
    row = results.parse(json.loads(json.dumps(document))).rows[0]
    assert (row.ours.max_error, row.ours.error_bound, row.ours.worst) == (2e33, 5e35, 1e300)
    figures["ours"]["worst"] = math.inf
    with pytest.raises(StoreError, match="worst: must be a number"):
        results.parse(document)


def test_markdown_escapes() -> None:
    text = markdown(Table("", ("a", "b"), (("x|y", "<b>"), ("unrolled, __restrict__", "")), ("n<1",)))
    assert "x\\|y" in text
    assert "unrolled, \\_\\_restrict\\_\\_" in text, "no bold restrict"
    assert "<b>" not in text
    assert "&lt;1" in text


def test_our_failure_is_a_row_with_its_reason() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["rows"][0]["ours"] = {"reason": "no config compiled"}
    text = as_text(results_table(results.parse(document)))
    assert "tilewright has no time for R2: no config compiled" in text
    row = text.splitlines()[2].split()
    assert row == ["R2", "–", "–", "–", "300", "–", "900", "1200", "–", "–", "–"]


def test_what_is_to_be_known_of_our_kernel_is_a_note() -> None:
    document = copy.deepcopy(DOCUMENT)
    for row in document["rows"]:
        row["ours"]["note"] = "untuned: the model's choice"
    lines = as_text(results_table(results.parse(document))).splitlines()
    assert "R2, R3: untuned: the model's choice" in lines


def test_time_that_a_host_took_is_marked_and_said_once() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["rows"][0]["ours"]["stolen"] = 0.31
    shown = results_table(results.parse(document))
    assert [row[2] for row in shown.body] == ["600~", "80†"]
    assert "~ the host took 31% of the CPU's time while this was measured" in shown.notes
    assert NOISY_NOTE not in shown.notes
    document["rows"][1]["ours"] |= {"stolen": 0.09, "ci95_us": 9.0}
    assert any("took up to 31%" in note for note in results_table(results.parse(document)).notes)
    document["rows"][1]["ours"]["stolen"] = 0.0
    assert NOISY_NOTE in results_table(results.parse(document)).notes


def test_a_noisy_peer_is_marked_and_so_is_a_ratio_of_it() -> None:
    document = copy.deepcopy(DOCUMENT)
    document["rows"][0]["peers"]["onednn"]["ci95_us"] = 90.0
    document["rows"][1]["ours"]["ci95_us"] = 80.0  # of too few runs
    found = results.parse(document)
    shown, short = results_table(found), short_table(found)
    first, second = (dict(zip(shown.head, row, strict=True)) for row in shown.body)
    assert (first["ours"], first["onednn"], first["onnxruntime"], first["ratio"]) == (
        "600", "900~", "1200", "1.50~",
    )  # fmt: skip
    assert (second["ours"], second["±"], second["ratio"]) == ("80†~", "–", "0.75~")
    assert short.body[0][short.head.index("its time")] == "900~" and NOISY_NOTE in shown.notes
    assert found.rows[0].to_json()["peers"]["onednn"]["noisy"]
    document["rows"][1]["ours"]["ci95_us"] = 0.5
    document["rows"][0]["peers"] |= {"cudnn": {"cold_us": 700.0, "ci95_us": 1.0}}
    full, short = results_table(results.parse(document)), short_table(results.parse(document))
    assert NOISY_NOTE in full.notes and NOISY_NOTE not in short.notes  # the noisy one is not the fastest


def test_no_rows_is_a_table_with_a_head() -> None:
    lines = as_text(results_table(results.parse({"device": {}, "rows": []}))).splitlines()
    assert lines[0] == "unknown device; times in us, cold caches"
    assert lines[1].startswith("layer")


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0.1234, "0.123"), (12.34, "12.3"), (12345.6, "12346")]
)
def test_time_text(value: float | None, text: str) -> None:
    assert time_text(value) == text


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("rows",), None, "rows: must be a list, got None"),
        (("device",), [], "device: must be an object, got "),
        (("rows", 0), 3, r"rows\[0\]: must be an object"),
        (("rows", 1, "ours"), None, r"rows\[1\].ours: must be an object"),
        (("rows", 0, "floor_us"), "1", r"rows\[0\].floor_us: must be a number"),
        (("rows", 0, "peers", "onednn"), 4, r"rows\[0\].peers.onednn: must be an object"),
        (("rows", 0, "ours", "cold_us"), "600", "cold_us: must be a number"),
        (("rows", 0, "ours", "cold_us"), -1.0, "cold_us: must be a number"),
        (("rows", 0, "ours", "cold_us"), True, "cold_us: must be a number"),
        (("rows", 0, "ours", "deterministic"), 1, "deterministic: must be true or false"),
        (("rows", 0, "peers", "onednn", "layout"), [], "layout: must be a text"),
        (("rows", 0, "ours", "families"), {"gemm": [1]}, "families.gemm: must be a number"),
        (("rows", 0, "ours", "families"), {"direct": math.nan}, "families.direct: must be a number"),
        (("rows", 0, "ours", "families"), [], "families: must be an object"),
        (("rows", 0, "ours", "workspace_bytes"), 10**400, "workspace_bytes: must be an integer"),
        (("rows", 0, "ours", "workspace_bytes"), 1.5, "workspace_bytes: must be an integer"),
        (("rows", 0, "ours", "cold_us"), 10**400, "cold_us: must be a number"),
        (("rows", 0, "floor_us"), 10**400, r"rows\[0\].floor_us: must be a number"),
        (("rows", 0, "floor_us"), math.nan, r"rows\[0\].floor_us: must be a number"),
        (("rows", 0, "floor_us"), math.inf, r"rows\[0\].floor_us: must be a number"),
        (("rows", 0, "floor_us"), 1e-320, r"rows\[0\].floor_us: must be 0, or a number from 1e-15"),
        (("rows", 0, "ours", "cold_us"), 1e-320, r"rows\[0\].ours.cold_us: must be 0, or a number"),
        (("rows", 0, "ours", "families"), {"gemm": 1e-320}, "families.gemm: must be 0, or a number"),
        (("rows", 0, "peers", "onednn", "cold_us"), 1e-320, "onednn.cold_us: must be 0, or a number"),
        (("device", "rates"), {"read_gbs": 1e-320}, "device.rates.read_gbs: must be 0, or a number"),
        (("rows", 1, "problem"), "n1c64h5", r"rows\[1\].problem: problem 'n1c64h5'"),
        (("device", "rates"), "x", "device.rates: must be an object"),
        (("device", "rates"), {"read_gbs": "x", "f32_tflops": 1.0}, "read_gbs: must be a number"),
        (("device", "rates"), {"read_gbs": 0, "f32_tflops": 1.0}, "device.rates.read_gbs: must be above 0"),
        (("device", "peak_tflops"), "x", "device.peak_tflops: must be an object"),
        (("device", "peak_tflops"), {"f32": 0.0}, "device.peak_tflops.f32: must be above 0"),
    ],
)
def test_malformed_document_names_its_key(path: tuple[Any, ...], value: Any, says: str) -> None:
    document = copy.deepcopy(DOCUMENT)
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(StoreError, match=says):
        results.parse(document)


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"rows": []}'])
def test_bad_results_file(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "r.json"
    file.write_bytes(data)
    with pytest.raises(StoreError, match=r"r\.json"):
        results.load(file)


def test_missing_results_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        results.load(tmp_path / "r.json")


def test_svg_is_xml_the_same_each_time_and_follows_the_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    files = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for file in files:
        plot.draw(results.parse(DOCUMENT), file)
    text = files[0].read_text()
    assert text == files[1].read_text()
    assert xml.etree.ElementTree.fromstring(text).tag.endswith("svg")
    assert all(word in text for word in ("R2", "R3", "onednn", "onnxruntime", "Some CPU"))
    assert "cudnn" not in text
    assert "fill: #ffffff" not in text.lower()


def test_a_dollar_in_a_name_is_no_formula(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    document = copy.deepcopy(DOCUMENT)
    for row, name in zip(document["rows"], ("$\\frac$", "$100$"), strict=True):
        row["name"] = name
    plot.draw(results.parse(document), tmp_path / "a.svg")
    assert all(name in (tmp_path / "a.svg").read_text() for name in ("$\\frac$", "$100$"))


def _ladder(*speedups: tuple[float | None, float | None]) -> StudyResult:
    """Return a study of one ladder: of each step the speed-up here, and as published."""
    sample = load(Path(__file__).parent / "study_sample.json")
    part = next(part for part in sample.parts if part.chart == "ladder")
    rows = [
        {"layer": "L", "step": f"step {i}", "speedup": here, "published_speedup": there,
         "time_us": 90.0 / here if here else None}
        for i, (here, there) in enumerate(speedups)
    ]  # fmt: skip
    return replace(sample, parts=(replace(part, rows=tuple(rows)),))


def test_a_ladder_is_drawn_with_the_published_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = load(Path(__file__).parent / "study_sample.json")
    plot_study.draw_study(result, tmp_path / "ladder.svg")
    assert html.escape(result.title, quote=False) in (tmp_path / "ladder.svg").read_text()
    texts, bars = [], []
    for there in (None, 3.0):
        plot_study.draw_study(_ladder((1.0, there), (2.0, None), (None, there)), tmp_path / "a.svg")
        texts.append((tmp_path / "a.svg").read_text())
        bars.append(texts[-1].count("stroke-linejoin: miter"))
    bare, outlined = texts
    assert "step 2" in outlined and "step 2" not in bare  # a step that only the source has
    assert "published, " in outlined and "published" not in bare
    assert bars[1] == bars[0] + 2  # outlines
    assert "times as fast as step 0" in bare and "45 us" in bare
    plot_study.draw_study(replace(_ladder((1.0, None)), quick=True), tmp_path / "a.svg")
    assert "quick sizes" in (tmp_path / "a.svg").read_text()


def test_what_is_no_ladder_is_not_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for result in (_ladder(), _ladder((None, None)), replace(_ladder((1.0, None)), parts=())):
        with pytest.raises(OutputError, match="no part of the study has a ladder"):
            plot_study.draw_study(result, tmp_path / "none.svg")


def test_svg_without_ratios_or_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(OutputError, match="nothing to draw"):
        plot.draw(results.parse({"device": {}, "rows": []}), tmp_path / "a.svg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(OutputError, match=r"pip install -e '\.\[plot\]'"):
        plot.draw(results.parse(DOCUMENT), tmp_path / "a.svg")


def test_readme_tables(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/resnet-f32.json").write_text(json.dumps(DOCUMENT))
    before = (
        "a\n<!-- table: cpu/resnet-f32 -->\nSTALE\n<!-- end -->\nb\n<!-- table: h100/x -->\n<!-- end -->\n"
    )
    after = document_tables.with_tables(before, tmp_path)
    assert "| R2 | direct | 600 |" in after
    assert "STALE" not in after
    assert "No results yet" in after
    assert after.startswith("a\n")
    assert document_tables.with_tables(after, tmp_path) == after


def test_readme_summary_and_long_tables(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/resnet-f32.json").write_text(json.dumps(DOCUMENT))
    document = tmp_path / "README.md"
    document.write_text("<!-- summary: cpu -->\nSTALE\n<!-- end -->\n")
    assert document_tables.update([document], tmp_path)
    lines = document.read_text().splitlines()
    assert [line.split(" | ")[0] for line in lines] == [
        "<!-- summary: cpu -->", "| results", "| ---", "| resnet-f32", "<!-- end -->",
    ]  # fmt: skip
    assert f" | {len(DOCUMENT['rows'])} | " in lines[3]
    both = document_tables.with_tables("<!-- summary: cpu, cpu -->\n<!-- end -->", tmp_path).splitlines()
    assert both[3:5] == [lines[3].replace("resnet", "cpu/resnet")] * 2
    long = (tmp_path / "cpu/TABLES.md").read_text()
    assert "## resnet-f32" in long and "onednn" in long
    assert not document_tables.update([document], tmp_path)


def test_headline_has_a_line_for_each_file_with_its_extremes(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/resnet-f32.json").write_text(json.dumps(DOCUMENT))
    names = "cpu/resnet-f32, cpu/resnet-f32"
    lines = document_tables.with_tables(f"<!-- headline: {names} -->\n<!-- end -->", tmp_path).splitlines()
    assert lines[3] == lines[4] and len(lines) == 6
    rows = sorted((row for row in results.parse(DOCUMENT).rows if row.ratio), key=lambda row: row.ratio or 0)
    device, layers, peers, mean, lowest, highest = lines[3].strip("| ").split(" | ")
    assert layers.startswith("resnet, f32, batch 1 (") and "onednn" in peers and mean.startswith("**")
    assert lowest.startswith(f"{rows[0].ratio:.2f} ({rows[0].name}: ")
    assert highest.startswith(f"{rows[-1].ratio:.2f} ({rows[-1].name}: ")


def test_layers_that_a_peer_runs_faster_are_listed_lowest_first(tmp_path: Path) -> None:
    document, folder = json.loads(json.dumps(DOCUMENT)), tmp_path / "cpu"
    folder.mkdir()

    def listed(names: str) -> list[str]:
        text = document_tables.with_tables(f"<!-- slower: {names} -->\n<!-- end -->", tmp_path)
        return text.splitlines()[1:-1]

    def peers_take(rows: list[Any], shares: Sequence[float]) -> None:
        for row, share in zip(rows, shares, strict=True):
            ours = row["ours"].get("call_us") or row["ours"]["cold_us"]
            for peer in row["peers"].values():
                peer["cold_us"] = share * ours if peer.get("cold_us") else None

    peers_take(document["rows"], [2.0] * len(document["rows"]))
    (folder / "ahead-f32.json").write_text(json.dumps(document))
    assert listed("cpu") == listed("cpu/ahead-f32") == ["- None."]
    peers_take(document["rows"][:2], (0.9, 0.8))
    (folder / "behind-f32.json").write_text(json.dumps(document))
    first, second = (row["name"] for row in document["rows"][:2])
    line = f"- `cpu/behind-f32`, 2 of {len(document['rows'])}: {second} 0.80, {first} 0.90"
    assert listed("cpu") == [line] and listed("cpu/ahead-f32, cpu/behind-f32, cpu") == [line, line]


def test_readme_marker_cannot_leave_the_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="must name a file under"):
        document_tables.with_tables("<!-- table: ../secret -->\n<!-- end -->", tmp_path)


def test_committed_tables_are_up_to_date() -> None:
    found = document_tables.documents(ROOT)
    assert {path.name for path in found} > {"README.md", "results.md"}
    for document in found:
        text = document.read_text(encoding="utf-8")
        assert document_tables.with_tables(text, ROOT / "benchmarks") == text, (
            "run: python benchmarks/make_tables.py"
        )
    for folder in {path.parent for path in (ROOT / "benchmarks").glob("*/*.json")}:
        long = (folder / "TABLES.md").read_text(encoding="utf-8")
        assert long == document_tables.long_tables(sorted(folder.glob("*.json"))), (
            "run: benchmarks/make_tables.py"
        )
    for study in (ROOT / "benchmarks").glob("*/studies/*.json"):
        page = study.with_suffix(".md").read_text(encoding="utf-8")
        assert page == study_markdown(load(study)), "run: python benchmarks/make_tables.py"
