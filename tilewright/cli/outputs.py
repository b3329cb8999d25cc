"""Where a command's results go: files checked before the work that fills them; ``-`` is standard output."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tilewright.cli.options import OptionError
from tilewright.errors import printable
from tilewright.files import atomic_write, locked
from tilewright.problem.shapes import file_of

TO_STDOUT = ("--json", "--markdown", "--csv", "--html", "FILE")  # text


def check(files: Mapping[str, Path | None], read: Iterable[Path | str] = ()) -> bool:
    """Check that the output files of a command can be written; return whether one is standard output.

    Args:
        files: they, by their options.
        read: what the command reads, layers.txt:R12 too; what is no file among it does not count.

    Raises:
        OptionError: one is a folder, its folder is missing, there is no permission, two are one, or one
            would replace what is read.
    """
    given = {option: file for option, file in files.items() if file is not None}
    found = [file_of(str(one)) for one in read] if given else []
    inputs = {one[0].resolve() for one in found if one}
    taken: dict[object, str] = {}
    for option, file in given.items():
        if is_stdout(file) and option not in TO_STDOUT:
            raise OptionError(f"{option} -: cannot be printed to standard output; name a file")
        place = "-" if is_stdout(file) else _writable(file, option)
        if place in taken and not _endless(place):
            raise OptionError(f"{option} {file}: {taken[place]} is already written there; name another file")
        if place in inputs:
            raise OptionError(f"{option} {file}: is read by this command; name another file")
        taken[place] = option
    return "-" in taken


def _endless(place: object) -> bool:
    """Whether a file takes whatever comes: /dev/null, a pipe."""
    return isinstance(place, Path) and place.exists() and not place.is_file()


def is_stdout(file: Path | None) -> bool:
    """Whether a file is standard output."""
    return str(file) == "-"


def is_replaceable(file: Path) -> bool:
    """Whether a file can be written again and again: no standard output, pipe or device."""
    return not is_stdout(file) and (file.is_file() or not file.exists())


def to_resume(json_file: Path | None) -> Path:
    """Return the file that --resume goes on from.

    Raises:
        OptionError: none was named, or one that cannot be read again.
    """
    if json_file is None or not is_replaceable(json_file):
        raise OptionError("--resume: continues the file given by --json; give --json FILE too")
    return json_file


def way_on(json_file: Path | None) -> str:
    """Say how to go on with what was stopped, if its results went to a file."""
    if json_file is None or not is_replaceable(json_file):
        return ""
    return "; the same command with --resume continues"


@contextmanager
def alone(json_file: Path | None) -> Iterator[None]:
    """Within it no other command that keeps what it has so far writes the file of --json.

    Each writes all that it knows: the rows of the other would be lost.

    Raises:
        OptionError: another is at it.
    """
    with ExitStack() as held:
        if json_file is not None and is_replaceable(json_file):
            real = json_file.resolve()
            try:
                held.enter_context(locked(real.with_name(f"{real.name}.lock"), wait=False))
            except BlockingIOError:
                raise OptionError(
                    f"--json {json_file}: another tilewright is writing it; wait for its end and add to it "
                    "with --resume, or name another file"
                ) from None
            except OSError:
                pass  # a folder that takes no files, or knows no locks
        yield


def keep(document: Any, json_file: Path | None) -> None:
    """Write what there is so far to the file of --json: a crash or a kill loses the layer under way alone."""
    if json_file is not None and is_replaceable(json_file):
        write(json_file, as_json(document), "--json")


def as_json(document: Any) -> str:
    """A document as the text of a file."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def drop_stdout() -> None:
    """Send what is still to be printed nowhere: nobody reads it, or there is no room for it."""
    with suppress(OSError, ValueError):  # it is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def write_all(files: Mapping[str, Path | None], texts: Mapping[str, str]) -> None:
    """Write the files of some options; standard output last, since its reader may have gone.

    Raises:
        OptionError: the first that could not be written; the others are.
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
    """Write an output file whole: aside first, then renamed; a pipe or a device as it is.

    Raises:
        OptionError: it cannot be written; names the option.
    """
    # The name of a file, or of a layer in JSON, may be no text: it is shown with ? in it.
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


def _behind_links(file: Path) -> Path:
    """Return the file itself; a pipe or a device as it was named, for it may have no other name."""
    return file if file.exists() and not file.is_file() else file.resolve()


def _is_replaced(file: Path) -> bool:
    """Whether another can take a file's place: it is one, and something can be put beside it."""
    return (file.is_file() or not file.exists()) and os.access(file.parent, os.W_OK)


def _tried(real: Path) -> Path:
    """Return a file once it is clear that it can be written: permissions, root's above all, do not say it.

    Raises:
        OSError: it cannot.
    """
    if _is_replaced(real):
        tempfile.TemporaryFile(dir=real.parent).close()
    elif real.is_file():
        real.open("r+b").close()
    return real


def _writable(file: Path, option: str) -> Path:
    """Return the file itself, behind any links."""
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
    except (OSError, ValueError, RuntimeError) as error:  # a name too long, links in a circle
        why = getattr(error, "strerror", None) or str(error)
    raise OptionError(f"{option} {file}: {why}")
