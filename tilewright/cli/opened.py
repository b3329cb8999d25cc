"""What commands open and ask of it before they begin: a device, the user's store, the config to run."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tilewright.cli import options
from tilewright.device import parse_selector
from tilewright.errors import DeviceError, ProblemError, StoreError
from tilewright.kernels.config import Config
from tilewright.plans.provenance import Origin, Provenance
from tilewright.problem import Problem, shapes
from tilewright.tuning.options import TuneOptions

if TYPE_CHECKING:
    from tilewright.runtime.base import Runtime
    from tilewright.store import Store


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
    from tilewright.checking.room import require_room

    for one in problems:
        some_images(one.problem, "compute")
        require_room(one.problem, runtime)


def calibrate(runtime: Runtime) -> None:
    """Calibrate a device's rates, a second's work; the best of all times counts."""
    from tilewright.measuring.calibrate import calibrate as measure_rates

    if runtime.device.backend != "numpy":
        with suppress(DeviceError):  # a device in other use: the rates that are known must do
            measure_rates(runtime)


def calibrate_once(runtime: Runtime) -> None:
    """Calibrate a device's rates if they never were."""
    if runtime.device.rates.source != "calibrated":
        calibrate(runtime)


def make_ready(runtime: Runtime, layers: list[shapes.Layer], command: str) -> None:
    """See that a device has kernels and room for the layers of a command, and rates that were measured.

    Raises:
        DeviceError: it is NumPy.
        ProblemError: a batch of 0, or arrays larger than the memory.
    """
    needs_kernels(runtime, command)
    room(layers, runtime)
    calibrate_once(runtime)


def chosen(
    problem: Problem, runtime: Runtime, deterministic: bool = False, given: options.Given = ()
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
    from tilewright.runtime import cache_folder

    own, refused = _store_to_tune(found, wanted.again)
    runtime = open_device(device)
    if refused is not None:
        if any(settled(wanted.of(one.problem), runtime, own, wanted.budget) is None for one in found):
            raise refused
        cache_folder.forgets(refused.__context__)  # why it cannot be written
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
