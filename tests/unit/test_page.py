"""The HTML page, opened from a file in headless Chromium: no console errors; sorting and hovering work."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tilewright.cli import main
from tilewright.report import gather
from tilewright.report.html.charts import kernel_point, ratios, roofline
from tilewright.report.html.svg import WIDTH, Axis, legend, number

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "cpu" / "resnet-f32.json"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
]  # fmt: skip

# Presses a column's head twice and hovers over a point, then leaves what was seen in the page.
PROBE = """<script>{
const table = document.querySelector("table.sorts");
const column = [...table.tHead.rows[0].cells].findIndex((cell) => cell.textContent === "ours");
const read = () => [...table.tBodies[0].rows].map((row) => Number(row.cells[column].dataset.v));
const press = () => table.tHead.rows[0].cells[column].querySelector("button").click();
const seen = { before: read() };
press(); seen.up = read(); seen.sorted = table.tHead.rows[0].cells[column].getAttribute("aria-sort");
press(); seen.down = read();
const point = document.querySelector("svg circle.full");
point.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
const tip = document.getElementById("tip");
seen.tip = tip.hidden ? "" : tip.textContent;
document.body.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
seen.gone = tip.hidden;
seen.wide = document.documentElement.scrollWidth <= innerWidth;
seen.charts = document.querySelectorAll("svg").length;
document.body.dataset.seen = JSON.stringify(seen);
}</script>"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a benchmark and of a study, as the command writes it."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    study = Path(__file__).parent / "study_sample.json"
    assert main(["report", str(RESULTS), str(study), "--html", str(file)]) == 0
    return file


def test_the_page_needs_nothing_else(written: Path) -> None:
    text = written.read_text(encoding="utf-8")
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)""", text) and "@import" not in text
    assert "url(" not in text and "default-src 'none'" in text
    assert "<title>tilewright: results</title>" in text
    assert text.count("<svg") >= 5 and "prefers-color-scheme: dark" in text and "@media print" in text


def test_the_page_has_the_title_that_was_asked_for(written: Path, tmp_path: Path) -> None:
    assert "<title>tilewright: results</title>" in written.read_text()
    other = tmp_path / "other.html"
    assert main(["report", str(RESULTS), "--html", str(other), "--title", "Mine & yours"]) == 0
    assert "<title>Mine &amp; yours</title>" in other.read_text()


def test_the_page_says_how_the_results_were_measured(written: Path) -> None:
    """Enough to measure them again: the commit is in the line above the table."""
    text = written.read_text(encoding="utf-8")
    told = text.partition("<summary>How it was measured</summary>")[2].partition("</details>")[0]
    rows = dict(re.findall(r"<tr><td>(.*?)</td><td[^>]*>(.*?)</td></tr>", told))
    protocol = json.loads(RESULTS.read_text())["protocol"]
    assert (rows["seed"], rows["budget"], rows["threads"]) == ("0", protocol["budget"], "2")
    assert (rows["tuned"], rows["peers"]) == ("yes", ", ".join(protocol["peers"]))
    assert rows["min rounds"] == str(protocol["limits"]["min_rounds"]) and "families" not in rows


def test_results_are_those_in_benchmarks_unless_some_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "benchmarks" / "here" / "resnet-f32.json"
    there.parent.mkdir(parents=True)
    there.write_text(RESULTS.read_text())
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--json", "-"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_what_a_file_says_is_escaped() -> None:
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    found["rows"][0]["name"] = "<script>alert(1)</script>"
    found["rows"][0]["ours"]["note"] = '"><img src=x>'
    text = gather.html("<b>", [gather.of_document("<i>", found)])
    assert "<script>alert" not in text and "<img" not in text and "<i>" not in text and "<b>" not in text


def opened(folder: Path, text: str, size: str) -> tuple[dict[str, Any], list[str]]:
    """Open a page with the probe in it; return what the probe saw and the console's lines."""
    assert CHROMIUM is not None
    (folder / "page.html").write_text(text.replace("</body>", PROBE + "</body>"), encoding="utf-8")
    line = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}/profile", f"--window-size={size}", "--dump-dom"]
    done = subprocess.run(
        [*line, (folder / "page.html").as_uri()], capture_output=True, text=True, timeout=120, check=False
    )
    seen = re.search(r'data-seen="([^"]*)"', done.stdout)
    assert seen, done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(seen[1])), console


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
@pytest.mark.parametrize("size", ["1200,900", "500,900"])
def test_in_a_browser(size: str, written: Path, tmp_path: Path) -> None:
    seen, console = opened(tmp_path, written.read_text(encoding="utf-8"), size)
    assert console == []
    assert seen["sorted"] == "ascending"
    assert seen["up"] == sorted(seen["before"]) != seen["before"]
    assert seen["down"] == seen["up"][::-1]
    assert "n1c" in seen["tip"] and "direct:" in seen["tip"] and seen["gone"]
    assert seen["wide"], "the page itself must not scroll sideways"
    assert seen["charts"] >= 5


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
def test_the_browser_test_sees_errors(tmp_path: Path, written: Path) -> None:
    broken = written.read_text(encoding="utf-8").replace("</body>", "<script>missing()</script></body>")
    assert any("missing" in line for line in opened(tmp_path, broken, "800,600")[1])


