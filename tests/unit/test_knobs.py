"""What a parameter is worth: trials that differ in it alone, and the tables that are made of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import document_tables
import knobs
import pytest
from knobs import Trial

LAYERS = [f"n1c{16 * count}h7w7k16r1s1-f32" for count in range(1, 31)]


def tried(layer: str, time_us: float, **values: int) -> Trial:
    return Trial(layer, "gemv", values, time_us)


def test_trials_are_compared_that_differ_in_one_parameter_alone() -> None:
    found = []
    for number, layer in enumerate(LAYERS):
        slow_us = 12.0 if number < 27 else 15.0
        found += [tried(layer, 10.0, a=1, b=1), tried(layer, slow_us, a=2, b=1), tried(layer, 9.0, a=2, b=2)]
        found += [tried(layer, 100.0, a=3, b=3), tried(layer, 200.0, a=4, b=3)]  # far from the best
    known = knobs.worth(found)
    assert known.keys() == {("gemv", "a"), ("gemv", "b")}
    a, b = known["gemv", "a"], known["gemv", "b"]
    assert (a["compared"], a["median"], a["ninth_decile"]) == (30, 0.2, pytest.approx(0.47))
    assert a["values"] == [{"value": 1, "won": 30, "tried": 30}, {"value": 2, "won": 0, "tried": 30}]
    assert b["median"] == pytest.approx(1 / 3, abs=1e-4) and b["values"][1]["won"] == 30
    assert knobs.worth(found[: 5 * (knobs.FEWEST - 1)]) == {}, "too few comparisons say nothing"


def figures(knob: str, median: float, ninth: float, **values: Any) -> dict[str, Any]:
    won = [{"value": int(name[1:]), **one} for name, one in values.items()]
    worth = {"compared": 100, "median": median, "ninth_decile": ninth, "values": won}
    return {"family": "gemv", "knob": knob, "meaning": f"what {knob} is", **worth}


def test_a_table_has_what_is_worth_most_first(tmp_path: Path) -> None:
    two = {"won": 90, "tried": 100, "name": "two"}
    less = figures("less", 0.02, 0.1, v1={"won": 5, "tried": 100}, v2=two)
    most = figures("most", 0.1, 0.2, v1={"won": 9, "tried": 9}, v8={"won": 80, "tried": 99})
    little = figures("little", 0.01, 0.04)
    head = {"device": "GPU", "trials": "trials.gz", "commit": "abc", "correct": 1234}
    (tmp_path / "knobs.json").write_text(json.dumps(head | {"knobs": [less, little, most]}))
    text = document_tables.with_tables("<!-- knobs: gemv -->\nSTALE\n<!-- end -->\n", tmp_path)
    assert text.splitlines()[3:] == [
        "| `most` | what most is | 10% (20%) | 8: 80 of 99 |",
        "| `less` | what less is | 2% (10%) | 2, two: 90 of 100; 1: 5 of 100 |",
        "", "Worth little: `little` 1% (4%).", "<!-- end -->",
    ]  # fmt: skip
    text = document_tables.with_tables("<!-- knobs: trials -->\n<!-- end -->\n", tmp_path)
    assert "the 1,234 trials of `trials.gz` at abc (GPU)" in text
    (tmp_path / "knobs.json").unlink()
    assert "No figures yet" in document_tables.with_tables("<!-- knobs: gemv -->\n<!-- end -->\n", tmp_path)
