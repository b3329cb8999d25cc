"""A benchmark's results for one layer: our figure, each peer's, the floor; and their JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tilewright.record import is_noisy


class Timed:
    """A time that may be noisy."""

    cold_us: float | None
    ci95_us: float | None
    stolen: float

    @property
    def noisy(self) -> bool:
        """Whether the time is unreliable."""
        return self.cold_us is not None and is_noisy(self.cold_us, self.ci95_us or 0.0, self.stolen)


@dataclass(frozen=True)
class OurFigure(Timed):
    """Our kernel's figures on one layer; if nothing ran, ``cold_us`` is None and ``reason`` says why.

    Attributes:
        family: family of the kernel.
        config: its parameters.
        cold_us: median time with flushed caches, in us.
        call_us: on a CPU, the cold time from call to return, in us, which is how peers are timed there.
        call_ci95_us: half width of the 95% interval of that median, in us; None in files of older versions.
        warm_us: time of one run in a long sequence of runs, in us.
        ci95_us: half width of the 95% interval of the cold median, in us.
        runs: number of cold runs, of the kernels and of calls each; 0 if unknown.
        stolen: share of the time that the CPU's host gave to others while this was measured.
        max_error: largest |y - reference|.
        error_bound: the a-priori bound at the element whose error is largest relative to its bound.
        worst: largest error / bound over all elements; at most 1 when right.
        deterministic: whether two runs give the same bits.
        workspace_bytes: device memory in addition to x, the packed filter, bias and y; 8 bytes are the
            counters by which a CPU's cores distribute the work.
        pack_us: time to pack the filter once.
        tune_s: seconds spent tuning in this run.
        note: why this config, if it is not the tuned winner.
        reason: why nothing ran.
        families: for every family that takes the layer, its best recorded time with the current kernels, in
            us; or why it has none.
    """

    family: str = ""
    config: str = ""
    cold_us: float | None = None
    call_us: float | None = None
    call_ci95_us: float | None = None
    warm_us: float | None = None
    ci95_us: float | None = None
    runs: int = 0
    stolen: float = 0.0
    max_error: float | None = None
    error_bound: float | None = None
    worst: float | None = None
    deterministic: bool = True
    workspace_bytes: int = 0
    pack_us: float | None = None
    tune_s: float = 0.0
    note: str = ""
    reason: str = ""
    families: Mapping[str, float | str] = field(default_factory=dict)

    @property
    def compared_us(self) -> float | None:
        """The time by which peers' times are divided: measured in the same way."""
        return self.call_us or self.cold_us

    @property
    def call_noisy(self) -> bool:
        """Whether the time of a call is unreliable."""
        return self.call_us is not None and is_noisy(self.call_us, self.call_ci95_us or 0.0, self.stolen)

    @property
    def compared_noisy(self) -> bool:
        """Whether the compared time is unreliable; a call without an interval is if the kernels' time is."""
        return self.noisy if self.call_ci95_us is None else self.call_noisy


@dataclass(frozen=True)
class PeerFigure(Timed):
    """The figures of a peer's best contestant on one layer; ``reason`` says why none ran.

    Attributes:
        cold_us: median time with flushed caches, in us; None if nothing ran.
        warm_us: time of one run in a long sequence of runs, in us.
        ci95_us: half width of the 95% interval of the cold median, in us.
        runs: number of cold runs; 0 if unknown.
        stolen: share of the time that the CPU's host gave to others while this was measured.
        detail: what ran: library, version, engine, layout.
        layout: the layout it reads and writes.
        workspace_bytes: device memory in addition to inputs and output.
        pack_us: time to rearrange the filter once; None if the peer does not tell.
        convert_us: time to convert x and y, if its layout is not the problem's; not part of the times.
        max_error: largest |y - reference|.
        reason: why nothing ran.
        tried: for each of the other contestants, its quick or careful time, or why it did not run.
    """

    cold_us: float | None = None
    warm_us: float | None = None
    ci95_us: float | None = None
    runs: int = 0
    stolen: float = 0.0
    detail: str = ""
    layout: str = ""
    workspace_bytes: int = 0
    pack_us: float | None = None
    convert_us: float = 0.0
    max_error: float | None = None
    reason: str = ""
    tried: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class BenchRow:
    """One layer of a benchmark.

    Attributes:
        name: of the layer, as on the command line.
        problem: the problem string.
        floor_us: the least time of the layer on the device, in us.
        ours: our kernel's figures.
        peers: each peer's figures, by name; ``<peer>-gemm`` is its fastest GEMM.
    """

    name: str
    problem: str
    floor_us: float
    ours: OurFigure
    peers: Mapping[str, PeerFigure]

    @property
    def best_peer(self) -> str | None:
        """The name of the fastest peer that ran."""
        ran = {name: figure.cold_us for name, figure in self.peers.items() if figure.cold_us}
        return min(ran, key=lambda name: ran[name]) if ran else None

    @property
    def ratio(self) -> float | None:
        """The fastest peer's time / ours; None if either is missing."""
        return self.over_ours(self.best_peer) if self.best_peer else None

    def figures(self) -> tuple[Timed, ...]:
        """Return our figure and every peer's."""
        return (self.ours, *self.peers.values())

    def compared(self) -> tuple[Timed, ...]:
        """Return our figure and the fastest peer's."""
        return (self.ours, *([self.peers[self.best_peer]] if self.best_peer else ()))

    @property
    def noisy(self) -> bool:
        """Whether the ratio is unreliable."""
        return self.ours.compared_noisy or any(figure.noisy for figure in self.compared()[1:])

    def over_ours(self, peer: str) -> float | None:
        """Return a peer's time / ours; None if either is missing."""
        theirs, ours = self.peers[peer].cold_us if peer in self.peers else None, self.ours.compared_us
        return theirs / ours if theirs and ours else None

    @property
    def floor_share(self) -> float | None:
        """Floor / our time: 1 is as fast as the device can be."""
        return self.floor_us / self.ours.cold_us if self.ours.cold_us else None

    def to_json(self) -> dict[str, Any]:
        """Return the row as in the results file; times are rounded to a nanosecond."""
        row = asdict(self)
        for figure in (row["ours"], *row["peers"].values()):
            for key, value in figure.items():
                if isinstance(value, float) and (key.endswith("_us") or key == "tune_s"):
                    figure[key] = round(value, 3)
            figure.pop("reason") if not figure["reason"] else None
            figure["stolen"] = round(figure["stolen"], 3)
        row["floor_us"] = round(self.floor_us, 3)
        for name, figure in self.peers.items():
            row["peers"][name]["noisy"] = figure.noisy
        row["ours"]["noisy"] = self.ours.noisy
        return row