@pytest.mark.parametrize(
    ("low", "high", "log"),
    [
        (0.3, 70, True), (1, 3, True), (1e-15, 1e15, True), (5e-324, 1.7e308, True),
        (0, 9, False), (2, 2.5, False),
    ],  # fmt: skip
)
def test_axes_have_ticks_in_order(low: float, high: float, log: bool) -> None:
    axis = Axis(low, high, 100, 500, log)
    ticks = axis.ticks()
    assert ticks == sorted(ticks) and 2 <= len(ticks) <= 32 and all(low <= tick <= high for tick in ticks)
    places = [axis.at(tick) for tick in ticks]
    assert places == sorted(places) and places[0] >= 100 and places[-1] <= 500


def test_a_legend_that_is_wider_than_its_chart_has_more_rows() -> None:
    names = [f"{who}{dtype}" for dtype in ("", " f16", " i8") for who in ("tilewright", "fastest peer")]
    parts, more = legend(names, 332)
    texts = re.findall('<text x="([0-9.]+)".*>(.+)<', "\n".join(parts))
    ends = [float(x) + 7.2 * len(name) for x, name in texts]
    assert len(ends) == 6 and max(ends) <= WIDTH and more == 18
    assert legend(names[:2], 332)[1] == 0


@pytest.mark.parametrize(("layers", "labels", "turn"), [
    (["R1", "R2"], 2, -45), ([f"n1c{c}h28w28k256r3s3p1d2g32-f32-nhwc" for c in range(150)], 38, -90),
])  # fmt: skip
def test_names_below_columns_lie_above_the_legend(layers: list[str], labels: int, turn: int) -> None:
    text = ratios([(layer, {"peer": (2.0, "")}) for layer in layers], ["peer"], "title")
    found = re.findall(rf"translate\(([0-9.]+) ([0-9.]+)\) rotate\({turn}\)\">([^<]+)<", text)
    names = [(float(y), name) for _, y, name in found if name != "title"]
    ((key, height),) = re.findall(r'y="([0-9.]+)" width="10" height="([0-9]+)"/>', text)
    assert len(names) == labels
    assert all(y + 6.5 * len(name) <= float(key) + float(height) for y, name in names)


def test_the_roof_is_that_of_the_fastest_dtype() -> None:
    rates = {"read_gbs": 3000.0, "f32_tflops": 66.1}
    points = [kernel_point("n1c64h56w56k64r3s3p1-f16", 2.0, 0, "")]
    assert "66.1 TFLOP/s in f32" in roofline(points, ["it"], {"rates": rates})
    peaks = {"f32": 66.1, "f16": 674.4}
    assert "674 TFLOP/s in f16" in roofline(points, ["it"], {"rates": rates, "peak_tflops": peaks})


