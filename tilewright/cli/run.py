"""``tilewright run``: check and time the kernel of one layer; also the target of profilers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilewright.cli import opened, options, outputs
from tilewright.cli.screen import emit, foretell
from tilewright.errors import RunError
from tilewright.kernels.config import Config
from tilewright.problem import Problem
from tilewright.report.table import NOISY_MARK, Table, bytes_text, noisy_notes, time_text, width_text

if TYPE_CHECKING:
    from tilewright.runtime.base import Runtime

_LABELS = {"ci95_us": "± us"}


def run(
    layer: options.OneProblem,
    device: options.Device = None,
    dtype: options.Dtype = None,
    layout: options.OneLayout = None,
    batch: options.Batch = None,
    config: options.ConfigText = None,
    family: options.Families = None,
    deterministic: options.Deterministic = False,
    seed: options.InputSeed = 0,
    json_file: options.JsonFile = None,
) -> None:
    """Check and time the kernel of one layer.

    The kernel is the tuned winner; without one, that of a similar layer, or the model's choice. --family
    limits the choice; --config names the kernel.
    """
    about = opened.asked(layer, dtype, layout, batch, config, family, deterministic)
    outputs.check({"--json": json_file})
    runtime = opened.open_device(device)
    opened.make_ready(runtime, [about.layer], "run")
    foretell([about.layer], runtime)
    chosen, why = about.chosen(runtime)
    note = replace(why, verified=True).told(about.problem)
    facts = {**_measured(about.problem, runtime, chosen, seed), "note": note}
    emit(_table(facts), facts, json_file)


def _table(facts: dict[str, Any]) -> Table:
    trust = facts["noisy"], facts["stolen"]
    values = {k: v for k, v in facts.items() if k not in ("noisy", "stolen")}
    shown = {_LABELS.get(k, k.replace("_", " ")): _value(k, v) for k, v in values.items()}
    shown["cold us"] += NOISY_MARK * facts["noisy"]
    shown["± us"] = width_text(facts["cold_us"], facts["ci95_us"])
    return Table("", ("", ""), tuple(shown.items()), noisy_notes([trust]), words=True)


def _value(name: str, value: str | float | int) -> str:
    if isinstance(value, str):
        return value
    return bytes_text(int(value)) if name.endswith("_bytes") else time_text(value)


def _measured(problem: Problem, runtime: Runtime, config: Config, seed: int) -> dict[str, Any]:
    from tilewright.checking.verify import Verifier
    from tilewright.measuring.calibrate import outdone
    from tilewright.measuring.rounds import measure

    verifier = Verifier(runtime, problem, seed)
    candidate = verifier.candidate(config)
    check = verifier.check(candidate)
    if not check.ok:
        raise RunError(f"{config}: wrong answer on {problem}: {check.reason}")
    figure = measure({"ours": candidate.run}, runtime)["ours"]
    return {
        "problem": str(problem),
        "device": runtime.device.name,
        "config": str(config),
        "cold_us": figure.cold_us,
        "ci95_us": figure.ci95_us,
        "warm_us": figure.warm_us,
        "floor_us": outdone(runtime, problem, figure.cold_us, candidate.plan.family.multiplies(problem)),
        "error_over_bound": check.worst,
        "workspace_bytes": candidate.plan.workspace_bytes,
        "noisy": figure.noisy,
        "stolen": figure.stolen,
    }
