"""The messages between a worker and its child: requests and answers, and their JSON form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from tilewright.device import Device
from tilewright.record import Check, Measurement, Outcome, Record, Versions
from tilewright.store.record_json import record_from_dict, record_to_dict

# ------------------------------------------------------------- requests, which hold plain values alone


@dataclass(frozen=True)
class Job:
    """What a worker is for: one problem on one device.

    Attributes:
        problem: the problem string.
        backend: of the device, as ``open_runtime`` takes it.
        index: number of the device within its backend.
        seed: of the inputs.
        facts: facts of a device, for a worker that only compiles for it and opens no CUDA device.
    """

    problem: str
    backend: str | None = None
    index: int = 0
    seed: int = 0
    facts: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Rest:
    """Forget the job, with all its arrays and kernels."""


@dataclass(frozen=True)
class Prepare:
    """Make the inputs and the references."""


@dataclass(frozen=True)
class Compile:
    """Compile a config into the caches."""

    config: str


@dataclass(frozen=True)
class Rank:
    """Compute the model's choices over some families; see ``search/guesses.py``."""

    families: list[str]
    deterministic: bool


@dataclass(frozen=True)
class Try:
    """Run, verify and time a config; see ``Worker.run``."""

    config: str
    best_us: float
    full: bool


@dataclass(frozen=True)
class Compare:
    """Measure configs against each other, within limits (see ``rounds.Limits``)."""

    configs: list[str]
    limits: Mapping[str, Any]


WorkerRequest = Job | Rest | Prepare | Compile | Rank | Try | Compare
_REQUESTS = {kind.__name__: kind for kind in (Job, Rest, Prepare, Compile, Rank, Try, Compare)}


def encode(request: WorkerRequest) -> dict[str, Any]:
    """Return what ``decode`` reads."""
    return {"do": type(request).__name__, **asdict(request)}


def decode(line: Mapping[str, Any]) -> WorkerRequest:
    """Return the request of a line."""
    return _REQUESTS[line["do"]](**{name: value for name, value in line.items() if name != "do"})


# -------------------------------------------------------------------------------- answers


@dataclass(frozen=True)
class Opened:
    """The device of a job, as the child sees it."""

    device: Device
    versions: Versions

    def to_dict(self) -> dict[str, Any]:
        """Return what ``from_dict`` reads."""
        return {"device": self.device.facts, "versions": self.versions.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Opened:
        """Read an answer."""
        return cls(Device.of(data["device"]), Versions.from_dict(data["versions"]))


class Judged(NamedTuple):
    """The record of a config; ``spoilt``: the child's device can no longer be trusted."""

    record: Record
    spoilt: bool

    def to_dict(self) -> dict[str, Any]:
        """Return what ``from_dict`` reads."""
        return {"record": record_to_dict(self.record), "spoilt": self.spoilt}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Judged:
        """Read an answer."""
        return cls(record_from_dict(data["record"]), data["spoilt"])


@dataclass(frozen=True)
class Compiled:
    """The result of compiling a config ahead of its trial; ``outcome`` is None if it succeeded."""

    outcome: Outcome | None
    reason: str = ""
    compile_s: float = 0.0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Compiled:
        """Read an answer."""
        return cls(**{**data, "outcome": data["outcome"] and Outcome(data["outcome"])})


@dataclass(frozen=True)
class Final:
    """One contestant of the last comparison; ``check`` is there if it was verified in full."""

    config: str
    measurement: Measurement
    check: Check | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Final:
        """Read an answer."""
        check = data["check"] and Check(**data["check"])
        return cls(data["config"], Measurement(**data["measurement"]), check)
