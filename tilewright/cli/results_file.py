"""The file of --json, for commands that save as they go: a crash or a kill loses only the current layer.

Results of an earlier run are worth its hours: without --resume they are set aside, as FILE.old, not replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tilewright.cli import outputs
from tilewright.cli.options import OptionError
from tilewright.cli.screen import remark
from tilewright.files import locked


class ResultsFile:
    """The file of --json; nothing is saved before the end if that is a pipe, a device or standard output.

    Attributes:
        source: the file again, if the command was given --resume.

    Raises:
        OptionError: --resume, but no regular file.
    """

    def __init__(self, given: Path | None, resume: bool) -> None:
        saves = given is not None and not outputs.is_stdout(given) and not outputs.is_endless(given)
        self._path = given if saves else None
        self.source = self._path if resume else None
        self._ours = resume  # whether what the file holds is of this command
        if resume and not saves:
            raise OptionError("--resume: continues the file given by --json; give --json FILE too")

    @property
    def way_on(self) -> str:
        """How to go on after a stopped run: its layers are kept only if the results went to a file.

        A file of an earlier run, to which this one came to write nothing, is not to be continued: its layers
        would count as done.
        """
        if self._path is None:
            return "; run the same command again, with --json FILE to keep the layers that are done"
        if not self._ours and self._path.exists():
            return f"; {self._path} is unchanged, as an earlier run left it; run the same command again"
        return "; the same command with --resume continues"

    @property
    def _old(self) -> Path | None:
        """Where results of an earlier run go before this one writes its first; None: there are none."""
        return None if self._path is None or self._ours else outputs.old_of(self._path)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold a lock on the file, within a ``with``, against other commands that save as they go.

        Each of them writes its complete results: rows of the other would be lost.

        Raises:
            OptionError: another command holds the lock.
        """
        with ExitStack() as held:
            if self._path is not None:
                real = self._path.resolve()
                try:
                    held.enter_context(locked(real.with_name(f"{real.name}.lock"), wait=False))
                except BlockingIOError:
                    raise OptionError(
                        f"--json {self._path}: another tilewright is writing it; wait for its end and add to "
                        "it with --resume, or name another file"
                    ) from None
                except OSError:
                    pass  # a folder that is read-only or does not support locks
            if old := self._old:
                remark(f"{self._path} holds results: they become {old.name} when the first layer is done; "
                       "--resume adds to them instead")  # fmt: skip
            yield

    def keep(self, document: Any) -> str:
        """Write the results so far.

        Returns why they cannot be written, or nothing: the work goes on, since the disk may have room at its
        end.
        """
        if self._path is not None:
            try:
                if old := self._old:
                    self._path.resolve().replace(old)
                outputs.write(self._path, outputs.as_json(document), "--json")
            except (OptionError, OSError) as error:
                return str(error)
            self._ours = True
        return ""
