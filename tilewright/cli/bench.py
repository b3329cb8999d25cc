"""``tilewright bench``: tune layers, verify them, and compare with every peer on the same inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilewright.cli import opened, options, outputs, stopping
from tilewright.cli.results_file import ResultsFile
from tilewright.cli.screen import ProgressBar, foretell, remark, show, wrote
from tilewright.cli.session import TuningSession
from tilewright.errors import StoreError
from tilewright.report.plot import draw, drawable
from tilewright.report.results import Results, earlier_results, parse
from tilewright.report.results_table import results_table
from tilewright.report.table import markdown as as_markdown
from tilewright.report.table import time_text
from tilewright.tuning.options import TuneOptions

if TYPE_CHECKING:
    from tilewright.bench.bench import Bench
    from tilewright.bench.rows import BenchRow
    from tilewright.device import Device
    from tilewright.peers import Peer
    from tilewright.problem.shapes import Layer
    from tilewright.runtime.base import Runtime
    from tilewright.store import Store

Peers = Annotated[
    str | None,
    typer.Option(
        "--peers",
        metavar="NAMES",
        # The names of PEERS (a test compares): importing that takes too long for --help.
        help="Peers to compare with, separated by commas: onednn, onnxruntime on a CPU; cudnn, pytorch, "
        "cublas, inductor on an NVIDIA GPU; or all, or none. Default: all but inductor.",
    ),
]
Markdown = Annotated[
    Path | None, options.file_option("--markdown", "Write the table as Markdown; - prints only that.")
]
Plot = Annotated[Path | None, options.file_option("--plot", "Plot the ratios to a .svg, .png or .pdf file.")]
AllFamilies = Annotated[
    bool, typer.Option("--all-families", help="Add a column with the best time of each kernel family.")
]
NoTune = Annotated[
    bool,
    typer.Option(
        "--no-tune", help="Do not tune: time what would run now, winners where they are known."
    ),
]


def bench(
    layers: options.Problems,
    device: options.DeviceOrNumpy = None,
    dtype: options.Dtype = None,
    layout: options.Layout = None,
    batch: options.Batch = None,
    peers: Peers = None,
    budget: options.BudgetText = None,
    strategy: options.Strategy = None,
    seed: options.Seed = 0,
    deterministic: options.Deterministic = False,
    family: options.Families = None,
    all_families: AllFamilies = False,
    again: options.Again = False,
    no_tune: NoTune = False,
    resume: options.Resume = False,
    json_file: options.JsonFile = None,
    markdown: Markdown = None,
    plot: Plot = None,
) -> None:
    """Compare our kernels with other libraries, layer by layer.

    A layer without a known winner is tuned first. Every answer is checked, and all libraries ("peers") get
    the same inputs. Ctrl-C keeps all trials, and with --json FILE the layers that are done: --resume
    continues, or adds layers.
    """
    found, families = options.layers(layers, dtype, layout, batch), options.families(family)
    limit, way = options.budget(budget), options.strategy(strategy)
    wanted = TuneOptions(limit, way, seed, deterministic, families, again)
    files = {"--json": json_file, "--markdown": markdown, "--plot": plot}
    _check(files, layers)
    tuning = {"--again": again, "--budget": budget, "--strategy": strategy}
    asked = [option for option, value in tuning.items() if value]
    if no_tune and asked:
        raise options.OptionError(f"--no-tune and {asked[0]}: give only one of them")
    kept = ResultsFile(json_file, resume)
    with kept.alone():
        store, runtime = _store_and_device(found, device, wanted, no_tune)
        if asked:
            opened.needs_kernels(runtime, f"bench {asked[0]}")
        bar = ProgressBar(len(found), "bench")
        session = TuningSession(runtime, store, bar, wanted, share=0.6)
        work = _work(session, _peers(peers, runtime.device), no_tune)
        before = earlier_results(kept.source, runtime.device.key, work.protocol())
        opened.room(found, runtime)
        opened.calibrate(runtime)
        foretell(found, runtime)
        bench_run = _BenchRun(work, found, before)
        report = partial(_report, bench_run, files, kept, all_families)
        with bar, session.children, stopping.until_stopped(report) as stop:
            bench_run.measure_all(bar, kept)
        report()
        stop.leave()
        if bench_run.without_time:
            raise typer.Exit(1)


@dataclass
class _BenchRun:
    """The rows of a benchmark so far, including those that an earlier run left in its file."""

    work: Bench
    layers: list[Layer]
    before: Results
    rows: dict[tuple[str, str], BenchRow] = field(default_factory=dict)
    measured: bool = False

    def __post_init__(self) -> None:
        """Keep earlier rows that are complete, and those of layers that this run does not measure."""
        before = {(row.name, row.problem): row for row in self.before.rows}
        again = set(map(_key, self.layers))
        self.rows |= {key: row for key, row in before.items() if self._complete(row) or key not in again}

    def _complete(self, row: BenchRow) -> bool:
        """Whether our kernel has a time, and no peer that is there now was missing."""
        from tilewright.peers.base import was_missing

        return bool(row.ours.cold_us) and not any(
            was_missing(row.peers[peer.name].reason) and peer.absent(self.work.runtime.device) is None
            for peer in self.work.peers
            if peer.name in row.peers
        )

    @property
    def left(self) -> list[Layer]:
        """The layers without a row so far."""
        return [layer for layer in self.layers if _key(layer) not in self.rows]

    @property
    def without_time(self) -> list[Layer]:
        """The layers for which our kernel has no time; their rows say why."""
        return [layer for layer in self.layers if self.rows[_key(layer)].ours.cold_us is None]

    def measure_all(self, progress: ProgressBar, kept: ResultsFile) -> None:
        """Measure the layers without a row, and save all rows after each."""
        for layer in self.layers:
            said = "kept from the file"
            if layer in self.left:
                said = self.measure(layer)
                if lost := kept.keep(self.document()):
                    said += f"; {lost}"
            progress.finished(f"{layer.name}: {said}")

    def measure(self, layer: Layer) -> str:
        """Measure a layer, and return the outcome as a line of text."""
        row = self.rows[_key(layer)] = self.work.row(layer)
        self.measured = True
        said = f"{time_text(row.ours.cold_us)} us" if row.ours.cold_us else row.ours.reason
        return f"{said}, floor {time_text(row.floor_us)} us"

    def document(self) -> dict[str, Any]:
        """The results file; its date and commit are unchanged if no row is new."""
        made = self.work.document(list(self.rows.values()), self.before.commit)
        kept = {"date": self.before.date, "commit": self.before.commit}
        return made if self.measured else made | kept


def _key(layer: Layer) -> tuple[str, str]:
    return layer.name, str(layer.problem)


def _store_and_device(
    found: list[Layer], device: str | None, wanted: TuneOptions, no_tune: bool
) -> tuple[Store, Runtime]:
    """Open both, to tune as ``tune`` does; the error names the option that needs no writable store."""
    if no_tune:
        return opened.store_to_read(), opened.open_device(device)
    try:
        return opened.store_and_device(found, device, wanted)
    except StoreError as error:
        raise StoreError(f"{error}; or give --no-tune, which stores nothing") from None


def _check(files: Mapping[str, Path | None], read: list[str]) -> None:
    """Check that the files can be written, that none is also read, and that the plot can be drawn."""
    outputs.check(files, read)
    if (plot := files["--plot"]) is not None:
        drawable(plot)


def _work(session: TuningSession, peers: tuple[Peer, ...], no_tune: bool) -> Bench:
    """Return the benchmark to run, with the session's options of tuning."""
    from tilewright.bench.bench import Bench

    runtime = session.runtime
    return Bench(
        runtime=runtime,
        peers=peers,
        store=session.store,
        tune=None if no_tune else session.tune_s,
        wanted=session.wanted,
        progress=session.progress.now,
    )


