"""Recorded trials as a file: what model-report replays on a machine that has not got the device.

One JSON object a line, compressed: the device first, then an outcome of a config on each line.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, get_type_hints

from tilewright.device import BACKENDS, Device, Rates
from tilewright.errors import StoreError, shortened
from tilewright.fields import HUGE, TINY, Fields
from tilewright.kernels.config import Config
from tilewright.problem import Problem
from tilewright.record import Measurement, Outcome, Record

FORMAT = "tilewright-trials"
MAX_BYTES, MAX_LINE = 1 << 28, 1 << 16
_WANT = "want one of model-report --save"
_FROM_0 = ("index", "tensor_macs")  # facts of a device; its other integers are from 1
_parsed = lru_cache(maxsize=4096)(Problem.parse)  # a layer has dozens of trials

Times = dict[tuple[Problem, str], dict[str, float]]  # of a layer and a family: configs, us


def write(path: Path, device: Device, records: Iterable[Record]) -> int:
    """Write trials of one device; return how many.

    Raises:
        StoreError: the file cannot be written.
    """
    lines = [json.dumps({"format": FORMAT, "device": device.facts})]
    for record in records:
        time = round(record.measurement.cold_us, 3) if record.measurement else None
        lines.append(json.dumps([record.problem, record.config, record.outcome, time]))
    try:
        with path.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            packed.write("\n".join(lines).encode())
    except OSError as error:
        raise StoreError(f"trials file {path}: {error.strerror}") from error
    return len(lines) - 1


def read(path: Path) -> tuple[Device, list[Record]]:
    """Read a trials file.

    Raises:
        StoreError: the file is missing or no trials file; names the line.
    """
    device, lines = _lines(path)
    records = []
    for number, line in enumerate(lines, 2):
        try:
            records.append(_record(device.key, *json.loads(line)))
        except Exception as error:
            raise _wrong(path, number, error) from None
    return device, records


def read_times(path: Path) -> tuple[Device, Times]:
    """Read what was right, and how long it took; of configs the text, which nobody has looked at.

    A search asks for the trials of a few layers of a thousand: this takes a fifth of what ``read`` does.

    Raises:
        StoreError: as ``read``.
    """
    device, lines = _lines(path)
    found: Times = {}
    for number, line in enumerate(lines, 2):
        try:
            problem, config, outcome, time = json.loads(line)
            if outcome == Outcome.CORRECT and time is not None:
                layer = _parsed(problem), config.partition(":")[0]
                found.setdefault(layer, {})[config] = _us(time)
        except Exception as error:
            raise _wrong(path, number, error) from None
    return device, found


def device_of(path: Path) -> Device:
    """Read which device a trials file is of, and no further.

    Raises:
        StoreError: the file is missing or no trials file.
    """
    with _opened(path) as file:
        return _device(path, file.readline(MAX_LINE).decode())


def _lines(path: Path) -> tuple[Device, list[str]]:
    """Return the device of a file, and the lines of its trials."""
    with _opened(path) as file:
        head, *lines = file.read(MAX_BYTES).decode().splitlines() or [""]
    return _device(path, head), lines


@contextmanager
def _opened(path: Path) -> Iterator[gzip.GzipFile]:
    try:
        with gzip.open(path, "rb") as file:
            yield file
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise StoreError(f"trials file {path}: cannot be read ({why}); {_WANT}") from None


def _device(path: Path, line: str) -> Device:
    try:
        head = json.loads(line)
        if head["format"] != FORMAT:
            raise ValueError(f"format {head['format']!r}")
        return Device.of(_checked(head["device"]))
    except Exception as error:
        raise _wrong(path, 1, error) from None


def _checked(facts: object) -> Mapping[str, Any]:
    """Return the facts of a device, after checking their types: rules and models compute with them.

    Raises:
        StoreError: names the first that is missing or wrong.
    """
    f = Fields(facts, "device")
    rates = f.section("rates")
    for read, cls in ((f, Device), (rates, Rates)):
        types = get_type_hints(cls)
        for one in fields(cls):
            if one.default is not MISSING and one.name not in read.data:
                continue
            if types[one.name] is int:
                read.integer(one.name, int(one.name not in _FROM_0), 1 << 40)
            elif types[one.name] is float:
                read.number(one.name, TINY)
            elif types[one.name] is bool:
                read.boolean(one.name)
            elif types[one.name] is str:
                read.string(one.name)
    if f.data["backend"] not in BACKENDS:
        raise f.bad("backend", f"one of {', '.join(BACKENDS)}")
    return f.data


def _us(time: object) -> float:
    if type(time) not in (int, float) or not TINY <= time <= HUGE:  # type: ignore[operator]
        raise ValueError(f"a time of {shortened(repr(time))} us")
    return float(time)  # type: ignore[arg-type]


def _wrong(path: Path, line: int, error: Exception) -> StoreError:
    why = str(error) if isinstance(error, StoreError) else shortened(repr(error), 200)
    return StoreError(f"trials file {path}, line {line}: {why}; {_WANT}")


def _record(device: str, problem: str, config: str, outcome: str, time: float | None) -> Record:
    """Build a record of checked parts."""
    _parsed(problem)
    figure = Measurement(cold_us=_us(time), ci95_us=0.0, runs=0) if time is not None else None
    return Record(
        problem=problem, device=device, family=Config.parse(config).family, config=config,
        outcome=Outcome(outcome), deterministic=False, measurement=figure,
    )  # fmt: skip
