"""A child process that takes requests and answers in JSON lines, within deadlines.

The child answers a request with any number of ``{"stage": name}`` lines, each of which starts the
allowance of that stage, and a last line ``{"result": …}`` or ``{"error": name, "text": …}``.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tilewright.errors import RunError, shortened, shown
from tilewright.runtime.cache_folder import inherited

Json = dict[str, Any]
_END_S = 5.0  # to wait for a child that was killed; one that hangs in a driver may take longer to end


class ChildLost(Exception):
    """The child has ended; ``stage`` is where it was, and the text says that too."""

    def __init__(self, text: str, stage: str) -> None:
        super().__init__(text)
        self.stage = stage


class Hung(ChildLost):
    """The child did not answer in time and was killed."""


class Crashed(ChildLost):
    """The child ended by itself; the text says how."""


class ChildError(Exception):
    """The child answered with an error: its class name and text."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


class Channel:
    """One child process and the two pipes to it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Start the child; its stderr is kept to explain a crash."""
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed in kill)
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=dict(environment) if environment is not None else None,
        )
        self._asked = False  # whether a request has not been answered yet
        self._ending = threading.Lock()  # two threads may kill the child at the same time
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether the child runs."""
        return self._child.poll() is None

    def ask(self, request: Json, allowances_s: Mapping[str, float]) -> Any:
        """Send a request and return its result.

        Args:
            request: what to do.
            allowances_s: seconds for each stage; ``start`` holds until the first stage is named.

        Raises:
            Hung: no answer within a stage's allowance; the child has been killed.
            Crashed: the child ended; it has been reaped.
            ChildError: the child answered with an error and lives on.
        """
        self._asked = True
        self._send(request)
        stage = "start"
        while True:
            try:
                line = self._lines.get(timeout=allowances_s[stage])
            except queue.Empty:
                self.kill()
                raise Hung(f"no answer in {allowances_s[stage]:g} s in stage '{stage}'", stage) from None
            if line is None:
                raise Crashed(self._bury(stage), stage)
            answer = self._understood(line, stage)
            if "stage" in answer:
                stage = answer["stage"]
                continue
            self._asked = False
            if "error" in answer:
                raise ChildError(answer["error"], answer["text"])
            return answer["result"]

    @property
    def idle(self) -> bool:
        """Whether the child runs and has answered all it was asked."""
        return self.alive and not self._asked

    def kill(self) -> None:
        """Kill the child; any thread may call this, more than once.

        A child that hangs in a driver ends later: it is not waited for.
        """
        with self._ending:
            self._child.kill()
            with suppress(subprocess.TimeoutExpired):
                self._child.wait(_END_S)
            for pipe in (self._child.stdin, self._stderr):
                if pipe is not None:
                    with suppress(OSError, ValueError):  # bytes that the dead child never read
                        pipe.close()

    def _send(self, request: Json) -> None:
        assert self._child.stdin is not None
        line = json.dumps(request).encode() + b"\n"
        try:
            self._child.stdin.write(line)
            self._child.stdin.flush()
        except (OSError, ValueError) as error:  # ValueError: another thread killed the child
            raise Crashed(self._bury("start"), "start") from error

    def _understood(self, line: bytes, stage: str) -> Json:
        """Decode a line of the child's; it is incomplete if the child died while writing it."""
        with suppress(ValueError):
            answer = json.loads(line)
            if isinstance(answer, dict):
                return answer
        raise Crashed(f"{self._bury(stage)}; its last answer is cut off: {shown(line)}", stage)

    def _read(self) -> None:
        """Move lines from the pipe to the queue; runs in a thread of its own."""
        assert self._child.stdout is not None
        with self._child.stdout as pipe:
            for line in pipe:
                self._lines.put(line)
        self._lines.put(None)

    def _bury(self, stage: str) -> str:
        """Reap the child and say how it ended."""
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_END_S)
        said = self._last_words()
        self.kill()
        code = self._child.returncode
        if code is None:
            return f"the process does not end, in stage '{stage}'" + (f": {said}" if said else "")
        how = signal_name(code) if code < 0 else f"exit status {code}"
        return f"the process ended with {how} in stage '{stage}'" + (f": {said}" if said else "")

    def _last_words(self) -> str:
        """Return the last line that the child wrote to stderr."""
        try:
            size = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, size - 4096))
            lines = self._stderr.read().decode(errors="replace").split("\n")
        except ValueError:
            return ""  # closed: another thread killed the child
        return next((shortened(line.strip(), 200) for line in reversed(lines) if line.strip()), "")


def signal_name(code: int) -> str:
    """Name the signal of a negative exit status, e.g. SIGSEGV."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


# What a child runs: our package, wherever it is and whatever else has its name, then its child.py. The folder
# that the package is in, which may be that of all installed ones, comes behind the standard library, as do
# others where the parent finds modules.
_CHILD = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
from runpy import run_module
sys.path += [path for path in {paths!r} if path not in sys.path]
spec = spec_from_file_location("{name}", {init!r})
sys.modules["{name}"] = package = module_from_spec(spec)
spec.loader.exec_module(package)
run_module("{name}.tuning.child", run_name="__main__", alter_sys=True)
"""


def python_child() -> tuple[list[str], dict[str, str]]:
    """Return the command and environment that run ``child``, wherever we stand.

    It finds the libraries that we find. The current folder is kept off its path, so that a file in it cannot
    stand in for a library.

    Raises:
        RunError: we do not know of a Python to run: in a program that embeds it, or was frozen.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        what = "this program embeds Python: there is none to run a worker process with"
        raise RunError(f"{what}; tune the layer by `tilewright tune` where Python is installed")
    package = Path(__file__).resolve().parents[1]
    paths = [str(package.parent), *_paths()]
    code = _CHILD.format(paths=paths, name=package.name, init=str(package / "__init__.py"))
    return [sys.executable, "-c", code], child_environment()


def child_environment() -> dict[str, str]:
    """Return the environment of a child that starts now."""
    return {**os.environ, "PYTHONSAFEPATH": "1", **inherited()}


def _paths() -> list[str]:
    """Return the folders and archives where this process looks for modules, except the current folder."""
    paths = [path for path in sys.path if isinstance(path, str) and os.path.isabs(path)]
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # it is gone
        return paths
    return [path for path in paths if os.path.realpath(path) != here]
