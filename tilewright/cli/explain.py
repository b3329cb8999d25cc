"""``tilewright explain``: what the model predicts for a layer's kernel, and why it won."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.cli import opened, options, outputs
from tilewright.cli.screen import emit
from tilewright.kernels.config import Config
from tilewright.problem import Problem

if TYPE_CHECKING:
    from tilewright.device import Device
    from tilewright.plans.provenance import Provenance
    from tilewright.record import Record
    from tilewright.report.explanation import Subject


def explain(
    layer: options.OneProblem,
    device: options.DeviceOrNumpy = None,
    arch: options.Arch = None,
    dtype: options.Dtype = None,
    layout: options.OneLayout = None,
    batch: options.Batch = None,
    config: options.ConfigText = None,
    family: options.Families = None,
    deterministic: options.Deterministic = False,
    json_file: options.JsonFile = None,
) -> None:
    """Show what the model predicts for a kernel, and why it won.

    Shown are flops, bytes and floor; launches and workspace; how a pool is computed, and what the other way
    would cost; intensities, occupancy and waves; each term of the predicted time; predicted against measured
    time; and the runner-up, or beside a --config the fastest other one, with whether the difference is
    within noise.

    With --arch no GPU is needed: rates are from the datasheet, winners those that ship with the package.
    """
    problem = options.layer(layer, dtype, layout, batch).problem
    opened.some_images(problem, "explain")
    given = options.config_or_families(config, family, problem, deterministic)
    outputs.check({"--json": json_file})
    options.one_of(arch, device)
    from tilewright.report.explanation import document, sections, tables

    subject = (
        _here(problem, device, given, deterministic)
        if arch is None
        else _elsewhere(problem, arch, given, deterministic)
    )
    wanted = {"--device": device, "--family": family}
    said = "".join(f" {option} {value}" for option, value in wanted.items() if value)
    said += " --deterministic" * deterministic
    found = sections(
        replace(subject, named=config is not None, options=said, elsewhere=arch is not None)
    )
    emit(tables(found), document(found), json_file)


def _here(problem: Problem, device: str | None, given: options.Given, deterministic: bool) -> Subject:
    """Return the kernel that would run on a device, and its measurements there."""
    runtime = opened.open_device(device)
    config, why = opened.chosen(problem, runtime, deterministic, given)
    history = opened.store(remembers=False).records(problem, runtime.device.key, measured=True)
    return _subject(problem, runtime.device, config, why, _allowed(history, given, deterministic))


def _elsewhere(problem: Problem, arch: str, given: options.Given, deterministic: bool) -> Subject:
    """Return the most likely winner on a GPU that is absent, and measurements on similar GPUs."""
    from tilewright.device import for_architecture
    from tilewright.dispatch.choices import candidates
    from tilewright.plans.provenance import Basis, Provenance
    from tilewright.plans.request import Request
    from tilewright.store.hints import likely

    device, store = for_architecture(arch), opened.store(remembers=False)
    if isinstance(given, Config):
        config, why = given, Provenance(Basis.NAMED)
    else:
        config, why = next(candidates(Request(problem, deterministic, given), device, "", store))
    known = [hint.record for hint in reversed(likely(store, problem, device.key, deterministic))]
    return _subject(problem, device, config, why, _allowed(known, given, deterministic))


def _allowed(history: Sequence[Record], given: options.Given, deterministic: bool) -> list[Record]:
    """Return the records of kernels that may be chosen: of all families, unless some are given."""
    from tilewright.kernels import FAMILIES, pick

    names = () if isinstance(given, Config) else given
    allowed = {one.name for one in (pick(FAMILIES, names) if names else FAMILIES)}
    return [one for one in history if one.family in allowed and one.deterministic >= deterministic]


def _subject(
    problem: Problem, device: Device, config: Config, why: Provenance, history: Sequence[Record]
) -> Subject:
    from tilewright.kernels import family_of
    from tilewright.report.explanation import Subject
    from tilewright.search.model import estimate

    chosen = family_of(config.family)
    chosen.check(problem, device, config)
    return Subject(
        problem=problem,
        device=device,
        family=chosen,
        config=config,
        estimate=estimate(chosen, problem, device, config) if chosen.tunable else None,
        note=why.told(problem),
        history=history,
        blueprint=chosen.blueprint(problem, device, config),
    )
