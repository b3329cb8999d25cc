"""Docstrings of what users call: each field is told of, and each error."""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.errors import StoreError
from tilewright.store import Store

VALUES = [
    one for name in tw.__all__ if is_dataclass(one := getattr(tw, name)) and one is not tw.Problem
]  # whose sizes are told of in its formula
FROM_A_STORE: dict[str, tuple[Any, ...]] = {
    "require_writable": (), "add": ("record",), "add_all": ([],), "clear": (), "best": ("c1h1k1r1", "device"),
    "newest": ("c1h1k1r1", "device"), "same_sizes": ("c1h1k1r1",), "records": (), "info": (),
    "export_json": (), "import_json": ('{"format": "tilewright-tuned", "schema": 1, "records": []}',),
}  # fmt: skip


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
def test_every_field_of_a_value_is_told_of(kind: Any) -> None:
    about = inspect.getdoc(kind) or ""
    told = about.partition("Attributes:\n")[2]
    assert told and all(field.name in told for field in fields(kind) if field.name[0] != "_")


def test_every_method_of_a_store_is_known_here() -> None:
    assert {name for name, _ in inspect.getmembers(Store, inspect.isfunction) if name[0] != "_"} == set(
        FROM_A_STORE
    )


@pytest.mark.parametrize("name", FROM_A_STORE)
def test_a_method_that_raises_says_so(name: str, tmp_path: Path) -> None:
    """As where the file is no plain file."""
    (tmp_path / "cache").mkdir(mode=0o700)
    box = Store(tmp_path / "cache" / "records.sqlite", shipped=False)
    box.path.mkdir()
    record = tw.Record("c1h1k1r1", "cuda/x/sm_90/1", "direct", "direct:a=1", "compile", True)
    given = [record if one == "record" else one for one in FROM_A_STORE[name]]
    with pytest.raises(StoreError):
        list(getattr(box, name)(*given) or ())
    assert "StoreError:" in (inspect.getdoc(getattr(Store, name)) or "").partition("Raises:\n")[2]
