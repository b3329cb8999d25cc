"""The command ``tilewright``: parsing and printing only; heavy imports wait for the command that needs them.

Exit status: 0 done; 1 the device or a kernel failed; 2 a mistake of the user, with one line on stderr that
begins with ``error:``; 130 after Ctrl-C, 143 after SIGTERM, 141 when the reader of the output has gone (as
with ``| head``). An unexpected error keeps its traceback.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from tilewright import __version__
from tilewright.cli import (
    bench,
    cache,
    calibrate,
    configs,
    doctor,
    explain,
    export,
    model_report,
    outputs,
    profile,
    report,
    run,
    stopping,
    study,
    tune,
)
from tilewright.errors import CompileError, RunError, TilewrightError, printable
from tilewright.problem import EXAMPLE, GRAMMAR

_GRAMMAR = f"""\b
A problem string names a layer, e.g. {EXAMPLE}:
{GRAMMAR}
One word, no spaces; what stands in [] is optional.
"""
app = typer.Typer(
    name="tilewright",
    help="Find, verify and run the fastest convolution kernel for one layer on one device.",
    epilog=_GRAMMAR,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
_COMMANDS: dict[str, Callable[..., None]] = {
    "bench": bench.bench,
    "tune": tune.tune,
    "explain": explain.explain,
    "run": run.run,
    "configs": configs.configs,
    "profile": profile.profile,
    "export": export.export,
    "study": study.study,
    "report": report.report,
    "doctor": doctor.doctor,
    "calibrate": calibrate.calibrate,
    "model-report": model_report.model_report,
}
_STORE_NOTHING = ("configs", "report", "doctor", "model-report")
for _name, _command in _COMMANDS.items():
    app.command(_name)(stopping.stoppable(_command, stores=_name not in _STORE_NOTHING))
for _registered in cache.app.registered_commands:
    if _registered.callback is not None:
        _registered.callback = stopping.stoppable(_registered.callback)
app.add_typer(cache.app, name="cache")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tilewright {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the command."""


# New versions of typer bundle click and old ones import it: take the base class of either.
_UsageProblem: type[Exception] = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; return its exit status."""
    args = list(sys.argv[1:] if argv is None else argv)
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 (closed by the shell: <&-)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 (>&-)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # the locale's encoding may lack ±
    try:
        status = typer.main.get_command(app).main(args or ["--help"], "tilewright", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except _UsageProblem as error:
        text = error.format_message().rstrip(". \n") + _given(args, error)  # type: ignore[attr-defined]
        return _mistake(f"{text}{'' if text.endswith('?') else '.'} See '{_help(args)} --help'.")
    except TilewrightError as error:
        return _mistake(str(error), 1 if isinstance(error, CompileError | RunError) else 2)
    except (KeyboardInterrupt, typer.Abort):
        print("stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone, e.g. `| head`
        outputs.drop_stdout()
        return 141
    except MemoryError as error:
        told = ": ".join(filter(None, ("out of memory", str(error))))
        return _mistake(f"{told}; free some, or raise the limit on it", 1)
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        outputs.drop_stdout()  # what it still buffers cannot be written either
        return _mistake(f"{error.strerror}; make room, or write elsewhere", 1)


def _mistake(text: str, status: int = 2) -> int:
    print("error: " + printable(" ".join(text.split())), file=sys.stderr)
    return status


def _given(args: Sequence[str], error: Exception) -> str:
    """Return the invalid value that an option was given; the error says what it accepts."""
    names = getattr(getattr(error, "param", None), "opts", ())
    for arg, following in zip(args, [*args[1:], ""], strict=True):
        name, equals, value = arg.partition("=")
        if name in names:
            return f"; {(value if equals else following)!r} was given"
    return ""


def _help(args: Sequence[str]) -> str:
    """Return the command whose help a mistake refers to."""
    command: object = typer.main.get_command(app)
    words = ["tilewright"]
    for arg in args[:2]:
        if (command := getattr(command, "commands", {}).get(arg)) is None:
            break
        words.append(arg)
    return " ".join(words)
