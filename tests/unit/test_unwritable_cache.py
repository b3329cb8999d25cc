"""A cache folder without permission to write: what only reads goes on and warns; what remembers says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_samples import record

import tilewright
from tilewright.errors import StoreError
from tilewright.store import Store, own

LAYER, OTHER = "n1c4h5w5k4r3s3p1-f32", "n1c4h5w5k4r1s1-f32"
# ``python -m tilewright``, but nobody looks at the times: no need to read 400 MB before each run.
COMMAND = """
import runpy, tilewright.runtime.opencl as opencl
made = opencl.Flusher
opencl.Flusher = lambda runtime, size: made(runtime, 1 << 20)
runpy.run_module("tilewright", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Path]:
    """A folder that takes no files."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    yield folder
    folder.chmod(0o700)


def run(cache: Path, line: str, mode: int = 0o500) -> subprocess.CompletedProcess[str]:
    """Run a command line; as root without root's right to write everywhere."""
    command = [sys.executable, "-c", COMMAND, *line.split()]
    if os.geteuid() == 0:
        if (setpriv := shutil.which("setpriv")) is None:
            pytest.skip("root may write everywhere, and there is no setpriv")
        command = [setpriv, "--bounding-set=-dac_override,-dac_read_search", *command]
    cache.chmod(mode)
    hidden = ("POCL_CACHE_DIR", "TILEWRIGHT_CACHE")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"TILEWRIGHT_CACHE": str(cache), "TMPDIR": str(cache.parent)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)


READING = ["explain {}", "run {}", "export {} --to {to}", "bench {} --no-tune --peers none"]


@pytest.mark.parametrize("line", READING)
def test_what_reads_goes_on(line: str, cache: Path, tmp_path: Path) -> None:
    line = line.format(LAYER, to=tmp_path / "to") + " --device cpu"
    done = run(cache, line)
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if "warning" in line.lower()]
    assert len(warnings) == 1 and warnings[0].startswith("warning: nothing new is remembered: ")
    assert str(cache) in warnings[0] and "ermission" in warnings[0] and "TILEWRIGHT_CACHE" in warnings[0]
    assert list(cache.iterdir()) == []
    assert not list(tmp_path.glob("tilewright-*")), "what took its place is removed"


@pytest.mark.parametrize(("line", "status"), [("explain {} --device numpy", 0), ("cache info", 2)])
def test_a_user_without_a_home_folder(line: str, status: int, tmp_path: Path) -> None:
    """As in a container that runs as a number that has no name there, without HOME."""
    if os.geteuid() or (setpriv := shutil.which("setpriv")) is None:
        pytest.skip("only root may become another user, and by setpriv")
    hidden = ("HOME", "POCL_CACHE_DIR", "TILEWRIGHT_CACHE", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1"}
    reads_all = ("--inh-caps=+dac_override", "--ambient-caps=+dac_override")  # root's Python
    become = [setpriv, "--reuid=54321", "--clear-groups", *reads_all]
    command = [*become, sys.executable, "-c", COMMAND, *line.format(LAYER).split()]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == status, done.stderr
    assert done.stderr.count("\n") == 1 and "has no home folder; set TILEWRIGHT_CACHE" in done.stderr


def test_what_is_there_is_read(cache: Path) -> None:
    Store(cache / "records-1.sqlite").add(record(problem=LAYER))
    (cache / "records-1.sqlite").chmod(0o400)
    assert '"records": 1' in run(cache, "cache info --json -").stdout
    told = f"{cache}: read-only: what it holds is used, nothing new is stored\n"
    assert told in run(cache, "doctor").stdout
    done = run(cache, f"explain {LAYER} --device numpy")
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize("line", ["tune {}", "bench {}", "study toy-cnn --quick --budget 1s"])
@pytest.mark.parametrize("held", [False, True])
def test_what_remembers_says_that_it_cannot(line: str, held: bool, cache: Path) -> None:
    if held:
        Store(cache / "records-1.sqlite").add(record())
    done = run(cache, line.format(LAYER))
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(f"error: nothing tuned could be remembered: store {cache}")
    assert "TILEWRIGHT_CACHE" in done.stderr and done.stderr.count("\n") == 1
    assert "Store" not in done.stderr  # a word of Python's
    assert ("--no-tune" in done.stderr) == line.startswith("bench")


def test_an_import_says_once_that_it_cannot(cache: Path, tmp_path: Path) -> None:
    """Opening devices, for their keys, would warn of the same folder first."""
    (tmp_path / "winners.json").write_text(Store(tmp_path / "none.sqlite").export_json())
    done = run(cache, f"cache import {tmp_path / 'winners.json'}")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert str(cache) in done.stderr and "TILEWRIGHT_CACHE" in done.stderr


@pytest.mark.long
def test_winners_that_are_there_need_no_writing(cache: Path) -> None:
    """The cache is that of a machine whose layer was tuned, and whose folder was then made read-only.

    By one family: those that one trial leaves untried would be searched on.
    """
    tuned = f"{LAYER} --family direct --device cpu"
    assert run(cache, f"tune {tuned} --budget 1trials", 0o700).returncode == 0
    (cache / "records-1.sqlite").chmod(0o400)
    for line in (f"tune {tuned}", f"bench {tuned} --peers none"):
        done = run(cache, line)
        assert done.returncode == 0 and LAYER in done.stdout, done.stderr
        assert done.stderr.count("warning: ") == done.stderr.count("nothing new is remembered: ") == 1
        assert str(cache) in done.stderr and "TILEWRIGHT_CACHE" in done.stderr and "tried" not in done.stderr
    for line in (f"tune {LAYER} --again", f"tune {LAYER} {OTHER}", f"bench {LAYER} --family im2col"):
        done = run(cache, line + " --device cpu")
        assert done.returncode == 2 and done.stdout == ""
        assert f"error: nothing tuned could be remembered: store {cache}" in done.stderr
        assert ("--no-tune" in done.stderr) == line.startswith("bench")


def test_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(StoreError, match="TILEWRIGHT_CACHE"):
        tilewright.tune(LAYER, "cpu")
    assert tilewright.plan(LAYER, "cpu").note
    assert own.default_store().info().shipped > 0


def test_a_folder_that_was_mended_has_the_store_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(cache))
    request.addfinalizer(own._failed_s.clear)
    cache.chmod(0o777)
    instead = own.default_store()
    assert instead is not None and instead.path.parent != cache
    cache.chmod(0o700)
    assert own.default_store() is instead, "it is not looked for at each call"
    monkeypatch.setattr(own, "RETRY_S", 0.0)
    mended = own.default_store()
    assert mended is not None and mended.path.parent == cache and own.default_store() is mended
