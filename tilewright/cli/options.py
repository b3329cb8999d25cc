"""The options that commands share, and the checks that turn their text into values.

Everything a user typed is checked before anything slow begins.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.device import parse_selector
from tilewright.errors import DeviceError, ProblemError, StoreError, TilewrightError
from tilewright.kernels.config import Config
from tilewright.plans.provenance import Origin, Provenance
from tilewright.problem import LAYOUTS, NAMES, Problem, shapes
from tilewright.tuning.budget import Budget
from tilewright.tuning.options import TuneOptions

if TYPE_CHECKING:
    from tilewright.runtime.base import Runtime
    from tilewright.store import Store

Problems = Annotated[
    list[str],
    typer.Argument(
        metavar="LAYERS",
        help=f"Suites ({', '.join(shapes.suites())}), single layers of them (R12, resnet:R12), files of "
        "layers, or problem strings (n1c512h7w7k512r3s3p1-f32; see 'tilewright --help').",
    ),
]
OneProblem = Annotated[
    str, typer.Argument(metavar="LAYER", help="A layer (R12), or a problem string (see 'tilewright --help').")
]
Device = Annotated[
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
        help="In place of --device: a GPU of this architecture, sm_75, sm_80, sm_90 or sm_120; needs no GPU.",
    ),
]
_DTYPES = ", ".join(NAMES).replace("q8", "q8 (-i8+requant)")
Dtype = Annotated[
    str | None,
    typer.Option("--dtype", metavar="TYPE", help=f"Use this dtype in place of the layers' own: {_DTYPES}."),
]
Layout = Annotated[
    str | None,
    typer.Option(
        "--layout", metavar="LAYOUT", help="Use this layout in place of the layers' own: nchw, nhwc or both."
    ),
]
OneLayout = Annotated[
    str | None,
    typer.Option(
        "--layout", metavar="LAYOUT", help="Use this layout in place of the layer's own: nchw or nhwc."
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
    typer.Option("--batch", metavar="N", min=1, help="Use this batch size in place of the layers' own."),
]
Families = Annotated[
    str | None,
    typer.Option(
        "--family",
        metavar="NAMES",
        help="Use only these kernel families: direct, or direct,gemm; plain: all but "
        "Winograd, Strassen and Toeplitz.",
    ),
]
Again = Annotated[bool, typer.Option("--again", help="Search again, even if a winner is known.")]
Strategy = Annotated[
    str,
    typer.Option(
        "--strategy",
        metavar="NAME",
        help="Which configs to try first: model (fastest as predicted), local (neighbours of good ones), "
        "random, or all.",
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        "--seed", metavar="N", min=0, max=2**31 - 1, help="Seed of the random inputs and of the search."
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
        "Default: the tuned winner, or the model's choice if there is none.",
    ),
]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the results as JSON; - prints only that."),
]
MAX_LAYERS = 1000


class OptionError(TilewrightError):
    """An option of the command line that cannot be right."""


def layers(
    specs: list[str], dtype: str | None = None, layout: str | None = None, batch: int | None = None
) -> list[shapes.Layer]:
    """Resolve the layers of a command line."""
    found = list(dict.fromkeys(shapes.load(specs, dtype, layout, batch)))  # each once
    if len(found) > MAX_LAYERS:
        raise ProblemError(f"{len(found)} layers were given; at most {MAX_LAYERS} at once")
    return found


def layer(spec: str, dtype: str | None = None, layout: str | None = None) -> shapes.Layer:
    """Resolve the one layer of a command line."""
    if layout is not None and layout not in LAYOUTS:
        raise ProblemError(f"layout {layout!r}: this command takes one layout: {' or '.join(LAYOUTS)}")
    found = layers([spec], dtype, layout)
    if len(found) != 1:
        names = ", ".join(one.name for one in found)
        raise ProblemError(f"layer {spec!r}: stands for {len(found)} layers; give one of {names}")
    return found[0]


def one_of(arch: str | None, device: str | None) -> None:
    """Refuse --arch beside --device."""
    if arch is not None and device is not None:
        raise OptionError("--arch and --device: give only one of them")


def open_device(device: str | None) -> Runtime:
    """Open the device of a command line."""
    selector = parse_selector(device)
    from tilewright.runtime import open_runtime

    return open_runtime(*selector)


def needs_kernels(runtime: Runtime, command: str) -> None:
    """Refuse NumPy for a command that runs kernels.

    Raises:
        DeviceError: it is NumPy.
    """
    if runtime.device.backend == "numpy":
        from tilewright.runtime import instead_of_numpy

        raise DeviceError(f"{command}: NumPy has no kernels; {instead_of_numpy('--device')}")


def some_images(problem: Problem, what: str) -> None:
    """Refuse a batch of 0, of which there is nothing to ``what``.

    Raises:
        ProblemError: it is one.
    """
    if problem.n == 0:
        raise ProblemError(f"{problem}: a batch of 0 has nothing to {what}; give 1 or more")


def room(problems: list[shapes.Layer], runtime: Runtime) -> None:
    """Check that no batch is 0, and that the arrays of every layer fit into memory.

    Raises:
        ProblemError: a batch of 0, or arrays larger than the memory.
    """
    from tilewright.runtime.capacity import require_room

    for one in problems:
        some_images(one.problem, "compute")
        require_room(one.problem, runtime)


def measure(runtime: Runtime) -> None:
    """Calibrate a device's rates, a second's work; the best of all times counts."""
    from tilewright.calibrate import calibrate

    if runtime.device.backend != "numpy":
        with suppress(DeviceError):  # a device in other use: the rates that are known must do
            calibrate(runtime)


def measure_once(runtime: Runtime) -> None:
    """Calibrate a device's rates if they never were."""
    if runtime.device.rates.source != "calibrated":
        measure(runtime)


