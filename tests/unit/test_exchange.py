"""Sharing winners: typed JSON out and in, every bad field refused, shipped files below the user's own."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from store_samples import DEVICE, H100, KERNELS, LAYER, Tiles, best, families, path, record

from tilewright.cli import main
from tilewright.device import for_architecture
from tilewright.errors import StoreError
from tilewright.hints import likely
from tilewright.record import Measurement, Standing
from tilewright.store import Store, shipped
from tilewright.store.exchange import import_text

__all__ = ["families", "path"]  # fixtures


def shared(**changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "problem": LAYER,
        "device": H100,
        "family": "tiles",
        "config": {"t": 2, "u": 0},
        "deterministic": True,
        "cold_us": 12.5,
        "ci95_us": 0.1,
        "warm_us": None,
        "runs": 50,
        "worst": 0.2,
        "provenance": {"driver": "1"},
    }
    return {k: v for k, v in (row | changes).items() if v != "gone"}


def file_of(*rows: object, **changes: Any) -> str:
    return json.dumps({"format": "tilewright-tuned", "schema": 1, "records": list(rows)} | changes)


def test_an_import_goes_before_what_was_only_tried_here(path: Path) -> None:
    box = Store(path)
    older = dict(compiler="c0", stage=Standing.TRIAL.value)
    for t in (1, 2, 4):
        box.add(record(f"tiles:t={t}.u=1", 10.0 + t, context=older))
    box.add(record("tiles:t=1.u=0", 12.0, context=older | dict(stage=Standing.WINNER.value)))
    box.add(record("tiles:t=2.u=0", 9.0, context=older), "imported")
    found = [(h.record.config, str(h.basis)) for h in likely(box, LAYER, H100, sources=KERNELS)]
    assert found[:2] == [("tiles:t=1.u=0", "older source"), ("tiles:t=2.u=0", "imported")] and len(found) == 5


def test_export_and_import(path: Path, tmp_path: Path) -> None:
    box = Store(path)
    box.add(record("tiles:t=1.u=0", 10.0, context={"compiler": "c1", "driver": "5", "home": "/home/me"}))
    box.add(record("tiles:t=2.u=1", 5.0, deterministic=False))
    box.add(record("tiles:t=4.u=0", 1.0, outcome="correctness", check=None, measurement=None))
    text = box.export_json()
    assert "/home/me" not in text and "t=4" not in text
    assert {json.dumps(r["config"]) for r in json.loads(text)["records"]} == {
        '{"t": 1, "u": 0}',
        '{"t": 2, "u": 1}',
    }
    other = Store(tmp_path / "other" / "records.sqlite")
    assert other.import_json(text) == 2
    assert best(other) is None, "what is imported is not trusted"
    hints = likely(other, LAYER, H100, sources=KERNELS)
    assert [h.record.config for h in hints] == ["tiles:t=2.u=1", "tiles:t=1.u=0"]
    assert hints[0].basis == "imported" and hints[1].record.versions.driver == "5"
    assert other.import_json(text) == 0, "what was imported before is not kept twice"
    assert len(likely(other, LAYER, H100, sources=KERNELS)) == 2
    assert [h.record.config for h in likely(other, LAYER, H100, True, KERNELS)] == ["tiles:t=1.u=0"]
    assert other.info().imported == 2
    assert json.loads(other.export_json())["records"] == [], "what was not verified here is not passed on"
    other.add(record("tiles:t=1.u=0", 20.0), "verified")
    assert best(other) == "tiles:t=1.u=0"
    assert box.export_json(LAYER + "-nhwc").count("problem") == 0


def test_a_winner_that_cannot_be_read_is_left_out_of_an_export(path: Path) -> None:
    box = Store(path, shipped=False)
    box.add(record("tiles:t=one", 1.0))
    box.add(record("tiles:t=1.u=0", problem=f"{LAYER}-nhwc"))
    with pytest.warns(RuntimeWarning, match=f"a winner of {LAYER} is left out: config 'tiles:t=one'"):
        text = box.export_json()
    assert [row["problem"] for row in json.loads(text)["records"]] == [f"{LAYER}-nhwc"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"problem": f"{LAYER}+unheard"}, "unknown word"),
        ({"family": "gone", "config": "gone:t=1"}, "must be one of tiles"),
        ({"config": "tiles:t=8.u=0"}, "t=8 must be one of 1, 2, 4"),
    ],
)
def test_what_an_import_would_refuse_is_left_out_of_an_export(
    path: Path, tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    """A store may have winners of another version: one of them would keep all others from being imported."""
    box = Store(path, shipped=False)
    box.add(record("tiles:t=1.u=0", problem=f"{LAYER}-nhwc"))
    box.add(replace(record(), **changes))
    with pytest.warns(RuntimeWarning, match=f"is left out: export.*{why}"):
        text = box.export_json()
    assert Store(tmp_path / "other" / "records.sqlite", shipped=False).import_json(text) == 1


def test_what_an_import_on_the_same_cpu_would_refuse_is_left_out_of_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rules of a CPU's configs may have changed since; no key of one tells what they need to know."""
    here = replace(DEVICE, backend="opencl", name="a CPU", arch="x86_64")
    monkeypatch.setattr("tilewright.runtime.list_devices", lambda: [here])
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "one"))
    Store().add(record("tiles:t=1.u=0", device=here.key))
    Store().add(record("tiles:t=8.u=0", device=here.key, problem=f"{LAYER}-nhwc"))
    with pytest.warns(RuntimeWarning, match=f"of {LAYER}-nhwc is left out: export.config.*t=8 must be"):
        assert main(["cache", "export", str(file := tmp_path / "winners.json")]) == 0
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "other"))
    assert main(["cache", "import", str(file)]) == 0


