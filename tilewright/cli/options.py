"""The options that commands share, and the functions that check and parse their text.

Everything a user typed is checked before anything slow begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.device import ARCHITECTURES
from tilewright.errors import ProblemError, TilewrightError
from tilewright.kernels import FAMILIES, pick
from tilewright.problem import LAYOUTS, PRECISIONS, shapes
from tilewright.tuning.budget import Budget


def file(name: str) -> Path:
    """Parse the name of a file. An empty one, e.g. from an unset variable, does not mean the current folder.

    Raises:
        typer.BadParameter: it is empty; typer adds the option.
    """
    if not name:
        raise typer.BadParameter("the name is empty; name a file")
    return Path(name)


def file_option(name: str, told: str) -> Any:
    """Return an option that names a file."""
    return typer.Option(name, metavar="FILE", parser=file, help=told)


def one_of(names: Iterable[str]) -> str:
    """Return a choice in words: a, b or c."""
    *most, last = names
    return f"{', '.join(most)} or {last}"


Problems = Annotated[
    list[str],
    typer.Argument(
        metavar="LAYERS",
        help=f"Suites ({', '.join(shapes.suites())}), single layers of them (R12, resnet:R12), files of "
        "layers and single layers of one (layers.txt, layers.txt:R12), each optionally followed by steps "
        "(resnet+bias+relu), or problem strings (n1c512h7w7k512r3s3p1-f32; see 'tilewright --help').",
    ),
]
OneProblem = Annotated[
    str,
    typer.Argument(
        metavar="LAYER", help="A layer (R12, R12+bias+relu), or a problem string (see 'tilewright --help')."
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="cpu, cuda, cuda:N or opencl:N. Default: the first NVIDIA GPU, else the CPU.",
    ),
]
DeviceOrNumpy = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="cpu, cuda, cuda:N, opencl:N or numpy. Default: the first NVIDIA GPU, else the CPU.",
    ),
]
Arch = Annotated[
    str | None,
    typer.Option(
        "--arch",
        metavar="ARCH",
        help=f"In place of --device: a GPU of this architecture, {one_of(ARCHITECTURES)}; needs no GPU.",
    ),
]
_DTYPES = ", ".join(PRECISIONS).replace("q8", "q8 (-i8+requant)")
Dtype = Annotated[
    str | None,
    typer.Option("--dtype", metavar="TYPE", help=f"Use this dtype instead of the layer's own: {_DTYPES}."),
]
Layout = Annotated[
    str | None,
    typer.Option(
        "--layout",
        metavar="LAYOUT",
        help=f"Use this layout instead of the layer's own: {one_of((*LAYOUTS, 'both'))}.",
    ),
]
OneLayout = Annotated[
    str | None,
    typer.Option(
        "--layout", metavar="LAYOUT", help=f"Use this layout instead of the layer's own: {one_of(LAYOUTS)}."
    ),
]
BudgetText = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="BUDGET",
        help="How long to search for each layer: 20s, 2m, 50trials (configs tried) or all. Seconds include "
        "everything; start-up, the f64 references, a first trial and the check of the winner are never cut "
        "short, so a very small budget is exceeded. Default: under a minute.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume", help="Continue the file given by --json: keep what it holds, and measure only the rest."
    ),
]
Batch = Annotated[
    int | None,
    typer.Option("--batch", metavar="N", min=1, help="Use this batch size instead of the layer's own."),
]
Families = Annotated[
    str | None,
    typer.Option(
        "--family",
        metavar="NAMES",
        help="Use only these kernel families: direct, or direct,gemm; plain: all but "
        "Winograd, Strassen, toeplitz and grouped_mma.",
    ),
]
Again = Annotated[bool, typer.Option("--again", help="Search again, even if a winner is known.")]
Strategy = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="NAME",
        # The names of STRATEGIES (a test compares): importing that takes too long for --help.
        help="Which configs to try first: model (fastest as predicted), local (neighbours of good ones), "
        "random, or all. Default: model.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        max=2**31 - 1,
        help="Seed of the random inputs and of the order in which configs are tried.",
    ),
]
InputSeed = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, max=2**31 - 1, help="Seed of the random inputs.")
]
SearchSeed = Annotated[
    int,
    typer.Option(
        "--seed", metavar="N", min=0, max=2**31 - 1, help="Seed of the order in which configs are tried."
    ),
]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Use only kernels that give the same bits each time.")
]
ConfigText = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="CONFIG",
        help="Use this kernel: a name that 'tilewright configs' lists, or family:name=value.name=value. "
        "Default: the tuned winner; if there is none, that of a similar layer, or the model's choice.",
    ),
]
JsonFile = Annotated[Path | None, file_option("--json", "Write the results as JSON; - prints only that.")]
MAX_LAYERS = 1000


class OptionError(TilewrightError):
    """An invalid option of the command line."""


def layers(
    specs: list[str], dtype: str | None = None, layout: str | None = None, batch: int | None = None
) -> list[shapes.Layer]:
    """Resolve the layers of a command line.

    Raises:
        ProblemError: a spec is unknown or does not allow these options, or there are more than MAX_LAYERS.
    """
    found = list(dict.fromkeys(shapes.load(specs, dtype, layout, batch)))  # each once
    if len(found) > MAX_LAYERS:
        raise ProblemError(f"{len(found)} layers were given; at most {MAX_LAYERS} at once")
    return found


def layer(
    spec: str, dtype: str | None = None, layout: str | None = None, batch: int | None = None
) -> shapes.Layer:
    """Resolve the one layer of a command line.

    Raises:
        ProblemError: there is none, or several; or the layout is unknown.
    """
    if layout is not None and layout not in LAYOUTS:
        raise ProblemError(f"layout {layout!r}: this command takes one layout: {' or '.join(LAYOUTS)}")
    found = layers([spec], dtype, layout, batch)
    if len(found) != 1:
        names = ", ".join(one.name for one in found)
        raise ProblemError(f"layer {spec!r}: stands for {len(found)} layers; give one of {names}")
    return found[0]


def either(arch: str | None, device: str | None) -> None:
    """Refuse --arch beside --device.

    Raises:
        OptionError: both were given.
    """
    if arch is not None and device is not None:
        raise OptionError("--arch and --device: give only one of them")


def families(text: str | None, untunable: str = "cannot be tuned; leave it out") -> tuple[str, ...]:
    """Parse --family; None means all that compete. ``untunable``: the error's text for any other."""
    if text is None:
        return ()
    named = tuple(name.strip() for name in text.split(","))
    untuned = [family.name for family in pick(FAMILIES, named) if not family.tunable]
    if untuned:
        raise OptionError(f"--family {', '.join(untuned)}: {untunable}")
    return named


def budget(text: str | None) -> Budget | None:
    """Parse --budget; None leaves it to the tuner."""
    return None if text is None else Budget.parse(text)


def strategy(name: str | None) -> str:
    """Parse --strategy; None means the model's.

    Raises:
        OptionError: it is unknown; lists the known ones.
    """
    from tilewright.search.strategies import STRATEGIES

    if name is None:
        return "model"
    if name not in STRATEGIES:
        raise OptionError(f"--strategy {name!r}: must be one of {', '.join(STRATEGIES)}")
    return name
