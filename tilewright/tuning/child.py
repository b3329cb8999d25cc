"""The process that candidates run in: it answers requests, a line of JSON each, until its parent has ended.

``python -m tilewright.tuning.child`` is started by ``worker.py``, the parent's side.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from tilewright.checking.stage import Stage
from tilewright.kernels.config import Config
from tilewright.measuring.rounds import Limits
from tilewright.tuning.protocol import (
    Compare,
    Compile,
    Job,
    Opened,
    Prepare,
    Rank,
    Rest,
    Try,
    WorkerRequest,
    decode,
)

_COMPILER_NICE = 10  # whoever measures and thinks goes before those that compile


def main() -> None:
    """Answer requests from stdin until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints goes to stderr, not into the protocol
    import json

    def say(line: dict[str, Any]) -> None:
        answers.write(json.dumps(line) + "\n")

    handler = RequestHandler(lambda stage: say({"stage": stage}))
    requests = _requests()
    while True:
        request = json.loads(requests.get())
        try:
            say({"result": handler.handle(decode(request))})
        except Exception as error:
            say({"error": type(error).__name__, "text": str(error) or repr(error)})


def _requests() -> queue.SimpleQueue[str]:
    """Read stdin in a thread, which ends the process when the parent has ended, even during a hung kernel."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return lines


class RequestHandler:
    """Handles the child's requests: opens a job, tries its configs, and rests until the next."""

    def __init__(self, stage: Callable[[Stage], None]) -> None:
        self._stage = stage
        self._trials: Any = None

    def handle(self, request: WorkerRequest) -> Any:
        """Carry out a request and return a result that can be written as JSON."""
        match request:
            case Job():
                return self._open(request).to_dict()
            case Rest():
                self._trials = None
                gc.collect()
                return None
            case Prepare():
                self._trials.prepare()
                return None
            case Compile(config):
                return asdict(self._trials.compile(Config.parse(config)))
            case Rank(families, deterministic):
                return list(map(str, self._trials.ranked(families, deterministic)))
            case Try(config, best_us, full):
                return self._trials.run(Config.parse(config), best_us, full).to_dict()
            case Compare(configs, limits):
                found = self._trials.final(list(map(Config.parse, configs)), Limits(**limits))
                return list(map(asdict, found))

    def _open(self, job: Job) -> Opened:
        from tilewright.tuning.trial import Trials  # loads a backend: only ever in the child

        self._stage(Stage.OPEN)
        if job.facts is not None and hasattr(os, "setpriority"):
            least = os.getpriority(os.PRIO_PROCESS, 0)  # only a superuser goes below
            with suppress(OSError):  # where a sandbox forbids it, compilers compete
                os.setpriority(os.PRIO_PROCESS, 0, max(least, _COMPILER_NICE))
        self._trials = Trials(job, self._stage)
        return Opened(self._trials.device, self._trials.versions)


if __name__ == "__main__":
    main()
