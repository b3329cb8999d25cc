"""Winners as JSON that people share, and that we ship.

A shared file holds numbers, problem strings and parameters by name, never source or a binary.
Every field is checked on the way in; a config is compiled and verified again before it is trusted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from tilewright.device import ARCHITECTURES, BACKENDS, Device, read_key
from tilewright.device.architectures import capability
from tilewright.errors import ConfigError, ProblemError, StoreError, shown, warn_once
from tilewright.fields import LINE, Fields
from tilewright.kernels.config import MAX_VALUE, Config
from tilewright.kernels.family import Family
from tilewright.problem import Problem
from tilewright.record import Outcome, Record, Versions
from tilewright.store.record_json import time_of

FORMAT = "tilewright-tuned"
SCHEMA = 1
MAX_FILE_BYTES = 64 << 20
PROVENANCE = ("driver", "compiler", "clocks", "version")

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")


def export_text(
    records: Iterable[Record], families: Sequence[Family], devices: Sequence[Device] = ()
) -> str:
    """Write winners, which all have a check and a time, as a shareable JSON file: typed parameters and
    figures only.

    What an import would refuse is left out, with a warning: a family, say, that only another version has, or
    a config that broke no rule of an older one. ``devices`` are those of ``import_text``.
    """
    rows = []
    for record in records:
        try:
            row = _shared(record)
            read_row(row, "export", families, devices)
        except (ConfigError, StoreError) as error:  # made by hand, or by another version
            warn_once(f"a winner of {record.problem} is left out: {error}")
        else:
            rows.append(row)
    return json.dumps({"format": FORMAT, "schema": SCHEMA, "records": rows}, indent=1, allow_nan=False) + "\n"


def _shared(record: Record) -> dict[str, Any]:
    assert record.measurement and record.check
    time, versions = record.measurement, record.versions.to_dict()
    return {
        "problem": record.problem,
        "device": record.device,
        "family": record.family,
        "config": Config.parse(record.config).values,
        "deterministic": record.deterministic,
        "cold_us": time.cold_us,
        "ci95_us": time.ci95_us,
        "warm_us": time.warm_us,
        "runs": time.runs,
        "worst": record.check.worst,
        "provenance": {k: _line(versions[k]) for k in PROVENANCE if k in versions},
    }


def _line(text: str) -> str:
    return "".join(c for c in text if LINE.fullmatch(c))[:200]


def import_text(
    text: str, source: str, families: Sequence[Family], devices: Sequence[Device] = ()
) -> list[Record]:
    """Read a shared file: every field checked, configs checked against their family's rules.

    Args:
        text: the JSON text.
        source: what to call the file in an error.
        families: the kernel families that a record may name.
        devices: devices at hand, whose facts the rules are checked with. A CUDA architecture of
            ``ARCHITECTURES`` is checked without one; any other when its config is first used.

    Raises:
        StoreError: names the first field that is not right; nothing is imported then.
    """
    rows = rows_of(text, source)
    return [read_row(row, f"{source}: records[{i}]", families, devices) for i, row in enumerate(rows)]


def rows_of(text: str, source: str) -> list[object]:
    """Return the records of a shared file, not yet checked."""
    f = Fields(parse(text, source), f"{source}: file")
    if f.data.get("format") != FORMAT:
        raise f.bad("format", f"{FORMAT!r}, as 'cache export' writes it")
    f.only("format", "schema", "records")
    if f.data.get("schema") != SCHEMA or type(f.data["schema"]) is not int:
        raise f.bad("schema", f"{SCHEMA}: the file is of another version")
    rows = f.data.get("records")
    if not isinstance(rows, list):
        raise f.bad("records", "a list")
    return rows


def parse(text: str, source: str) -> object:
    """Read JSON strictly: no duplicate names, no NaN, no bottomless nesting.

    Raises:
        StoreError: it is no such JSON; ``source`` is its name in the text.
    """
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise StoreError(f"{source}: not a valid JSON file ({reason}); want one of 'cache export'") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise ValueError("a name is given twice in one object")
    return data


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def read_row(row: object, path: str, families: Sequence[Family], devices: Sequence[Device] = ()) -> Record:
    """Check one record of a shared file; ``path`` is what to call it in an error.

    Raises:
        StoreError: names the field that is missing, unknown or wrong.
    """
    f = Fields(row, path)
    f.only("problem", "device", "family", "config", "deterministic", "cold_us", "ci95_us", "warm_us", "runs",
           "worst", "provenance")  # fmt: skip
    try:
        problem = Problem.parse(f.text("problem"))
    except ProblemError as error:
        raise StoreError(f"{f.path}.problem: {error}") from None
    name = f.text("family")
    family = next((known for known in families if known.name == name), None)
    if family is None:
        raise f.bad("family", "one of " + ", ".join(known.name for known in families))
    key = f.text("device", 400)
    config = _config(f.section("config"), family)
    _check_rules(f, problem, family, config, _facts(f, key, devices))
    if f.boolean("deterministic") and not family.deterministic(config):
        raise f.bad("deterministic", "false: this config adds in an order that varies")
    if f.number("cold_us") <= 0:
        raise f.bad("cold_us", "more than 0")
    provenance = Fields(f.data.get("provenance", {}), f.path + ".provenance")
    provenance.only(*PROVENANCE)
    versions = Versions.from_dict({name: provenance.text(name) for name in provenance.data})
    return Record(
        problem=str(problem), device=key, family=family.name, config=str(config), outcome=Outcome.CORRECT,
        deterministic=f.boolean("deterministic"), measurement=time_of(f),
        versions=versions, shared_worst=f.number("worst", 0.0, 1.0),
    )  # fmt: skip


def _config(f: Fields, family: Family) -> Config:
    if len(f.data) > 64:
        raise StoreError(f"{f.path}: {len(f.data)} parameters are too many")
    for name in f.data:
        if not _NAME.fullmatch(name):
            raise StoreError(f"{f.path}: {shown(name)} is no parameter name")
    return Config.make(family.name, {name: f.integer(name, 0, MAX_VALUE) for name in f.data})


def _facts(f: Fields, key: str, devices: Sequence[Device]) -> Device | None:
    """Return what is known of the device that ``key`` names; None if nothing is."""
    read = read_key(key)
    if read is None:
        raise f.bad("device", f"backend/name/arch/units with a backend of {', '.join(BACKENDS)}")
    for device in devices:
        if device.key == key:
            return device
    if read.backend == "cuda" and not capability(read.arch):
        raise f.bad("device", "an architecture like sm_90 for the backend cuda")
    if read.backend == "cuda" and read.arch in ARCHITECTURES:
        return replace(ARCHITECTURES[read.arch], name=read.name, units=read.units)
    return None


def _check_rules(f: Fields, problem: Problem, family: Family, config: Config, device: Device | None) -> None:
    if device is None:
        return
    try:
        family.check(problem, device, config)
    except ConfigError as error:
        raise StoreError(f"{f.path}.config: {error}") from None
