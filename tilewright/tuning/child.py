"""The process that candidates run in: it answers requests, a line of JSON each, until its parent is gone.

``python -m tilewright.tuning.child`` is started by ``worker.py``, the parent's side.
"""

from __future__ import annotations

import gc
import os
import queue
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from tilewright.kernels.config import Config
from tilewright.store.exchange import record_to_dict
from tilewright.tuning.channel import Json
from tilewright.tuning.job import Job, Stage
from tilewright.tuning.measure import Limits

_COMPILER_NICE = 10  # whoever measures and thinks goes before those that compile


def main() -> None:
    """Answer requests from stdin until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints goes to stderr, not into the protocol
    import json

    def say(line: Json) -> None:
        answers.write(json.dumps(line) + "\n")

    desk = RequestHandler(lambda stage: say({"stage": stage}))
    requests = _requests()
    while True:
        request = json.loads(requests.get())
        try:
            say({"result": desk.handle(request)})
        except Exception as error:
            say({"error": type(error).__name__, "text": str(error) or repr(error)})


def _requests() -> queue.SimpleQueue[str]:
    """Read stdin in a thread, which ends the process when the parent is gone, even in a hung kernel."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return lines


class RequestHandler:
    """Takes the child's requests: opens a job, answers for its configs, and rests until the next."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._trials: Any = None

    def handle(self, request: Json) -> Any:
        """Do what a request asks and return what can be said in JSON."""
        do = request.pop("do")
        if do == "open":
            return self._open(**request)
        if do == "rest":
            self._trials = None  # with all its arrays and kernels
            gc.collect()
            return None
        if do == "prepare":
            return self._trials.prepare()
        if do == "compile":
            return asdict(self._trials.compile(Config.parse(request["config"])))
        if do == "trial":
            config = Config.parse(request["config"])
            record, spoilt = self._trials.run(config, request["best_us"], request["full"])
            return {"record": record_to_dict(record), "spoilt": spoilt}
        assert do == "final", do
        configs = [Config.parse(text) for text in request["configs"]]
        return [asdict(f) for f in self._trials.final(configs, Limits(**request["limits"]))]

    def _open(self, **job: Any) -> Json:
        from tilewright.tuning.trial import Trials  # loads a backend: only ever in the child

        self._stage("open")
        if job["facts"] is not None and hasattr(os, "setpriority"):
            least = os.getpriority(os.PRIO_PROCESS, 0)  # only a superuser goes below
            with suppress(OSError):  # where a sandbox forbids it, compilers compete
                os.setpriority(os.PRIO_PROCESS, 0, max(least, _COMPILER_NICE))
        self._trials = Trials(Job(**job), self._stage)
        return {"device": self._trials.device.facts, "versions": self._trials.versions.said}


if __name__ == "__main__":
    main()
