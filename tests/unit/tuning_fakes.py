"""A family that is one row of numbers, a strategy, a store and a worker, for tests without a device."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fake_family import FakeFamily

from tilewright.device import Device, for_architecture
from tilewright.errors import RunError
from tilewright.kernels.family import Config, Family, Param
from tilewright.measuring.rounds import Limits
from tilewright.problem import Problem
from tilewright.record import Check, Measurement, Outcome, Record, Versions
from tilewright.store.rows import Found
from tilewright.tuning.protocol import Compiled, Final, Job
from tilewright.tuning.worker_pool import WorkerPool

PROBLEM = Problem.parse("n1c2h4w4k3r1s1-f32")
GOOD = Check(ok=True, max_error=0.0, bound=1.0, worst=0.0, exact=True, repeatable=True)
BAD = replace(GOOD, ok=False, reason="wrong in full")


class Row(FakeFamily):
    """``row:i=…`` takes 100 us at i = 0, 1 us less with each step up to 60, more beyond."""

    name = "row"

    def refuses(self, problem: Problem, device: Device) -> str | None:
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        return (Param("i", tuple(range(100)), "place in the row"),)

    def deterministic(self, config: Config) -> bool:
        return config["i"] % 7 != 0


class RowStrategy:
    """Proposes the row in order, or shuffled if it is called random; remembers what it is told."""

    made: list[RowStrategy] = []
    gains: list[float] = []

    def __init__(
        self, name: str, family: Family, problem: Problem, device: Device, seed: int = 0, *_: object
    ) -> None:
        order = list(range(100))
        if name == "random":
            random.Random(seed).shuffle(order)
        self._rest = iter(order)
        self.told: list[Record] = []
        self.made.append(self)

    def propose(self, count: int) -> list[Config]:
        return [row(i) for _, i in zip(range(count), self._rest, strict=False)]

    def tell(self, record: Record) -> None:
        self.told.append(record)

    def peek_us(self) -> float:
        return math.inf

    def promise_us(self, known_us: float = math.inf) -> float:
        return math.inf

    def preview(self, count: int) -> list[Config]:
        return self.propose(count)

    def gain(self) -> float:
        return self.gains.pop(0) if self.gains else math.inf


def row(i: int) -> Config:
    """Return the config of a place."""
    return Config.make("row", {"i": i})


def time_us(i: int) -> float:
    """Return the time that a place takes."""
    return 100.0 - i if i <= 60 else 2.0 * i - 80.0


class FakeWorker:
    """Answers at once. Class attributes say what goes wrong; ``runs`` lists what was run."""

    device = for_architecture("sm_90")
    versions = Versions("fake 1")
    outcomes: dict[int, str] = {}
    fail_full: set[int] = set()
    final_dies = False
    interrupt_at = -1
    runs: list[int] = []
    open_workers = 0

    def __init__(self, job: Job, children: WorkerPool | None = None) -> None:
        self.job = job
        type(self).open_workers += 1

    def __enter__(self) -> FakeWorker:
        return self

    def __exit__(self, *error: object) -> None:
        type(self).open_workers -= 1

    def prepare(self) -> None:
        pass

    def allow(self, stage: str, seconds: float) -> None:
        pass

    def run(self, config: Config, best_us: float = 0.0, full: bool = False) -> Record:
        i = config["i"]
        if len(self.runs) == self.interrupt_at:
            raise KeyboardInterrupt
        self.runs.append(i)
        outcome = self.outcomes.get(i, "correct")
        if full and i in self.fail_full:
            outcome = "correctness"
        right = outcome == "correct"
        return Record(
            str(PROBLEM), self.device.key, config.family, str(config), outcome, i % 7 != 0,
            GOOD if right else None, Measurement(time_us(i), 0.1, 6) if right else None,
            versions=self.versions,
        )  # fmt: skip

    def failed(self, config: Config, outcome: Outcome, reason: str) -> Record:
        return Record(
            str(PROBLEM), self.device.key, config.family, str(config), outcome, False, reason=reason,
            versions=self.versions,
        )  # fmt: skip

    def final(self, configs: list[Config], limits: Limits) -> list[Final]:
        if self.final_dies:
            raise RunError("the last comparison failed")
        checks: dict[int, Check] = {}
        for config in sorted(configs, key=lambda c: time_us(c["i"])):
            checks[config["i"]] = BAD if config["i"] in self.fail_full else GOOD
            if checks[config["i"]].ok:
                break
        return [
            Final(str(c), Measurement(time_us(c["i"]) + 0.5, 0.1, 50), checks.get(c["i"])) for c in configs
        ]


class FakeAhead:
    """Compiles nothing, at once; place 13 does not compile."""

    def __init__(self, job: Job, processes: int, children: WorkerPool | None = None) -> None:
        self.job = job

    def start(self) -> None:
        pass

    def submit(self, configs: list[Config]) -> list[object]:
        from concurrent.futures import Future

        return [self._done(Future(), c) for c in configs]

    closed = False

    def close(self) -> None:
        self.closed = True

    @staticmethod
    def _done(future: object, config: Config) -> object:
        bad = config["i"] == 13
        future.set_result(Compiled("compile", "spilled", 0.2) if bad else Compiled(None, "", 0.1))
        return future


class MemoryStore:
    """A list of records, and what won, of an older source, for this layer and for one alike."""

    uses_shipped = False

    def __init__(self, won_elsewhere: Sequence[Record] = (), alike: Sequence[Record] = ()) -> None:
        self.kept: list[Record] = []
        self.won_elsewhere, self.won_alike = list(won_elsewhere), list(alike)

    def add(self, record: Record) -> None:
        self.kept.append(record)

    def records(self, problem: Problem, device_key: str) -> list[Record]:
        return [r for r in self.kept if (r.problem, r.device) == (str(problem), device_key)]

    def newest(self, problem: Problem | str, device_key: str, right: bool = False) -> list[Found]:
        older = self.won_elsewhere if str(problem) == str(PROBLEM) else self.won_alike
        return [Found(replace(record, source="an older one"), "measured") for record in older]

    def same_sizes(self, problem: Problem) -> set[tuple[str, str]]:
        return {(f"{PROBLEM}+relu", FakeWorker.device.key)}

    def best(self, *asked: object) -> None:
        return None


def outcome(config: Config, time_us: float | None, problem: Problem = PROBLEM) -> Record:
    """Make a record of a time, or of a failure to compile."""
    figure = None if time_us is None else Measurement(time_us, 0.0, 1)
    kind = "compile" if time_us is None else "correct"
    return Record(str(problem), "here", config.family, str(config), kind, True, GOOD, figure)


def outcomes(records: Iterator[Record] | tuple[Record, ...]) -> list[str]:
    """Return the outcomes in order."""
    return [r.outcome for r in records]