def _peers(names: str | None, device: Device) -> tuple[Peer, ...]:
    """Parse --peers; a peer that is named must be able to run here."""
    from tilewright.peers import applicable, named, usual

    if names is None:
        return usual(device)
    found, here = named(names), applicable(device)
    strangers = [peer.name for peer in found if peer not in here]
    if strangers and names.strip() != "all":
        fit = ", ".join(peer.name for peer in here) or "none"
        raise options.OptionError(
            f"--peers {', '.join(strangers)}: not for {device.name}; its peers are {fit}"
        )
    return tuple(peer for peer in here if peer in found)


def _report(
    bench_run: _BenchRun, files: Mapping[str, Path | None], kept: ResultsFile, all_families: bool
) -> None:
    """Report the rows so far, and say how many layers have none."""
    if bench_run.rows:
        _write(bench_run.document(), files, all_families)
    if bench_run.left:
        everything = len(bench_run.layers)
        remark(stopping.layers_done(everything - len(bench_run.left), everything) + kept.way_on)


def _write(document: dict[str, Any], files: Mapping[str, Path | None], all_families: bool) -> None:
    """Write the requested files, and print the table even if one cannot be written."""
    results = parse(document)
    table = results_table(results, all_families)
    texts = {"--json": outputs.as_json(document), "--markdown": as_markdown(table) + "\n"}
    try:
        outputs.write_all(files, texts)
        if (plot := files["--plot"]) is not None and results.geomean is None:
            remark("no plot: no peer has a time for any layer")
        elif plot is not None:
            draw(results, plot)
    finally:
        if not any(outputs.is_stdout(files[option]) for option in texts):
            show(table)
    wrote(*files.values())
