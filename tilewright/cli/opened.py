"""What commands open and check before they begin: a device, the user's store, a layer's kernel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.cli import options
from tilewright.device import for_architecture, parse_selector
from tilewright.errors import DeviceError, ProblemError, StoreError
from tilewright.kernels.config import Config
from tilewright.plans.provenance import Basis, Provenance
from tilewright.plans.request import Request
from tilewright.problem import Problem, shapes
from tilewright.tuning.options import TuneOptions

if TYPE_CHECKING:
    from tilewright.device import Device
    from tilewright.runtime.base import Runtime
    from tilewright.store import Store


def open_device(device: str | None) -> Runtime:
    """Open the device that the command line names."""
    selector = parse_selector(device)
    from tilewright.runtime import open_runtime

    return open_runtime(*selector)


def needs_kernels(runtime: Runtime, command: str) -> None:
    """Refuse the NumPy runtime for a command that runs kernels.

    Raises:
        DeviceError: it is NumPy.
    """
    if not runtime.device.runs_kernels:
        from tilewright.runtime import instead_of_numpy

        raise DeviceError(f"{command}: NumPy has no kernels; {instead_of_numpy('--device')}")


def some_images(problem: Problem, what: str) -> None:
    """Refuse a batch of 0: there is nothing to ``what``.

    Raises:
        ProblemError: the batch is 0.
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


def architecture(arch: str, problem: Problem) -> Device:
    """Return a GPU of an architecture, with no GPU present, on which a layer is to run.

    Raises:
        DeviceError: the architecture is unknown.
        ProblemError: the layer's arrays exceed the memory of any such GPU.
    """
    from tilewright.checking.room import require_room_on

    device = for_architecture(arch)
    require_room_on(problem, device)
    return device


def calibrate(runtime: Runtime) -> None:
    """Calibrate a device's rates, in about a second; the best values ever measured count."""
    from tilewright.measuring.calibrate import calibrate as measure_rates

    if runtime.device.runs_kernels:
        with suppress(DeviceError):  # the device is busy: keep the known rates
            measure_rates(runtime)


def calibrate_once(runtime: Runtime) -> None:
    """Calibrate a device's rates if that was never done."""
    if runtime.device.rates.source != "calibrated":
        calibrate(runtime)


def make_ready(runtime: Runtime, layers: list[shapes.Layer], command: str) -> None:
    """Check that a device runs kernels and has memory for a command's layers; calibrate its rates if needed.

    Raises:
        DeviceError: it is NumPy.
        ProblemError: a batch of 0, or arrays larger than the memory.
    """
    needs_kernels(runtime, command)
    room(layers, runtime)
    calibrate_once(runtime)


@dataclass(frozen=True)
class Asked:
    """A layer, and which of its kernels a command is about.

    Attributes:
        layer: the layer, with its name.
        request: the layer, and which kernels the library may choose from.
        config: the kernel that --config names; None: the library's choice.
    """

    layer: shapes.Layer
    request: Request
    config: Config | None = None

    @property
    def problem(self) -> Problem:
        """The layer."""
        return self.request.problem

    def chosen(self, runtime: Runtime) -> tuple[Config, Provenance]:
        """Return the config that runs on a device, and why."""
        if self.config:
            return self.config, Provenance(Basis.NAMED)
        from tilewright.dispatch.dispatch import layer_plan

        plan = layer_plan(self.request, runtime, store_to_read()).plan
        return plan.config, plan.why

    def likely(self, device: Device, compiler: str = "") -> Iterator[tuple[Config, Provenance]]:
        """Return the configs that may run on a GPU that is absent, best first, and why."""
        if self.config:
            return iter([(self.config, Provenance(Basis.NAMED))])
        from tilewright.dispatch.choices import candidates

        return candidates(self.request, device, compiler, store_to_read())


def asked(
    layer: str, dtype: str | None, layout: str | None, batch: int | None, config: str | None,
    family: str | None, deterministic: bool,
) -> Asked:  # fmt: skip
    """Parse the options that name a layer and its kernel.

    Raises:
        OptionError: both --config and --family were given.
    """
    found = options.layer(layer, dtype, layout, batch)
    if config is None:
        families = options.families(family, "has one kernel: give --config reference:v=1")
        return Asked(found, Request(found.problem, deterministic, families))
    if family is not None:
        raise options.OptionError(f"--config {config} and --family {family}: give only one of them")
    from tilewright.arguments.settings import as_config

    chosen = as_config(config, found.problem, deterministic)
    return Asked(found, Request(found.problem, deterministic), chosen)


def store_to_read() -> Store:
    """Open the user's store; if it cannot be read, warn and go on without what it holds."""
    from tilewright.store import Store
    from tilewright.store.own import default_store

    return default_store() or Store()


def store_to_write() -> Store:
    """Open the user's store.

    Raises:
        StoreError: it cannot be written.
    """
    from tilewright.store import Store

    own = Store()
    own.require_writable()
    return own


def store_and_device(
    found: list[shapes.Layer], device: str | None, wanted: TuneOptions
) -> tuple[Store, Runtime]:
    """Open the user's store and the device for a command that tunes.

    A store that cannot be written is only a warning if it has every layer's winner: nothing is tuned then.

    Raises:
        StoreError: it cannot be written, and some layer needs tuning.
    """
    from tilewright.dispatch.once import known
    from tilewright.runtime import cache_folder

    own, refused = _store_to_tune(found, wanted.again)
    runtime = open_device(device)
    if refused is not None:
        if any(known(one.problem, runtime, own, wanted) is None for one in found):
            raise refused
        cache_folder.forgets(refused.__context__)  # why it cannot be written
    return own, runtime


def _store_to_tune(found: list[shapes.Layer], again: bool) -> tuple[Store, StoreError | None]:
    """Open the user's store; also return why it cannot be written, if it has records of every layer anyway.

    Whether they are of this device is checked once it is open.
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
