"""``tilewright explain``: what the model predicts for a layer's kernel, and why it won."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.cli import opened, options, outputs
from tilewright.cli.screen import emit
from tilewright.device import Device
from tilewright.kernels import FAMILIES, family_of, pick
from tilewright.kernels.config import Config
from tilewright.problem import Problem

if TYPE_CHECKING:
    from tilewright.plans.provenance import Provenance
    from tilewright.plans.request import Request
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
    would cost; intensities, occupancy, waves and what limits the kernel; each term of the predicted time;
    predicted against measured time; and the runner-up, or beside a --config the fastest other one, with
    whether the difference is within noise.

    With --arch no GPU is needed: winners are those that ship with the package. Beside each rate is
    said where it comes from: a datasheet, a calibration, a measurement on such a device, or a guess.
    """
    about = opened.asked(layer, dtype, layout, batch, config, family, deterministic)
    opened.some_images(about.problem, "explain")
    outputs.check({"--json": json_file})
    options.either(arch, device)
    from tilewright.report.explanation import document, sections, tables

    subject = _here(about, device) if arch is None else _elsewhere(about, arch)
    wanted = {"--device": device, "--family": family}
    said = "".join(f" {option} {value}" for option, value in wanted.items() if value)
    said += " --deterministic" * deterministic
    found = sections(
        replace(subject, named=config is not None, options=said, elsewhere=arch is not None)
    )
    emit(tables(found), document(found), json_file)


def _here(about: opened.Asked, device: str | None) -> Subject:
    """Return the kernel that would run on a device, and its measurements there."""
    runtime = opened.open_device(device)
    config, why = about.chosen(runtime)
    history = opened.store_to_read().records(about.problem, runtime.device.key, measured=True)
    return _subject(about.problem, runtime.device, config, why, _allowed(history, about.request))


def _elsewhere(about: opened.Asked, arch: str) -> Subject:
    """Return the likeliest winner on a GPU that is absent, and times of it there, or of one similar GPU."""
    from tilewright.hints import likely

    device = opened.architecture(arch, about.problem)
    config, why = next(about.likely(device))
    hints = likely(opened.store_to_read(), about.problem, device.key, about.request.deterministic)
    theirs = [hint.record.device for hint in hints if hint.record.config == str(config)]
    where = device.key if device.key in theirs or not theirs else theirs[0]
    known = [hint.record for hint in reversed(hints) if hint.record.device == where]
    return _subject(about.problem, device, config, why, _allowed(known, about.request))


def _allowed(history: Sequence[Record], request: Request) -> list[Record]:
    """Return the records of kernels that may be chosen: of all families, unless some are given."""
    allowed = {one.name for one in (pick(FAMILIES, request.families) if request.families else FAMILIES)}
    return [one for one in history if one.family in allowed and one.deterministic >= request.deterministic]


def _subject(
    problem: Problem, device: Device, config: Config, why: Provenance, history: Sequence[Record]
) -> Subject:
    from tilewright.profiling.modelled import modelled
    from tilewright.report.explanation import Subject
    from tilewright.search.experience import shipped
    from tilewright.search.model import estimate

    chosen = family_of(config.family)
    chosen.check(problem, device, config)
    predicted = estimate(chosen, problem, device, config) if chosen.tunable else None
    bias = shipped(device.chip).of(chosen, problem, device) if predicted else None
    return Subject(
        problem=problem,
        device=device,
        family=chosen,
        config=config,
        estimate=predicted,
        limiter=modelled(chosen, problem, device, config, "").kernels[0].limiter if predicted else "",
        expected_us=bias.expected_us([config])[0] if bias and bias.learnt else None,
        note=why.told(problem),
        history=history,
        blueprint=chosen.blueprint(problem, device, config),
    )
