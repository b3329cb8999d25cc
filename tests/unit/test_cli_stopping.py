"""Ctrl-C and SIGTERM, from outside: one line, what there is, exit status 130 or 143."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tilewright.cli import main, stopping

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


def start(work: str, ends: bool) -> subprocess.Popen[str]:
    """Start a command that works and, if it ``ends``, says what there is."""
    command, pipe = [sys.executable, "-c", CODE.format(work=work, ends=ends)], subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)


def stopped(number: signal.Signals, **works: tuple[str, bool]) -> dict[str, tuple[int, str]]:
    """Start commands, send each a signal, and return their exit statuses and what they said, by name.

    All at once: who does not hear is waited for some seconds.
    """
    children = dict[str, subprocess.Popen[str]]()
    try:
        for name, work in works.items():
            children[name] = start(*work)
        for child in children.values():
            assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(0.5)  # until they are at work
        for child in children.values():
            child.send_signal(number)
        said = {name: child.communicate(timeout=60) for name, child in children.items()}
    finally:
        for child in children.values():
            child.kill()
    assert all(out == "" for out, _ in said.values())
    return {name: (children[name].returncode, err) for name, (_, err) in said.items()}


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_is_one_line_and_a_status(number: signal.Signals, status: int) -> None:
    """What there is at the end is shown, too, where Python cannot be interrupted."""
    line, ends = (status, f"stopped before the end; {KEPT}\n"), (status, "2 of 3 layers\n")
    found = stopped(
        number, asleep=(ASLEEP, False), deaf=(DEAF, False), loses=(LOSES, False), ends=(DEAF, True)
    )
    assert found == dict(asleep=line, deaf=line, loses=line, ends=ends)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    """As Ctrl-C is in what a script starts in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stopping._listening():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_command_may_run_in_a_thread_which_hears_no_signals() -> None:
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(main, ["configs", "TOY"]).result(60) == 0


KILL = "import os, signal, weakref\nkill = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"


@pytest.mark.parametrize("how", ["kill()", "class A: pass\na = A(); b = weakref.ref(a, kill); del a"])
def test_a_signal_while_it_imports_is_quiet(how: str, tmp_path: Path) -> None:
    """Where Python would lose the exception, too: in a callback."""
    (tmp_path / "typer.py").write_text(KILL + how)
    paths = os.pathsep.join([str(tmp_path), str(Path(__file__).parents[2])])
    command, env = [sys.executable, "-m", "tilewright", "doctor"], os.environ | {"PYTHONPATH": paths}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
