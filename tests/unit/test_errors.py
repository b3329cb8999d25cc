"""What errors say."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from tilewright import errors
from tilewright.errors import StoreError, first_error
from tilewright.search.experience import _skipping
from tilewright.store import Store

NVRTC = '6: NVRTC_ERROR_COMPILATION:\n\nx.cu(1): error: identifier "a" is undefined\n  a = error;\n'
POCL = "clBuildProgram failed: BUILD_PROGRAM\n\nBuild on x:\n\nx.cl:1:39: error: no such a\n(options: -w)"


@pytest.mark.parametrize(
    ("log", "told"),
    [
        (NVRTC, 'x.cu(1): error: identifier "a" is undefined'),
        (POCL, "x.cl:1:39: error: no such a"),
        ("info\nptxas error   : too much shared data", "ptxas error   : too much shared data"),
        ("5: NVRTC_ERROR_X, log:\n\nptxas fatal   : (C7602) too few", "ptxas fatal   : (C7602) too few"),
        ("info\nx.cu(2): error #20-D: no such a", "x.cu(2): error #20-D: no such a"),
        ("\n 7: NVRTC_ERROR_INVALID: 3 \nmore", "7: NVRTC_ERROR_INVALID: 3"),
        ("clX failed: Y - clX failed: Y - clX failed: Y\n\nBuild on x:", "clX failed: Y"),
        ("a - b - a: error: 3 - 2", "a - b - a: error: 3 - 2"),
        ("", "it failed and did not say why"),
        (" \n", "it failed and did not say why"),
    ],
)
def test_the_first_error_of_a_log(log: str, told: str) -> None:
    assert first_error(log) == told


def test_a_warning_names_the_line_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However deep in the package it arises."""
    monkeypatch.setattr(errors, "_warned", set())
    (tmp_path / "cache").mkdir(mode=0o700)
    (file := tmp_path / "cache" / "records.sqlite").write_bytes(b"SQLite format 3\0" * 100)
    with pytest.warns(RuntimeWarning) as found:
        Store(file).info()
        errors.warn_once("told by the caller itself")
    here = inspect.currentframe()
    assert here is not None
    assert [one.filename for one in found] == [__file__] * 2
    assert [one.lineno - here.f_code.co_firstlineno for one in found] == [6, 7]


def test_a_warning_of_a_context_manager_names_the_line_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not contextlib's, which stands between."""
    monkeypatch.setattr(errors, "_warned", set())
    with pytest.warns(RuntimeWarning, match="are skipped: cut off") as found, _skipping():
        raise StoreError("cut off")
    assert [one.filename for one in found] == [__file__]