def test_numbers() -> None:
    assert [number(v) for v in (0.05, 1, 20, 1000, 2.5e6, 1e9)] == ["0.05", "1", "20", "1k", "2.5M", "1G"]
    assert number(1e308) == "1e+308"


@pytest.mark.parametrize("form", ["--html", "--markdown", "table"])
def test_a_file_of_absurd_figures_has_a_readable_table(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever edits a file may write any; an error may be of any size, since an answer may be wrong."""
    found = json.loads(RESULTS.read_text())
    found["device"] |= {"lanes": 10**300, "clock_ghz": 1e308}
    slow, fast, wrong, lowest = found["rows"][:4]
    slow["floor_us"] = slow["ours"]["workspace_bytes"] = 10**15
    slow["ours"]["cold_us"] = 1e-15
    fast["ours"] |= {"cold_us": 1e15, "noisy": True, "stolen": 1e15}
    wrong["ours"] |= {"worst": 1.7e308, "max_error": 1e308}
    lowest["ours"]["worst"] = 5e-324
    (file := tmp_path / "absurd.json").write_text(json.dumps(found))
    assert main(["report", str(file), *([] if form == "table" else [form, "-"])]) == 0
    shown = capsys.readouterr().out
    assert not re.search(r"[0-9][0-9,]{40}|\b(nan|inf)\b", shown)
    assert "1e+30x‡" in shown and "1.7e+308" in shown


@pytest.mark.parametrize("value", [1e308, -1e308, 5e-324, 0, 10**300])
def test_absurd_figures_of_a_study_have_a_readable_table(
    value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = json.loads((Path(__file__).parent / "study_sample.json").read_text())
    above_0 = ("time_us", "speedup", "published_speedup", "best_us")
    for part in study["parts"]:
        for row in part["rows"]:
            figures = [key for key, was in row.items() if type(was) in (int, float) and key not in above_0]
            row |= dict.fromkeys(figures, value)
    (file := tmp_path / "study.json").write_text(json.dumps(study))
    for form in ([], ["--html", "-"], ["--markdown", "-"]):
        assert main(["report", str(file), *form]) == 0
        assert not re.search(r"[0-9][0-9,]{40}|\b(nan|inf)\b", capsys.readouterr().out)


@pytest.mark.parametrize("name", ["speedup", "published_speedup", "time_us"])
@pytest.mark.parametrize("value", [0, -1.0, 1e-320, 1e308, "1"])
def test_a_study_whose_figures_no_axis_has_is_an_error(
    name: str, value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = json.loads((Path(__file__).parent / "study_sample.json").read_text())
    study["parts"][0]["rows"][0][name] = value
    (file := tmp_path / "study.json").write_text(json.dumps(study))
    assert main(["report", str(file), "--html", str(tmp_path / "page.html")]) == 2
    said = f"parts[0].rows[0].{name}: must be a number from 1e-15 to 1e+15, got {value!r}\n"
    assert (shown := capsys.readouterr().err).endswith(said) and len(shown.splitlines()) == 1


@pytest.mark.parametrize("value", [-1.0, 1e-320, 1e308])
def test_a_search_at_an_absurd_time_is_an_error(
    value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = json.loads((Path(__file__).parent / "study_sample.json").read_text())
    rows = [{"layer": "A", "strategy": "b", "best_us": 1.0, "elapsed_s": found} for found in (0, 2.0, value)]
    file = tmp_path / "study.json"
    for count, status in ((2, 0), (3, 2)):
        study["parts"] = [study["parts"][0] | {"chart": "curve", "rows": rows[:count]}]
        file.write_text(json.dumps(study))
        assert main(["report", str(file), "--html", str(tmp_path / "page.html")]) == status
    assert "parts[0].rows[2].elapsed_s: must be" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("chart", "name"),
    [("ladder", "step"), ("bars", "step"), ("bars", "problem"), ("model", "problem"), ("curve", "strategy")],
)
def test_a_study_without_what_its_charts_name_is_an_error(
    chart: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = json.loads((Path(__file__).parent / "study_sample.json").read_text())
    row = {"layer": "A", "step": "a", "strategy": "b", "time_us": 1.0, "problem": "n1c1h1k1r1"}
    row |= {"speedup": 2.0, "device": study["device"]["name"], "elapsed_s": 1.0, "best_us": 1.0}
    study["parts"] = [study["parts"][0] | {"chart": chart, "rows": [row]}]
    (file := tmp_path / "study.json").write_text(json.dumps(study))
    assert main(["report", str(file), "--html", str(tmp_path / "page.html")]) == 0
    del row[name]
    file.write_text(json.dumps(study))
    capsys.readouterr()
    assert main(["report", str(file), "--html", str(tmp_path / "page.html")]) == 2
    said = f"parts[0].rows[0].{name}: must be a text, it is missing\n"
    assert (shown := capsys.readouterr().err).endswith(said) and len(shown.splitlines()) == 1


@pytest.mark.parametrize(
    ("files", "words"),
    [
        (["{tmp}/missing.json"], ["missing.json", "No such file"]),
        (["{tmp}/odd.json"], ["odd.json", "not JSON"]),
        (["/dev/zero"], ["/dev/zero", "not JSON"]),
        (["{tmp}/list.json"], ["list.json", "want one written by 'bench --json'"]),
        (["{tmp}/study.json"], ["study.json", "damaged", "name: must be a text, it is missing"]),
        (["{tmp}/endless.json", "--json", "-"], ["endless.json", "NaN or Infinity"]),
        (["{tmp}/rates.json", "--html", "-"], ["rates.json", "device.rates: must be an object"]),
        (["{tmp}/large.json", "--html", "-"], ["large.json", "damaged", "must be a finite number"]),
        ([], ["no results files", "benchmarks/"]),
    ],
)
def test_mistakes(
    files: list[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "study.json").write_text('{"format": "tilewright-study"}')
    (tmp_path / "endless.json").write_text('{"device": {}, "rows": [], "more": [1e999]}')
    study = json.loads((Path(__file__).parent / "study_sample.json").read_text())
    (tmp_path / "rates.json").write_text(json.dumps(study | {"device": study["device"] | {"rates": "x"}}))
    study["parts"][0]["rows"][0]["time_us"] = 10**400
    (tmp_path / "large.json").write_text(json.dumps(study))
    assert main(["report", *(file.replace("{tmp}", str(tmp_path)) for file in files)]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ") and len(shown.splitlines()) == 1
    assert all(word in shown for word in words)


def test_other_forms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = Path(__file__).parent / "study_sample.json"
    files = {kind: tmp_path / f"x.{kind}" for kind in ("md", "csv", "json")}
    line = ["--markdown", str(files["md"]), "--csv", str(files["csv"]), "--json", str(files["json"])]
    assert main(["report", str(RESULTS), str(study), *line]) == 0
    assert "| R12 |" in files["md"].read_text() and "## Table 2" in files["md"].read_text()
    assert files["csv"].read_text().startswith("file,part,row,column,value\n")
    assert len(json.loads(files["json"].read_text())) == 2
    there = [tmp_path / when / "h100" / "x.json" for when in ("old", "new")]
    for file in there:
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"device": {}, "rows": [], "date": file.parts[-3]}))
    assert main(["report", *map(str, [*there, there[0], RESULTS]), *line]) == 0
    together = json.loads(files["json"].read_text())
    assert list(together) == [*map(str, there), "cpu resnet-f32"]
    assert [together[str(file)]["date"] for file in there] == ["old", "new"]
    capsys.readouterr()
    assert main(["report", str(study)]) == 0
    assert "█" in capsys.readouterr().out
