"""Ctrl-C and SIGTERM: the command says in one line that it was stopped, and writes the results so far.

Both raise KeyboardInterrupt in the main thread. A kernel may hold that in the driver for minutes, and an
exception in a finalizer is lost; then a second thread, woken through a pipe, does what the command would have
done, and ends the process.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import typer

from tilewright.cli import outputs
from tilewright.errors import count

PATIENCE_S = 2.0  # until the second thread takes over, if the main thread does not handle the signal
LOST_S = 5.0  # likewise, if it did, but the exception was lost

_caught = threading.Event()
_at_end: list[Callable[[], None]] = []


class Terminated(KeyboardInterrupt):
    """SIGTERM was received."""


@dataclass
class Stop:
    """The reason why work ended early, if it did: a signal, or the reader of its output has gone."""

    error: KeyboardInterrupt | BrokenPipeError | None = None

    def leave(self) -> None:
        """End the command with its status, if its work was stopped."""
        if isinstance(self.error, BrokenPipeError):
            raise typer.Exit(141)
        if self.error:
            raise typer.Exit(143 if isinstance(self.error, Terminated) else 130)


def stoppable(command: Callable[..., None], stores: bool = True) -> Callable[..., None]:
    """Decorate a command: when it is stopped, at any point, it says so in one line.

    One that ``stores`` says that what was stored is kept.
    """

    def say() -> None:
        print("stopped before the end" + "; what was stored is kept" * stores, file=sys.stderr, flush=True)

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        with _listening():
            with until_stopped(say) as stop:
                command(*args, **options)
            if isinstance(stop.error, KeyboardInterrupt):
                say()
            stop.leave()

    return run


@contextmanager
def at_end(report: Callable[[], None]) -> Iterator[None]:
    """Within a ``with``, the innermost, call ``report`` first if the second thread has to end the process."""
    _at_end.append(report)
    try:
        yield
    finally:
        _at_end.remove(report)


@contextmanager
def until_stopped(report: Callable[[], None]) -> Iterator[Stop]:
    """Within a ``with``, a signal ends only the work: the command then reports the results so far and exits.

    The same holds when the reader of its output has gone, as with ``| head``.
    """
    stop = Stop()
    with at_end(report):
        try:
            yield stop
        except KeyboardInterrupt as error:
            _caught.set()
            stop.error = error
        except BrokenPipeError as error:
            outputs.drop_stdout()
            stop.error = error


def layers_done(done: int, everything: int) -> str:
    """Say how far a stopped command came."""
    return f"stopped: {done} of {count(everything, 'layer')} done; all trials so far are kept"


@contextmanager
def _listening() -> Iterator[None]:
    """Raise on both signals, and watch that the main thread handles them: only it receives signals."""
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = threading.Event()

    def raise_it(number: int, frame: FrameType | None) -> None:
        heard.set()
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    usual: dict[int, Any] = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    ours = [number for number, handler in usual.items() if signal.getsignal(number) is handler]
    awake, waker = os.pipe()
    os.set_blocking(waker, False)
    before = signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(awake, heard), daemon=True).start()
    for number in ours:
        signal.signal(number, raise_it)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, usual[number])
        signal.set_wakeup_fd(before)
        os.close(waker)  # ends the watcher


def _watch(awake: int, heard: threading.Event) -> None:
    """End the process if the main thread does not handle a signal, or loses its exception."""
    while number := os.read(awake, 1):
        if number[0] not in (signal.SIGINT, signal.SIGTERM):
            continue
        if not (heard.wait(PATIENCE_S) and _caught.wait(LOST_S)):
            for report in _at_end[-1:]:
                report()
            sys.stdout.flush()
            os._exit(143 if number[0] == signal.SIGTERM else 130)
        heard.clear()
        _caught.clear()
    os.close(awake)
