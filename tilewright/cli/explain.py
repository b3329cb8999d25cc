"""``tilewright explain``: what the model sees of a layer's kernel, and why it won."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.cli import options, outputs
from tilewright.cli.screen import emit
from tilewright.kernels.family import Config
from tilewright.problem import Problem

if TYPE_CHECKING:
    from tilewright.report.explanation import Subject
    from tilewright.runtime.base import Runtime


def explain(
    layer: options.OneProblem,
    device: options.Device = None,
    dtype: options.Dtype = None,
    layout: options.OneLayout = None,
    config: options.ConfigText = None,
    family: options.Families = None,
    deterministic: options.Deterministic = False,
    json_file: options.JsonFile = None,
) -> None:
    """Show what the model predicts for a kernel, and why it won.

    Shown are flops, bytes and floor; launches and workspace; how a pool is computed, and what the other way
    would cost; intensities, occupancy and waves; each term of the predicted time; predicted against measured
    time; and the runner-up, with whether the difference is within noise.
    """
    problem = options.layer(layer, dtype, layout).problem
    given = options.config_or_families(config, family, problem)
    outputs.check({"--json": json_file})
    runtime = options.open_device(device)
    from tilewright.report.explanation import sections, tables

    found = sections(_subject(problem, runtime, given, deterministic))
    emit(tables(found), dict(found), json_file)


def _subject(
    problem: Problem, runtime: Runtime, given: Config | tuple[str, ...], deterministic: bool
) -> Subject:
    from tilewright.kernels import family
    from tilewright.report.explanation import Subject
    from tilewright.search.model import estimate

    config, why = options.chosen(problem, runtime, deterministic, given)
    device, kind = runtime.device, family(config.family)
    kind.check(problem, device, config)
    return Subject(
        problem=problem,
        device=device,
        family=kind,
        config=config,
        estimate=estimate(kind, problem, device, config) if kind.tunable else None,
        note=why.told(problem),
        history=options.store(remembers=False).records(problem, device.key),
        blueprint=kind.blueprint(problem, device, config),
    )