def test_of_a_check_made_elsewhere_only_the_worst_error_is_known(path: Path) -> None:
    box = Store(path, shipped=False)
    assert box.import_json(file_of(shared())) == 1
    (found,) = likely(box, LAYER, H100, sources=KERNELS)
    assert (found.record.check, found.record.worst, record().worst) == (None, 0.2, 0.1)
    assert found.record.measurement == Measurement(12.5, 0.1, 50), "nor whether its machine was busy"
    assert replace(record(), check=None).worst is None


def test_a_failed_import_is_not_tried_again(path: Path) -> None:
    box = Store(path, shipped=False)
    box.import_json(file_of(shared()))
    box.add(record("tiles:t=2.u=0", outcome="correctness", measurement=None), "verified")
    assert likely(box, LAYER, H100, sources=KERNELS) == []


BAD_ROWS: list[tuple[dict[str, Any], str]] = [
    ({"problem": "gone"}, "problem.*missing"),
    ({"problem": 5}, "problem.*printable line"),
    ({"problem": "resnet50"}, "cannot read"),
    ({"problem": LAYER + "\n"}, "problem.*printable line"),
    ({"problem": "n1c64h5w5k8r9s9-f32"}, "output would be empty"),
    ({"problem": LAYER + "g2"}, "takes no groups|cannot read"),
    ({"problem": "n1c64h56w56k128r3s3p1g2-f32"}, "takes no groups"),
    ({"problem": "c" + "9" * 300}, "at most 200"),
    ({"device": "gone"}, "device.*missing"),
    ({"device": "H100"}, "backend/name/arch/units"),
    ({"device": "vulkan/x/y/4"}, "backend/name/arch/units"),
    ({"device": "cuda/x/sm_90/many"}, "backend/name/arch/units"),
    ({"device": "cuda//sm_90/132"}, "backend/name/arch/units"),
    ({"device": "cuda/x/sm_90;rm/132"}, "architecture like sm_90"),
    ({"device": "cuda/x/../132"}, "architecture like sm_90"),
    ({"device": "cuda/\x1b[31mx/sm_90/132"}, "printable line"),
    ({"family": "gone"}, "family.*missing"),
    ({"family": "os.system"}, "one of tiles"),
    ({"family": "../../etc/passwd"}, "one of tiles"),
    ({"family": None}, "printable line"),
    ({"config": "gone"}, "config.*object"),
    ({"config": "tiles:t=1.u=0"}, "config.*object"),
    ({"config": {"t": 2}}, "u must be given, too"),
    ({"config": {"t": 2, "u": 0, "x": 1}}, "x is no parameter"),
    ({"config": {"t": 3, "u": 0}}, "t=3 must be one of 1, 2, 4"),
    ({"config": {"t": "2", "u": 0}}, "config.t.*integer"),
    ({"config": {"t": 2.0, "u": 0}}, "config.t.*integer"),
    ({"config": {"t": True, "u": 0}}, "config.t.*integer"),
    ({"config": {"t": -2, "u": 0}}, "config.t.*integer from 0"),
    ({"config": {"t": 10**30, "u": 0}}, "config.t.*integer from 0"),
    ({"config": {"t 1\n#include </etc/passwd>": 2, "u": 0}}, "no parameter name"),
    ({"config": {"__class__": 2, "u": 0}}, "no parameter name"),
    ({"config": {f"p{i}": 1 for i in range(100)}}, "too many"),
    ({"device": "cuda/x/sm_90/64", "config": {"t": 4, "u": 0}}, "breaks rule 'wide tiles'"),
    ({"config": {"t": 2, "u": 1}}, "order that varies"),
    ({"deterministic": 1}, "true or false"),
    ({"deterministic": "gone"}, "true or false.*missing"),
    ({"cold_us": "gone"}, "cold_us.*missing"),
    ({"cold_us": 0}, "cold_us.*more than 0"),
    ({"cold_us": -1.0}, "cold_us.*number from 0"),
    ({"cold_us": "12"}, "cold_us.*number"),
    ({"cold_us": True}, "cold_us.*number"),
    ({"cold_us": 1e300}, "cold_us.*number"),
    ({"ci95_us": None}, "ci95_us.*number"),
    ({"warm_us": "fast"}, "warm_us.*number"),
    ({"runs": 1.5}, "runs.*integer"),
    ({"worst": 1.5}, "worst.*number from 0 to 1"),
    ({"provenance": []}, "provenance.*object"),
    ({"provenance": {"driver": 5}}, "provenance.driver.*printable"),
    ({"provenance": {"path": "/home"}}, "unknown field 'path'"),
    ({"source": "__global__ void f() {}"}, "unknown field 'source'"),
    ({"binary": "AAAA"}, "unknown field 'binary'"),
]


