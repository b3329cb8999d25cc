"""Where a command's results go: files checked before the work that fills them; ``-`` is standard output."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tilewright.cli.options import OptionError
from tilewright.errors import printable
from tilewright.files import atomic_write
from tilewright.problem.shapes import file_of

TO_STDOUT = ("--json", "--markdown", "--csv", "--html", "FILE")  # text


def check(files: Mapping[str, Path | None], read: Iterable[Path | str] = ()) -> bool:
    """Check that the output files of a command can be written; return whether one is standard output.

    Args:
        files: the output files, by their options.
        read: the command's inputs, such as layers.txt:R12; those that are no files are ignored.

    Raises:
        OptionError: one is a folder, its folder is missing, there is no permission, two are the same, or one
            would replace an input.
    """
    given = {option: file for option, file in files.items() if file is not None}
    found = [file_of(str(one)) for one in read] if given else []
    inputs = {one[0].resolve() for one in found if one}
    taken: dict[object, str] = {}
    for option, file in given.items():
        if is_stdout(file) and option not in TO_STDOUT:
            raise OptionError(f"{option} -: cannot be printed to standard output; name a file")
        place = "-" if is_stdout(file) else _writable(file, option)
        if place in taken and not (isinstance(place, Path) and is_endless(place)):
            raise OptionError(f"{option} {file}: {taken[place]} is already written there; name another file")
        if place in inputs:
            raise OptionError(f"{option} {file}: is read by this command; name another file")
        taken[place] = option
    return "-" in taken


def is_endless(file: Path) -> bool:
    """Whether a file accepts any number of writes: /dev/null, a pipe."""
    return file.exists() and not file.is_file()


def is_stdout(file: Path | None) -> bool:
    """Whether a file is standard output."""
    return str(file) == "-"


def as_json(document: Any) -> str:
    """Return a document as JSON text."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def drop_stdout() -> None:
    """Discard further output to stdout: its reader has gone, or the disk is full."""
    with suppress(OSError, ValueError):  # stdout has no file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_all(files: Mapping[str, Path | None], texts: Mapping[str, str]) -> None:
    """Write the files of some options; standard output last, since its reader may have gone.

    Raises:
        OptionError: names the first that could not be written; the others are written.
    """
    given = [(option, file) for option in texts if (file := files[option]) is not None]
    errors = []
    for option, file in sorted(given, key=lambda one: is_stdout(one[1])):
        try:
            write(file, texts[option], option)
        except OptionError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def write(file: Path, content: str | bytes, option: str) -> None:
    """Write an output file atomically, by a rename; a pipe or a device directly.

    Raises:
        OptionError: it cannot be written; names the option.
    """
    # The name of a file, or of a layer in JSON, may be invalid Unicode: it is shown with ? in it.
    data = content.encode(errors="replace") if isinstance(content, str) else content
    if is_stdout(file):
        text = data.decode()
        sys.stdout.write("\n".join(map(printable, text.split("\n"))) if sys.stdout.isatty() else text)
        return
    try:
        if _is_replaced(real := _behind_links(file)):
            atomic_write(real, data, 0o666)
        else:
            file.write_bytes(data)
    except OSError as error:
        raise OptionError(f"{option} {file}: {error.strerror or error}") from None


def old_of(file: Path) -> Path | None:
    """Return where what a file holds goes before it is written, FILE.old; None: it holds nothing to keep."""
    if is_stdout(file) or is_endless(file):
        return None
    real = file.resolve()
    return real.with_name(f"{real.name}.old") if real.is_file() and real.stat().st_size else None


def _behind_links(file: Path) -> Path:
    """Return the file with links resolved; a pipe or a device as named, since it may have no other name."""
    return file if is_endless(file) else file.resolve()


def _is_replaced(file: Path) -> bool:
    """Whether a file can be replaced by a rename: it is regular, and its folder can be written."""
    return not is_endless(file) and os.access(file.parent, os.W_OK)


def _tried(real: Path) -> Path:
    """Return a file after trying to write it: permissions, root's above all, are no proof.

    Raises:
        OSError: it cannot be written.
    """
    if _is_replaced(real):
        tempfile.TemporaryFile(dir=real.parent).close()
    elif not is_endless(real):
        real.open("r+b").close()
    return real


def _writable(file: Path, option: str) -> Path:
    """Return the file, with links resolved, if it can be written."""
    try:
        if file.is_dir():
            why = "is a folder; name a file"
        elif file.parent.exists() and not file.parent.is_dir():
            why = f"{file.parent} is no folder"
        elif not file.parent.is_dir():
            why = f"the folder {file.parent} does not exist; create it first"
        elif not os.access(file if file.exists() else file.parent, os.W_OK):
            why = "no permission to write there"
        else:
            return _tried(_behind_links(file))
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, a loop of links
        why = getattr(error, "strerror", None) or str(error)
    raise OptionError(f"{option} {file}: {why}")
