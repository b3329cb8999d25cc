"""The messages between a worker and its child: requests and answers, and their JSON form."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

from tilewright.device import Device
from tilewright.kernels.config import Config
from tilewright.measuring.rounds import Limits
from tilewright.record import Check, Measurement, Outcome, Record, Versions
from tilewright.store.record_json import record_from_dict, record_to_dict


class Stage(StrEnum):
    """What a child does next, reported so that a deadline can be set for it."""

    START = "start"
    OPEN = "open"
    REFERENCE = "reference"
    COMPILE = "compile"
    RUN = "run"
    INPUTS = "inputs"
    TIME = "time"


# ------------------------------------------------------------------------------- requests


@dataclass(frozen=True)
class WorkerRequest:
    """A request to a child; ``do`` is its name in JSON."""

    do: ClassVar[str]


@dataclass(frozen=True)
class Job(WorkerRequest):
    """What a worker is for: one problem on one device.

    Attributes:
        problem: the problem string.
        backend: of the device, as ``open_runtime`` takes it.
        index: number of the device within its backend.
        seed: of the inputs.
        facts: facts of a device, for a worker that only compiles for it and opens no CUDA device.
    """

    do = "open"
    problem: str
    backend: str | None = None
    index: int = 0
    seed: int = 0
    facts: Mapping[str, Any] | None = None


class Rest(WorkerRequest):
    """Forget the job, with all its arrays and kernels."""

    do = "rest"


class Prepare(WorkerRequest):
    """Make the inputs and the references."""

    do = "prepare"


@dataclass(frozen=True)
class Compile(WorkerRequest):
    """Compile a config into the caches."""

    do = "compile"
    config: Config


@dataclass(frozen=True)
class Try(WorkerRequest):
    """Run, verify and time a config; see ``Worker.run``."""

    do = "trial"
    config: Config
    best_us: float
    full: bool


@dataclass(frozen=True)
class Compare(WorkerRequest):
    """Measure configs against each other."""

    do = "final"
    configs: tuple[Config, ...]
    limits: Limits


_REQUESTS: dict[str, type[WorkerRequest]] = {
    request.do: request for request in (Job, Rest, Prepare, Compile, Try, Compare)
}
_WRITTEN: dict[str, Callable[[Any], Any]] = {
    "config": str, "configs": lambda configs: list(map(str, configs)), "limits": asdict,
}  # fmt: skip
_READ: dict[str, Callable[[Any], Any]] = {
    "config": Config.parse, "configs": lambda texts: tuple(map(Config.parse, texts)),
    "limits": lambda limits: Limits(**limits),
}  # fmt: skip


def encode(request: WorkerRequest) -> dict[str, Any]:
    """Return what ``decode`` reads."""
    values = {one.name: getattr(request, one.name) for one in fields(request)}
    return {"do": request.do, **{name: _WRITTEN.get(name, _as_it_is)(one) for name, one in values.items()}}


def decode(line: Mapping[str, Any]) -> WorkerRequest:
    """Return the request of a line."""
    values = {name: _READ.get(name, _as_it_is)(one) for name, one in line.items() if name != "do"}
    return _REQUESTS[line["do"]](**values)


def _as_it_is(value: Any) -> Any:
    return value


# -------------------------------------------------------------------------------- answers


@dataclass(frozen=True)
class Opened:
    """The device of a job, as the child sees it."""

    device: Device
    versions: Versions

    @property
    def said(self) -> dict[str, Any]:
        """What ``of`` reads."""
        return {"device": self.device.facts, "versions": self.versions.said}

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Opened:
        """Read an answer."""
        return cls(Device.of(said["device"]), Versions.of(said["versions"]))


class Judged(NamedTuple):
    """The record of a config; ``spoilt``: the child's device can no longer be trusted."""

    record: Record
    spoilt: bool

    @property
    def said(self) -> dict[str, Any]:
        """What ``of`` reads."""
        return {"record": record_to_dict(self.record), "spoilt": self.spoilt}

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Judged:
        """Read an answer."""
        return cls(record_from_dict(said["record"]), said["spoilt"])


@dataclass(frozen=True)
class Compiled:
    """The result of compiling a config ahead of its trial; ``outcome`` is None if it succeeded."""

    outcome: Outcome | None
    reason: str = ""
    compile_s: float = 0.0

    @property
    def said(self) -> dict[str, Any]:
        """What ``of`` reads."""
        return asdict(self)

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Compiled:
        """Read an answer."""
        return cls(**{**said, "outcome": said["outcome"] and Outcome(said["outcome"])})


@dataclass(frozen=True)
class Final:
    """One contestant of the last comparison; ``check`` is there if it was verified in full."""

    config: str
    measurement: Measurement
    check: Check | None = None

    @property
    def said(self) -> dict[str, Any]:
        """What ``of`` reads."""
        return asdict(self)

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Final:
        """Read an answer."""
        check = said["check"] and Check(**said["check"])
        return cls(said["config"], Measurement(**said["measurement"]), check)