@pytest.mark.parametrize(("changes", "words"), BAD_ROWS, ids=[str(c)[:40] for c, _ in BAD_ROWS])
def test_a_bad_row_is_refused_and_nothing_imported(path: Path, changes: dict[str, Any], words: str) -> None:
    box = Store(path)
    with pytest.raises(StoreError, match=words) as error:
        box.import_json(file_of(shared(), shared(**changes)), source="friend.json")
    assert "friend.json: records[1]" in str(error.value) and "\n" not in str(error.value)
    assert "\x1b" not in str(error.value)
    assert box.records() == []


BAD_FILES = {
    "": "not a valid JSON",
    "hello": "not a valid JSON",
    "\x80\x04\x95": "not a valid JSON",
    "[]": "must be an object",
    "{}": "format.*missing",
    '{"format": "x", "format": "tilewright-tuned"}': "given twice",
    file_of(format="other"): "format",
    file_of(schema=2): "another version",
    file_of(schema=True): "another version",
    file_of(schema="1"): "another version",
    file_of(records={}): "a list",
    file_of(exec="rm"): "unknown field 'exec'",
    file_of(5): "records\\[0\\]: must be an object",
    file_of([]): "records\\[0\\]: must be an object",
    file_of(shared()).replace("12.5", "NaN"): "NaN is not JSON",
    file_of(shared()).replace("12.5", "-Infinity"): "Infinity is not JSON",
    file_of(shared()).replace("12.5", "9" * 6000): "not a valid JSON|number from",
    "[" * 200_000: "nested too deeply",
    '{"a":' * 100_000: "nested too deeply",
}


@pytest.mark.parametrize(
    "text", BAD_FILES, ids=lambda t: t[:30].encode("ascii", "replace").decode() or "empty"
)
def test_a_bad_file_is_refused(path: Path, text: str) -> None:
    box = Store(path)
    with pytest.raises(StoreError, match=BAD_FILES[text]) as error:
        box.import_json(text)
    assert len(str(error.value)) < 400
    assert box.records() == []


def test_a_huge_file_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.store.store.MAX_FILE_BYTES", 100)
    with pytest.raises(StoreError, match="at most 100"):
        Store(path).import_json(file_of(shared()))


def test_devices_at_hand_are_used_for_the_rules(path: Path) -> None:
    small = replace(for_architecture("sm_90"), backend="opencl", arch="gfx9", units=8)
    row = shared(device=small.key, config={"t": 4, "u": 0})
    assert len(import_text(file_of(row), "f", (Tiles(),))) == 1, "unknown device: checked at first use"
    with pytest.raises(StoreError, match="wide tiles"):
        import_text(file_of(row), "f", (Tiles(),), [DEVICE, small])
    assert len(import_text(file_of(row), "f", (Tiles(),), [replace(small, units=7)])) == 1, "another device"


