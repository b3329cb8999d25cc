"""The public names: what importing them loads, and what type checkers see."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from api_samples import own_cache

import tilewright as tw
from tilewright import errors
from tilewright.store import own

__all__ = ["own_cache"]  # a fixture


def test_names_load_what_they_need_and_no_device() -> None:
    """How long an import takes, and that it loads no GPU library, test_imports has."""
    script = (
        "import sys; import tilewright as tw; tw.__version__;"
        "bad = {m.partition('.')[0] for m in sys.modules} & {'numpy', 'sqlite3'};"
        "assert not bad, bad; import tilewright.plans.plan;"
        "assert callable(tw.plan); from tilewright.plans.plan import Plan;"
        "tw.conv2d, tw.tune, tw.Problem, tw.Store;"
        "bad = {m.partition('.')[0] for m in sys.modules} & {'torch', 'cupy', 'cuda', 'pyopencl'};"
        "assert not bad, bad; assert set(tw.__all__) <= set(dir(tw));"
        "bad = {'TYPE_CHECKING', 'annotations', 'importlib'} & set(dir(tw)); assert not bad, bad"
    )
    root = Path(tw.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", tw.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(tw, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tw.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_type_checkers_see_every_public_name() -> None:
    """They read the imports, and take a name that is not among them for an object of unknown type."""
    nodes = ast.walk(ast.parse(Path(tw.__file__).read_text(encoding="utf-8")))
    seen = {one.name: node.module for node in nodes if isinstance(node, ast.ImportFrom) for one in node.names}
    del seen["annotations"], seen["TYPE_CHECKING"]
    assert seen == {name: f"tilewright.{tw._HOMES[name]}" for name in tw.__all__}


def test_what_is_returned_has_a_public_name() -> None:
    for call in (tw.plan, tw.tune):
        assert call.__annotations__["return"] in tw.__all__, call


def test_a_store_that_cannot_be_used_is_said_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file" / "x"))
    monkeypatch.setattr(errors, "_warned", set())
    with pytest.warns(RuntimeWarning, match="nothing new is remembered: cache folder.*TILEWRIGHT_CACHE"):
        info = own.default_store().info()
    assert info.records == 0 and not Path(info.path).is_relative_to(tmp_path)
