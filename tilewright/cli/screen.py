"""What a command prints: tables on stdout, progress and remarks on stderr."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tilewright.cli import outputs
from tilewright.errors import count, printable
from tilewright.report.table import Table, as_text
from tilewright.report.terminal import pieces, rich_table, word_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

    from tilewright.problem import Problem
    from tilewright.problem.shapes import Layer
    from tilewright.runtime.base import Runtime

# Flops per second of the plain f64 reference, to predict a long wait. On a CPU they grow with the channels of
# a group: 0.3 to 0.6e9 for depthwise layers, 0.9 to 5e9 with 1 or 3 inputs, 17e9 or more with many (2 cores).
_GPU_F64, _CPU_F64 = 1e11, 4e8
_MOST_TIMES = 40  # the most that this grows, with enough channels
_LARGE = 32 << 20  # bytes of a plane of f64 sums that exceeds the caches
_LONG_S = 30.0


def show(table: Table) -> None:
    """Print a table: for a person on a terminal, aligned lines otherwise."""
    if sys.stdout.isatty():
        console = _console()
        if table.title:
            console.print(table.title, style="italic", soft_wrap=True)
        for line in word_lines(table, console.width) if table.words else ():
            console.print(line, soft_wrap=True)
        for index, piece in enumerate(() if table.words else pieces(table, console.width)):
            console.print(*[""] * bool(index), rich_table(piece), sep="\n")
        for note in table.notes:
            console.print(note, soft_wrap=True)
    else:
        print(as_text(table))


def _console(stderr: bool = False) -> Console:
    """Return rich's view of the terminal. COLUMNS=0 is no width: rich would print nothing at all."""
    from rich.console import Console

    width = shutil.get_terminal_size().columns if os.environ.get("COLUMNS") == "0" else None
    return Console(stderr=stderr, width=width, highlight=False, markup=False)


def remark(text: str) -> None:
    """Print a message to stderr. If the disk that a log is on is full, the work goes on without it."""
    try:
        print(printable(text), file=sys.stderr, flush=True)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (what its buffer holds would fail again at the end)


def emit(tables: Table | list[Table], document: Any, json_file: Path | None) -> None:
    """Write the JSON document to the user's file, and print the tables even if that fails.

    What the file held becomes FILE.old. Only one of them goes to standard output: a document there replaces
    the tables.
    """
    quiet = outputs.is_stdout(json_file)
    try:
        if json_file is not None:
            if old := outputs.old_of(json_file):
                with suppress(OSError):  # a folder where nothing can be renamed
                    json_file.resolve().replace(old)
                    remark(f"what {json_file} held is now {old.name}")
            outputs.write(json_file, outputs.as_json(document), "--json")
    finally:
        for index, table in enumerate([] if quiet else [tables] if isinstance(tables, Table) else tables):
            if index:
                print()
            show(table)
    wrote(json_file)


def wrote(*files: Path | None) -> None:
    """Say which files were written."""
    written = [str(file) for file in files if file and not outputs.is_stdout(file) and file.exists()]
    if written:
        remark(f"wrote {', '.join(written)}")


def foretell(layers: Iterable[Layer], runtime: Runtime) -> None:
    """Warn of layers whose f64 references take long to compute."""
    took = {one: _reference_s(one.problem, runtime.device.is_gpu) for one in layers}
    slow = {one: seconds for one, seconds in took.items() if seconds > _LONG_S}
    if slow:
        size = f"{sum(one.problem.flops for one in slow) / 1e9:,.0f} GFLOP"
        long = f"may take {count(max(round(sum(slow.values()) / 60), 1), 'minute')}; Ctrl-C stops it"
        remark(f"computing f64 references of {', '.join(one.name for one in slow)} first: {size}, {long}")


def _reference_s(problem: Problem, on_gpu: bool) -> float:
    """Return the seconds of a layer's f64 reference: of its sums, and of those of magnitudes (the bound)."""
    times: float = min(_MOST_TIMES, problem.cg * min(problem.kg, 5))
    if times < 5 and 8 * problem.p * problem.q > _LARGE:  # each filter tap streams it through main memory
        times *= 0.65
    return 2 * problem.flops / (_GPU_F64 if on_gpu else _CPU_F64 * times)


class ProgressBar:
    """Progress over layers: a bar on a terminal, one line for each finished layer otherwise."""

    def __init__(self, layers: int, what: str) -> None:
        self._layers = layers
        self._what = what
        self._done = 0
        self._bar: RichProgress | None = _bar() if sys.stderr.isatty() and "CI" not in os.environ else None
        self._task = self._bar.add_task(what, total=layers) if self._bar else None

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()

    def now(self, text: str, share: float = 0.0) -> None:
        """Show the current step within a layer, ``share`` of which is done."""
        if self._bar and self._task is not None:
            done = self._done + min(max(share, 0.0), 1.0)
            self._bar.update(self._task, completed=done, description=printable(f"{self._what} {text}")[:100])

    def finished(self, text: str) -> None:
        """Mark one more layer as done."""
        self._done += 1
        if self._bar and self._task is not None:
            self._bar.update(self._task, completed=self._done)
            self._bar.console.print(printable(text), highlight=False, markup=False, soft_wrap=True)
        else:
            remark(f"[{self._done}/{self._layers}] {text}")


def _bar() -> RichProgress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    doing = TextColumn("{task.description}", markup=False)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), doing)
    return Progress(*columns, console=_console(stderr=True), transient=True)