@pytest.mark.parametrize("device", ["cuda/x/sm_121/64", "opencl/x/sm_90/64"])
def test_a_device_of_unknown_facts_is_left_to_its_first_use(device: str) -> None:
    row = shared(device=device, config={"t": 4, "u": 0})
    assert [one.device for one in import_text(file_of(row), "f", (Tiles(),))] == [device]


def test_versions_that_are_no_line_are_exported_as_one(path: Path) -> None:
    """A driver may say anything: its winners can be imported all the same."""
    box = Store(path, shipped=False)
    box.add(record(context={"compiler": "c1", "driver": "PoCL\n\x1b" + "6" * 300}))
    (row,) = json.loads(box.export_json())["records"]
    assert row["provenance"] == {"driver": "PoCL" + "6" * 196, "compiler": "c1"}


def test_shipped_winners_lie_below_the_users_own(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad, slow = shared(config={"t": 3, "u": 0}), shared(config={"t": 1, "u": 0}, cold_us=99.0)
    files = [
        ("a.json", file_of(bad, slow, shared(), 5)),
        ("b.json", "no json"),
        ("c.json", file_of(schema=7)),
    ]
    monkeypatch.setattr(shipped, "_files", lambda: iter(files))
    shipped.shipped_rows.cache_clear()
    box = Store(path)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert box.info().shipped == 3
            found = likely(box, LAYER, H100, sources=KERNELS)
            assert [h.record.config for h in found] == ["tiles:t=2.u=0", "tiles:t=1.u=0"]
            assert {h.basis for h in found} == {"shipped"}
        assert len(caught) == 3
        box.import_json(file_of(shared(config={"t": 4, "u": 0}, cold_us=500.0)))
        first, *_ = likely(box, LAYER, H100, sources=KERNELS)
        assert first.record.config == "tiles:t=4.u=0", "the user's own first"
        assert likely(Store(path, shipped=False), LAYER, H100, sources=KERNELS)[1:] == []
        assert best(box) is None
    finally:
        shipped.shipped_rows.cache_clear()


def test_winners_of_the_same_chip_are_hints(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's own first, whatever time another took; those of another chip never."""
    h200, pcie = "cuda/NVIDIA H200/sm_90/132", "cuda/NVIDIA H100 PCIe/sm_90/114"
    rows = [shared(), shared(device=h200, config={"t": 1, "u": 0}, cold_us=99.0),
            shared(device=pcie, config={"t": 1, "u": 1}, deterministic=False)]  # fmt: skip
    monkeypatch.setattr(shipped, "_files", lambda: iter([("a.json", file_of(*rows))]))
    shipped.shipped_rows.cache_clear()
    try:
        box = Store(path)
        assert [h.record.config for h in likely(box, LAYER, h200)] == ["tiles:t=1.u=0", "tiles:t=2.u=0"]
        assert [h.record.config for h in likely(box, LAYER, H100)] == ["tiles:t=2.u=0", "tiles:t=1.u=0"]
        assert [h.record.config for h in likely(box, LAYER, pcie)] == ["tiles:t=1.u=1"]
        box.add(record("tiles:t=4.u=0", 1.0))
        box.import_json(file_of(shared(config={"t": 4, "u": 1}, deterministic=False)))
        assert best(box) is not None and box.best(LAYER, h200) is None, "not to be run unverified"
        hints = {h.record.config: h.basis for h in likely(Store(path, shipped=False), LAYER, h200)}
        assert hints == {"tiles:t=4.u=0": "another device's", "tiles:t=4.u=1": "imported"}
        assert likely(Store(path, shipped=False), LAYER, pcie) == []
        assert likely(Store(path), LAYER, pcie, deterministic=True) == []
        first, *_ = likely(box, LAYER, h200)
        assert (first.record.config, first.basis) == ("tiles:t=1.u=0", "shipped"), "its own before kin's"
        assert len(likely(box, LAYER, h200)) == 4
    finally:
        shipped.shipped_rows.cache_clear()


def test_what_is_shipped_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.kernels import FAMILIES

    for name, text in shipped._files():
        assert import_text(text, name, FAMILIES)
