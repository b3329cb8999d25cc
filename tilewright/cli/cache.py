"""``tilewright cache``: show, delete, export and import stored winners."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli import opened, options, outputs
from tilewright.cli.screen import emit, remark
from tilewright.device import Device, chip
from tilewright.errors import StoreError, count
from tilewright.problem import shapes
from tilewright.report.table import Table

if TYPE_CHECKING:
    from tilewright.store import Store

app = typer.Typer(help="Show, delete or share tuned winners and compiled kernels.", rich_markup_mode=None)
_Layers = Annotated[
    list[str] | None,
    typer.Argument(metavar="LAYERS", help="Delete only the records of these. Default: everything."),
]

_NAMED = 3  # most devices that a line names

# Labels of facts, where they differ from the names.
_LABELS = {
    "nbytes": "bytes",
    "correct": "of them correct",
    "imported": "of them imported",
    "shipped": "shipped winners",
    "set_aside": "damaged stores set aside",
    "kernels": "compiled kernels",
    "kernel_bytes": "bytes of compiled kernels",
    "pocl_bytes": "bytes of PoCL's cache",
    "limit_bytes": "limit of both in bytes",
}


@app.command()
def info(json_file: options.JsonFile = None) -> None:
    """Show where the cache is and what it holds."""
    outputs.check({"--json": json_file})
    from tilewright.runtime import cache
    from tilewright.store import Store

    facts, kernels = asdict(Store().info()), cache.kernels()
    facts |= {"kernels": len(kernels), "kernel_bytes": cache.nbytes(kernels)}
    facts |= {"pocl_bytes": cache.nbytes(cache.of_pocl()), "limit_bytes": cache.limit_bytes()}
    rows = [(_LABELS.get(name, name.replace("_", " ")), _text(value)) for name, value in facts.items()]
    emit(Table("", ("what", "value"), tuple(rows), words=True), facts, json_file)


@app.command()
def clear(
    layers: _Layers = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before deleting everything.")] = False,
) -> None:
    """Delete the records of some layers, or everything.

    Without layers it deletes all records and compiled kernels, after asking.
    """
    problems = [layer.problem for layer in options.layers(layers or [])]
    from tilewright.runtime import cache
    from tilewright.store import Store

    store = Store()
    if problems:
        print(f"deleted {count(sum(store.clear(problem) for problem in problems), 'record')}")
        return
    if not yes and not _confirmed(store):
        return
    kernels = cache.clear()  # first: on a full disk the store may need the room, even to be looked at
    print(f"deleted {count(store.clear(), 'record')} and {count(kernels, 'compiled kernel')}")


def _confirmed(store: Store) -> bool:
    """Ask whether to delete everything, and say how much that is."""
    held = count(store.info().records, "record")
    if not sys.stdin.isatty():
        raise options.OptionError(f"cache clear: would delete everything ({held}); add --yes, or name layers")
    return typer.confirm(f"Delete everything: {held} and the compiled kernels?")


@app.command("export")
def export(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", parser=options.file, help="The file to write; - prints it.")
    ],
    layer: Annotated[
        str | None, typer.Argument(metavar="LAYER", help="Export only this layer. Default: all.")
    ] = None,
) -> None:
    """Write the winners to a file, to share or to keep.

    The file holds kernel parameters only: no source, no binary.
    """
    outputs.check({"FILE": file})
    if layer is None and str(file) in (*shapes.suites(), *shapes.shipped()):
        raise options.OptionError(
            f"cache export {file}: that is a layer; the file comes first: cache export winners.json {file}"
        )
    problem = options.layer(layer).problem if layer is not None else None
    from tilewright.store import Store

    text = Store().export_json(problem, devices=_devices())
    if not (found := len(json.loads(text)["records"])):
        raise StoreError(
            f"cache export: no winner{' of ' + layer if layer else ''} is stored; run 'tilewright tune' first"
        )
    outputs.write(file, text, "FILE")
    if not outputs.is_stdout(file):
        remark(f"wrote {file}, {count(found, 'winner')}")


@app.command("import")
def import_(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", parser=options.file, help="Written by 'cache export'; - reads it."),
    ],
) -> None:
    """Read winners that someone shared.

    The file is checked now; each kernel is verified before its first use.
    """
    from tilewright.store.exchange import MAX_FILE_BYTES

    try:
        with sys.stdin.buffer if outputs.is_stdout(file) else file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise StoreError(f"import {file}: {error.strerror or error}") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise StoreError(f"import {file}: not a text file; expected JSON written by 'cache export'") from None
    store = opened.store_to_write()  # first: opening a device would warn about the same folder
    devices = _devices()
    source = "standard input" if outputs.is_stdout(file) else str(file)
    new = store.import_json(text, devices, source)
    said = f"imported {count(new, 'winner')}" + ("" if new else "; the file holds none that are new")
    print(said + _strangers({row["device"] for row in json.loads(text)["records"]}, devices))


def _devices() -> list[Device]:
    """The devices at hand, whose facts the rules of configs are checked with."""
    from tilewright.runtime import list_devices

    return [found for found in list_devices() if isinstance(found, Device)]


def _strangers(keys: set[str], devices: Sequence[Device]) -> str:
    """Say which devices the winners are for, if no device of this machine can use any of them."""
    if not keys or {chip(key) for key in keys} & {device.chip for device in devices}:
        return ""
    named, more = ", ".join(sorted(keys)[:_NAMED]), len(keys) - _NAMED
    named += f" and {more} more" * (more > 0)
    return f"; they are for {named}, none for a device of this machine"


def _text(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
