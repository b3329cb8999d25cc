"""``tilewright model-report``: the share of the best config's speed that a search reaches, and how soon."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli import opened, options, outputs
from tilewright.cli.screen import ProgressBar, emit, wrote
from tilewright.errors import ProblemError, StoreError, count
from tilewright.kernels import FAMILIES, pick
from tilewright.problem import Problem
from tilewright.problem.shapes import Layer
from tilewright.report.table import Table, time_text

if TYPE_CHECKING:
    from tilewright.device import Device
    from tilewright.record import Record
    from tilewright.search.replay import Replay

SUITES = ("resnet", "yolo9000")
Records = Annotated[
    Path | None, options.file_option("--records", "Replay the trials in this file; needs no device.")
]
Save = Annotated[
    Path | None, options.file_option("--save", "Write the trials that were used to a gzip file.")
]
Layers = Annotated[
    list[str] | None, typer.Argument(metavar="LAYERS", help=f"Default: {' and '.join(SUITES)}.")
]


_APART = "each column is a search of its own, which has so many measurements to plan with"


def model_report(
    layers: Layers = None,
    device: options.Device = None,
    dtype: options.Dtype = None,
    layout: options.Layout = None,
    strategy: options.Strategy = None,
    seed: options.SearchSeed = 0,
    records: Records = None,
    save: Save = None,
    json_file: options.JsonFile = None,
) -> None:
    """Show how quickly the search finds the best kernel.

    The search is replayed on recorded trials. The table shows which share of the best recorded speed it
    reaches after 0, 8 and 100 measurements. Record trials first, by 'tilewright tune' with a large budget
    (and --strategy random for configs that the model would not choose).
    """
    if records and device:
        raise options.OptionError("--records and --device: give only one of them")
    found = options.layers(layers or list(SUITES), dtype, layout)
    name = options.strategy(strategy)
    outputs.check({"--save": save, "--json": json_file}, [*(layers or ()), *([records] if records else ())])
    recorded, known = _known(found, device, records)
    if save:
        from tilewright.search import trials_file

        trials_file.write(save, recorded, known)
        wrote(save)
    with ProgressBar(len(found), "replaying") as progress:
        tried = ((layer.name, _replay(layer, recorded, known, name, seed, progress)) for layer in found)
        replays = [(layer, one) for layer, one in tried if one]
    if not replays:
        raise StoreError(
            f"model-report: none of these layers has two correct configs recorded on {recorded.name}; "
            f"{_recorded(known if records else _all_known(recorded))}tune some first, with a larger budget"
        )
    from tilewright.search.replay import COUNTS, mean_shares

    left_out = len(found) - len(replays)
    means = mean_shares(one for _, one in replays)
    head = ("layer", "recorded", "best us", *(f"after {trials}" for trials in COUNTS))
    body = [_cells(layer, one) for layer, one in replays]
    body.append(("geometric mean", "", "", *(f"{means[trials]:.1%}" for trials in COUNTS)))
    document = {
        "device": recorded.name,
        "strategy": name,
        "seed": seed,
        "left_out": left_out,
        "geometric_mean": {str(trials): share for trials, share in means.items()},
        "rows": [{"name": layer, **asdict(one)} for layer, one in replays],
    }
    told = f"{count(left_out, 'layer')} left out: fewer than two correct configs recorded"
    title = f"{recorded.name}: share of the best recorded speed, by measurements, strategy {name}"
    emit(Table(title, head, tuple(body), (_APART, *((told,) if left_out else ()))), document, json_file)


def _known(found: list[Layer], device: str | None, file: Path | None) -> tuple[Device, list[Record]]:
    """Return the device and its trials of the layers, from a file or from the store."""
    if file is not None:
        from tilewright.search import trials_file

        return trials_file.read(file)
    runtime, store = opened.open_device(device), opened.store_to_read()
    opened.needs_kernels(runtime, "model-report")
    recorded = runtime.device
    trials = (store.records(layer.problem, recorded.key, measured=True) for layer in found)
    return recorded, list(chain.from_iterable(trials))


def _all_known(device: Device) -> list[Record]:
    """Return all trials of a device in the store."""
    return opened.store_to_read().records(None, device.key, measured=True)


def _recorded(known: list[Record]) -> str:
    """Say which precisions and layouts have trials."""
    problems: list[Problem] = []
    for text in {record.problem for record in known}:
        with suppress(ProblemError):  # of another version, which has more words
            problems.append(Problem.parse(text))
    found = ", ".join(sorted({f"{one.precision} in {one.layout_in}" for one in problems}))
    return f"there are trials of {found}: choose one with --dtype and --layout, or " if found else ""


def _replay(
    layer: Layer, device: Device, records: list[Record], strategy: str, seed: int, progress: ProgressBar
) -> Replay | None:
    """Replay the search of a layer over the families that it would try."""
    from tilewright.search.replay import replay
    from tilewright.search.space import usable

    families, _ = usable(pick(FAMILIES, ()), layer.problem, device)
    progress.now(layer.name)
    one = replay(layer.problem, device, families, records, strategy, seed=seed)
    if one:
        progress.finished(f"{layer.name}: {count(one.recorded, 'config')} recorded")
    return one


def _cells(layer: str, one: Replay) -> tuple[str, ...]:
    shares = (f"{share:.1%}" for _, share in one.shares)
    return (layer, str(one.recorded), time_text(one.best_us), *shares)
