"""Ctrl-C and SIGTERM, from outside: one line, what there is, exit status 130 or 143."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

ASLEEP = "time.sleep(60)"
DEAF = "hashlib.pbkdf2_hmac('sha256', b'', b'', 400_000_000)"  # minutes in C, where no signal is heard
LOSES = "exec('try: time.sleep(60)\\nexcept BaseException: time.sleep(60)')"  # as a finalizer does
KEPT = "what was stored is kept"

# ``explain`` with work of our own in place of its first step.
CODE = """
import contextlib, hashlib, sys, time
from tilewright.cli import main, outputs, stopping
def work(*_):
    told = stopping.at_end(lambda: print("2 of 3 layers", file=sys.stderr, flush=True))
    with told if {ends} else contextlib.nullcontext():
        print("ready", flush=True)
        {work}
outputs.check = work
sys.exit(main(["explain", "R12"]))
"""


def stop(number: signal.Signals, work: str, ends: bool = False) -> tuple[int, str]:
    """Start a command, send a signal, and return its exit status and what it said."""
    code = CODE.format(work=work, ends=ends)
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(0.5)  # until it is at work
        child.send_signal(number)
        out, err = child.communicate(timeout=30)
    finally:
        child.kill()
    assert out == ""
    return child.returncode, err


@pytest.mark.parametrize("work", [ASLEEP, DEAF, LOSES], ids=["asleep", "deaf", "loses"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_one_line_and_a_status(number: signal.Signals, status: int, work: str) -> None:
    assert stop(number, work) == (status, f"stopped before the end; {KEPT}\n")


def test_a_signal_while_it_imports_is_quiet(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    command, env = [sys.executable, "-m", "tilewright", "doctor"], os.environ | {"PYTHONPATH": paths}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_what_there_is_is_shown_where_python_cannot_be_interrupted() -> None:
    assert stop(signal.SIGTERM, DEAF, ends=True) == (143, "2 of 3 layers\n")