def chosen(
    problem: Problem, runtime: Runtime, deterministic: bool = False, given: Config | tuple[str, ...] = ()
) -> tuple[Config, Provenance]:
    """The config that is given, else what a user of the library would run, of given families; and why."""
    if isinstance(given, Config):
        return given, Provenance(Origin.NAMED)
    from tilewright.dispatch.dispatch import dispatch

    plan = dispatch(problem, runtime, store(remembers=False), deterministic, given)
    return plan.config, plan.why


def store(remembers: bool) -> Store:
    """The user's store. One that ``remembers`` is written to; else what cannot be read is only warned of.

    Raises:
        StoreError: it is to remember, and cannot be written.
    """
    from tilewright.store import Store
    from tilewright.store.own import default_store

    if not remembers:
        return default_store() or Store()
    own = Store()
    own.require_writable()
    return own


def store_and_device(
    found: list[shapes.Layer], device: str | None, wanted: TuneOptions
) -> tuple[Store, Runtime]:
    """Open the user's store and the device for a command that tunes.

    A store that cannot be written is only warned of where every layer's winner is in it: none is tuned then.

    Raises:
        StoreError: it cannot be written, and some layer is to be tuned.
    """
    from tilewright.dispatch.choices import settled
    from tilewright.runtime import cache

    own, refused = _store_to_tune(found, wanted.again)
    runtime = open_device(device)
    if refused is not None:
        if any(settled(wanted.of(one.problem), runtime, own, wanted.budget) is None for one in found):
            raise refused
        cache.forgets(refused.__context__)  # why it cannot be written
    return own, runtime


def _store_to_tune(found: list[shapes.Layer], again: bool) -> tuple[Store, StoreError | None]:
    """Open the user's store; give why it cannot be written, if it has records of every layer all the same.

    Whether they are of the device is seen once that is open.
    """
    from tilewright.store import Store

    own = Store()
    try:
        own.require_writable()
    except StoreError as refused:
        with suppress(StoreError):  # it cannot be read either
            if not again and all(own.records(one.problem) for one in found):
                return own, refused
        raise
    return own, None


def config(text: str | None, problem: Problem, deterministic: bool) -> Config | None:
    """Read --config: its text or its name; None leaves it to the store and the model."""
    from tilewright.arguments.choices import as_config

    return None if text is None else as_config(text, problem, deterministic)


def config_or_families(
    text: str | None, names: str | None, problem: Problem, deterministic: bool
) -> Config | tuple[str, ...]:
    """Read --config and --family, of which one at most may be given."""
    if text is not None and names is not None:
        raise OptionError(f"--config {text} and --family {names}: give only one of them")
    return config(text, problem, deterministic) or families(names)


def families(text: str | None) -> tuple[str, ...]:
    """Read --family; nothing stands for all that race."""
    from tilewright.kernels import FAMILIES, pick

    if text is None:
        return ()
    named = tuple(name.strip() for name in text.split(","))
    untuned = [family.name for family in pick(FAMILIES, named) if not family.tunable]
    if untuned:
        raise OptionError(f"--family {', '.join(untuned)}: cannot be tuned; leave it out")
    return named


def budget(text: str | None) -> Budget | None:
    """Read --budget; None leaves it to the tuner."""
    return None if text is None else Budget.parse(text)


def strategy(name: str) -> str:
    """Check --strategy."""
    from tilewright.search.strategies import STRATEGIES

    if name not in STRATEGIES:
        raise OptionError(f"--strategy {name!r}: must be one of {', '.join(STRATEGIES)}")
    return name
