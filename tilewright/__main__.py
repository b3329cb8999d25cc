"""``python -m tilewright`` is the command ``tilewright``; Ctrl-C is no defect while it still imports."""

import contextlib
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator


def main() -> int:
    """Run the command line; return its exit status."""
    warnings.formatwarning = _one_line
    try:
        with _ending_at_once():
            from tilewright.cli import main as run

        return run()
    except KeyboardInterrupt:
        return 130


@contextlib.contextmanager
def _ending_at_once() -> Iterator[None]:
    """Within a ``with``, Ctrl-C ends the process: callbacks of the import system lose exceptions."""
    main_thread = threading.current_thread() is threading.main_thread()
    ours = main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _one_line(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning for a person, to whom the line of code that it came up in says nothing."""
    return f"warning: {' '.join(str(message).split())}\n"


if __name__ == "__main__":
    sys.exit(main())
