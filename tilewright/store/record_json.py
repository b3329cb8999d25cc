"""Whole records as JSON: for the store's rows, and for what a child process tells its parent."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any, TypeVar

from tilewright.errors import StoreError, shown
from tilewright.fields import Fields
from tilewright.record import Check, Measurement, Outcome, Record, Search, Spent, Standing, Versions

T = TypeVar("T")

# Fields of a Record that are not written under their own names: "context" has them as texts, except for the
# source, which has a column of its own.
_IN_CONTEXT = ("standing", "search", "versions", "shared_worst", "source")
_CONTEXT_KEYS = ("stage", "raced", "worst", "cut_s", "cut_trials", "untried")  # all others are versions


def to_json(record: Record) -> str:
    """Write a whole record, failures included, as one line of JSON."""
    return json.dumps(record_to_dict(record), sort_keys=True, separators=(",", ":"))


def from_json(text: str) -> Record:
    """Read what ``to_json`` wrote.

    Raises:
        StoreError: names the field that is missing or of the wrong type.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"record: not JSON ({error})") from None
    return record_from_dict(data)


def record_to_dict(record: Record) -> dict[str, Any]:
    """Return a record as plain values; "context" says how it was made, as texts by name."""
    data = asdict(record)
    for name in _IN_CONTEXT:
        del data[name]
    context, search = record.versions.to_dict(), record.search
    if record.standing:
        context["stage"] = record.standing.value
    if search.raced is not None:
        context["raced"] = " ".join(search.raced)
    if search.cut:
        context |= {"cut_s": f"{search.cut.seconds:.6g}", "cut_trials": str(search.cut.trials)}
    if search.untried:
        context["untried"] = " ".join(search.untried)
    if record.shared_worst is not None:
        context["worst"] = repr(record.shared_worst)
    return data | {"context": context}


def read_context(context: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a Record that its "context" holds.

    Raises:
        ValueError: a number is malformed.
    """
    others = dict(context)
    stage, raced, worst, seconds, trials, untried = (others.pop(name, None) for name in _CONTEXT_KEYS)
    return {
        "standing": {one.value: one for one in Standing}.get(stage or ""),
        "search": Search(
            None if raced is None else tuple(raced.split()),
            None if seconds is None or trials is None else Spent(float(seconds), int(trials)),
            tuple((untried or "").split()),
        ),
        "versions": Versions.from_dict(others),
        "shared_worst": None if worst is None else float(worst),
    }  # fmt: skip


def record_from_dict(data: object) -> Record:
    """Build a Record from its plain dictionary, every field checked."""
    f = Fields(data, "record")
    f.only("context", *(name for name in Record.__dataclass_fields__ if name not in _IN_CONTEXT))
    if (outcome := f.text("outcome")) not in list(Outcome):
        raise f.bad("outcome", "one of " + ", ".join(Outcome))
    context = f.data.get("context", {})
    if not isinstance(context, dict) or not all(isinstance(v, str) for v in context.values()):
        raise f.bad("context", "an object of strings")
    try:
        made = read_context(context)
    except ValueError:
        raise f.bad("context", "an object of strings, figures where they belong") from None
    return Record(
        problem=f.text("problem"), device=f.text("device", 400), family=f.text("family"),
        config=f.text("config", 2000), outcome=Outcome(outcome), deterministic=f.boolean("deterministic"),
        check=_part(f, "check", Check, _check), measurement=_part(f, "measurement", Measurement, time_of),
        reason=f.string("reason", ""), registers=f.integer("registers", 0, 1 << 40),
        workspace_bytes=f.integer("workspace_bytes", 0, 1 << 62),
        compile_s=f.number("compile_s"), **made,
    )  # fmt: skip


def _part(f: Fields, name: str, kind: type[T], read: Callable[[Fields], T]) -> T | None:
    """Read a part of a record; None if it has none."""
    if f.data.get(name) is None:
        return None
    found = f.section(name)
    found.only(*(one.name for one in fields(kind)))  # type: ignore[arg-type]
    return read(found)


def _check(f: Fields) -> Check:
    # A failed check may well hold an infinite or NaN error: those are data too.
    errors = [f.data.get(name) for name in ("max_error", "bound", "worst")]
    if not all(type(e) in (int, float) for e in errors):
        raise StoreError(f"{f.path}: max_error, bound and worst must be numbers, got {shown(errors)}")
    ok, exact, repeatable = (f.boolean(name) for name in ("ok", "exact", "repeatable"))
    max_error, bound, worst = (float(e) for e in errors if e is not None)
    return Check(ok, max_error, bound, worst, exact, repeatable, f.string("reason", ""))


def time_of(f: Fields) -> Measurement:
    """Read a time and its interval; a missing one names its field."""
    warm = None if f.data.get("warm_us") is None else f.number("warm_us")
    stolen = f.number("stolen") if "stolen" in f.data else 0.0
    return Measurement(f.number("cold_us"), f.number("ci95_us"), f.integer("runs", 0, 1 << 40), warm, stolen)
