"""``tilewright study``: repeat the experiments of a publication, beside its figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tilewright.cli import opened, options, outputs, stopping
from tilewright.cli.results_file import ResultsFile
from tilewright.cli.screen import remark, show, wrote
from tilewright.errors import printable
from tilewright.report.plot import drawable
from tilewright.tuning.options import TuneOptions
from tilewright.tuning.worker_pool import WorkerPool

if TYPE_CHECKING:
    from tilewright.problem import Problem
    from tilewright.runtime.base import Runtime
    from tilewright.store import Store
    from tilewright.studies.document import StudyResult
    from tilewright.studies.lab import Lab
    from tilewright.studies.study import PartResult
    from tilewright.studies.study_run import StudyRun
    from tilewright.tuning.budget import Budget as Limit

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        # The names of NAMES (a test compares): importing that takes too long for --help.
        help="toy-cnn (a fused layer, step by step), im2col-gemm (a matrix product, step by step), lenet "
        "(four steps), csg (the sum over C split at each level) or diannao (block shapes, counters).",
        show_default=False,
    ),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Use smaller layers: each study takes under 2 minutes on a CPU.")
]
Html = Annotated[Path | None, options.file_option("--html", "Write an HTML page with charts; - prints it.")]
Markdown = Annotated[
    Path | None, options.file_option("--markdown", "Write the tables as Markdown; - prints only them.")
]
Plot = Annotated[Path | None, options.file_option("--plot", "Plot the ladder to a .svg, .png or .pdf file.")]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="BUDGET",
        help="First tune the layers of steps that fix no config or parameter, this long each: 20s, say.",
    ),
]
Part = Annotated[
    list[str] | None,
    typer.Option("--part", metavar="N", help="Run only this part, counted from 1; or several: 1,3."),
]


def study(
    name: Name,
    device: options.Device = None,
    quick: Quick = False,
    budget: Budget = None,
    part: Part = None,
    resume: options.Resume = False,
    json_file: options.JsonFile = None,
    markdown: Markdown = None,
    html: Html = None,
    plot: Plot = None,
) -> None:
    """Repeat the experiments of a publication beside its figures.

    Every answer is checked. With --json FILE, Ctrl-C keeps the layers that are done; --resume continues.
    """
    from tilewright.studies import study_run
    from tilewright.studies.document import document as document_of

    found = study_run.study(name, quick)
    wanted, limit = study_run.chosen(found, _numbers(part)), options.budget(budget)
    files = {"--json": json_file, "--markdown": markdown, "--html": html, "--plot": plot}
    quiet = outputs.check(files)
    kept = ResultsFile(json_file, resume)
    if plot is not None:
        drawable(plot)
    with kept.alone():
        store = opened.store_to_read() if limit is None else opened.store_to_write()
        runtime = opened.open_device(device)
        opened.needs_kernels(runtime, "study")
        children = WorkerPool()
        lab = _lab(runtime, store, quick, limit, children)
        earlier = study_run.earlier_result(kept.source, found, lab) if kept.source else None
        remark(f"{found.title}; source: {found.source}")
        if not (quick or runtime.device.is_gpu):
            remark("layers of these sizes may take hours on a CPU: --quick takes smaller ones")
        so_far = study_run.StudyRun(found, wanted, earlier)
        opened.calibrate_once(runtime)
        if so_far.before:
            remark(f"{kept.source}: {so_far.left() or 'all parts asked for are done'}")

        report = partial(_report, so_far, lab, files, kept, quiet)
        with children, stopping.until_stopped(report) as stop:
            for done in so_far.done:
                _print(done, so_far, quiet)
            for grown in so_far.run(lab):
                if lost := kept.keep(document_of(so_far.result(lab))):
                    remark(lost)
                if not grown.left:
                    _print(grown, so_far, quiet)
        report()
        stop.leave()


def _report(
    so_far: StudyRun, lab: Lab, files: Mapping[str, Path | None], kept: ResultsFile, quiet: bool
) -> None:
    """Print the parts that were begun, write the requested files, and say what is left."""
    for begun in so_far.parts:
        if begun.left and begun.rows:
            _print(begun, so_far, quiet)
    if so_far.parts:
        _write(so_far.result(lab), files, quiet)
    if left := so_far.left():
        remark(f"stopped: {left}{kept.way_on}")


def _print(part: PartResult, so_far: StudyRun, quiet: bool) -> None:
    """Print the table of a part, as far as it is complete."""
    from tilewright.report.study import part_table

    if not quiet:
        table = part_table(part, with_bars=True)
        show(replace(table, title=f"{so_far.number(part)}. {table.title}"))
        print(flush=True)


def _numbers(given: list[str] | None) -> list[int]:
    """Parse --part: numbers, separated by commas."""
    texts = [text.strip() for several in given or () for text in several.split(",")]
    if wrong := [text for text in texts if not re.fullmatch("[0-9]{1,4}", text)]:
        raise options.OptionError(f"--part {wrong[0]!r}: must be the number of a part, or several: 1,3")
    return [int(text) for text in texts]


def _lab(runtime: Runtime, store: Store, quick: bool, limit: Limit | None, children: WorkerPool) -> Lab:
    from tilewright.dispatch.once import tune_once
    from tilewright.studies.lab import Lab

    def tune(problem: Problem, families: tuple[str, ...]) -> None:
        tune_once(problem, runtime, store, TuneOptions(limit, families=families), children=children)

    return Lab(runtime, store, quick, tune if limit else None, str(limit or ""), say=remark)


def _write(result: StudyResult, files: Mapping[str, Path | None], quiet: bool) -> None:
    """Write the results of a study so far to the requested files, and print what they are of in any case."""
    from tilewright.report.gather import html, of_document
    from tilewright.report.ladder import LADDERS
    from tilewright.report.plot_study import draw_study
    from tilewright.report.study import heading, study_markdown
    from tilewright.studies.document import document as document_of

    document = document_of(result)
    texts = {"--json": outputs.as_json(document), "--markdown": study_markdown(result)}
    if files["--html"] is not None:
        texts["--html"] = html(result.title, [of_document(result.name, document)])
    try:
        outputs.write_all(files, texts)
        if (plot := files["--plot"]) is not None and any(part.chart in LADDERS for part in result.parts):
            draw_study(result, plot)
        elif plot is not None:
            remark("no plot: no part that has a ladder is done")
    finally:
        if not quiet:
            print(printable(heading(result)))
    wrote(*files.values())
