"""Why a kernel won: what the model predicts, what was measured, and how close the runner-up is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.device import Device, read_key
from tilewright.errors import count
from tilewright.floor import floor, peak_from, peak_tflops
from tilewright.kernels.blueprint import Blueprint
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.problem import Problem
from tilewright.record import Estimate, Measurement, Record, unfinished
from tilewright.report.table import Table, figure_text, time_text, width_text
from tilewright.search.pooling import WAYS, apart, measured_otherwise, predicted_otherwise


@dataclass(frozen=True)
class Subject:
    """The kernel to explain.

    Attributes:
        estimate: the model's prediction; None for a family that it does not know.
        limiter: what takes longest by the model, as text; empty: unknown.
        expected_us: its total as trials on such a device correct it, which a search goes by; None: there are
            none.
        note: why this config: "the stored winner", "the model's choice", "named by --config".
        history: every record of the problem on the device, oldest first; or on another one with its chip.
        named: whether the user named the config, so that a search need not try it.
        options: for ``tilewright tune`` or ``run``, as text that follows the problem: " --device cpu".
        elsewhere: whether the device is not of this machine.
        blueprint: its launches and workspace; None if unknown.
    """

    problem: Problem
    device: Device
    family: Family
    config: Config
    estimate: Estimate | None
    note: str
    history: Sequence[Record]
    blueprint: Blueprint | None = None
    named: bool = False
    options: str = ""
    elsewhere: bool = False
    expected_us: float | None = None
    limiter: str = ""


@dataclass(frozen=True)
class Shown:
    """A value that differs between the JSON and the table, or is in one of them only.

    Attributes:
        value: of the JSON; None: left out.
        text: of the table; empty: left out.
    """

    value: object
    text: str = ""

    def __str__(self) -> str:
        return self.text


Facts = dict[str, str | float | int | Shown]  # by name
Section = tuple[str, Facts]  # with its key in JSON
TITLES = {
    "model_sees": "model sees",
    "predicted_terms_us": "predicted time by term, us",
    "predicted_against_measured": "predicted against measured",
    "runner_up": "runner-up",
    "other": "fastest other config",
}  # labels in tables; other keys are their own
SOURCES = {"measured": "measured on such a device", "default": "a guess"}  # the others are words for users


def sections(subject: Subject) -> list[Section]:
    """Return the whole explanation, as groups of named figures."""
    return [
        ("layer", _layer(subject.problem, subject.device)),
        ("config", _config(subject)),
        ("launches", _launches(subject)),
        ("pool", _pool(subject)),
        ("device", _limits(subject.device, subject.problem.precision)),
        ("model_sees", _seen(subject)),
        ("predicted_terms_us", _terms(subject.estimate)),
        ("predicted_against_measured", _measured(subject)),
        ("other" if subject.named else "runner_up", _second(subject)),
    ]


def tables(found: list[Section]) -> list[Table]:
    """Return a small table for each section that is not empty."""
    lines = {key: [(k.replace("_", " "), _value(v)) for k, v in rows.items()] for key, rows in found if rows}
    bodies = {key: tuple((name, text) for name, text in rows if text) for key, rows in lines.items()}
    return [Table(TITLES.get(key, key), ("", ""), body, words=True) for key, body in bodies.items()]


def document(found: list[Section]) -> dict[str, dict[str, object]]:
    """Return the same for JSON: numbers and lists of names are not turned into text."""
    values = {
        key: {k: v.value if isinstance(v, Shown) else v for k, v in rows.items()} for key, rows in found
    }
    return {key: {k: v for k, v in rows.items() if v is not None} for key, rows in values.items()}


def best_records(history: Sequence[Record]) -> list[Record]:
    """Return the newest correct record of each config, the fastest first."""
    newest = {record.config: record for record in history if record.is_right}
    return sorted(newest.values(), key=lambda record: record.cold_us)


def within_noise(a: Measurement, b: Measurement) -> bool:
    """Whether the two 95% intervals overlap."""
    return abs(a.cold_us - b.cold_us) <= a.ci95_us + b.ci95_us


def _layer(problem: Problem, device: Device) -> Facts:
    least, output = floor(problem, device), [problem.n, problem.k, problem.y_p, problem.y_q]
    return {
        "problem": str(problem),
        "output": Shown(output, " x ".join(map(str, output))),
        "flops": problem.flops,
        "bytes": problem.bytes,
        "flops_per_byte": problem.flops / max(problem.bytes, 1),
        "floor_us": least.us,
        "floor_empty_kernel_us": least.empty_us,
        "floor_arithmetic_us": least.arithmetic_us,
        "floor_memory_us": least.memory_us,
        "bound_by": "arithmetic" if least.arithmetic_us >= least.memory_us else "memory",
    }


def _config(subject: Subject) -> Facts:
    rows: Facts = {"why": subject.note, "config": str(subject.config)}
    for param in subject.family.params(subject.problem, subject.device):
        value = subject.config.values.get(param.name)
        if value is None:
            continue
        named = param.names[param.values.index(value)] if param.names and value in param.values else ""
        said = {"value": value, **({"name": named} if named else {}), "what": param.doc}
        alone = "; the only value here" * (len(param.values) == 1)
        rows[param.name] = Shown(said, f"{value}{' = ' + named if named else ''}  ({param.doc}{alone})")
    same = subject.family.deterministic(subject.config)
    rows["deterministic"] = Shown(same, "yes" if same else "no")
    return rows


def _launches(subject: Subject) -> Facts:
    if subject.blueprint is None:
        return {}
    buffers = [one for one in subject.blueprint.workspace if one.nbytes]
    workspace = {f"workspace_{one.name}_bytes": one.nbytes for one in buffers}
    kernels = [launch.kernel for launch in subject.blueprint.launches]
    inner = subject.family.inner(subject.problem, subject.device)
    return {
        "kernels": Shown(kernels, _in_turn(kernels)),
        **({"computed_as": str(inner)} if inner is not subject.problem else {}),
        "workspace_bytes": sum(workspace.values()),
        **(workspace if len(subject.blueprint.workspace) > 1 else {}),
        **subject.family.remarks(subject.problem, subject.config),
    }


def _in_turn(kernels: list[str]) -> str:
    """Name kernels in their order; those that are launched again and again once."""
    once = ", ".join(dict.fromkeys(kernels))
    return ", ".join(kernels) if len(kernels) < 9 else f"{once} ({len(kernels)} launches)"


def _pool(subject: Subject) -> Facts:
    """How the pool is computed, and the cost of the other way: measured, else predicted."""
    problem, device, config = subject.problem, subject.device, subject.config
    if problem.epilogue.pool is None or subject.blueprint is None:
        return {}
    mine, here = _mine(subject), apart(problem, device, config)
    rows: Facts = {"here": WAYS[here], "other_way": WAYS[not here]}
    if record := measured_otherwise(problem, device, here, best_records(subject.history)):
        rows |= {"other_config": record.config, **_timed("other_measured", _figure(record))}
        more = {"other_over_this": _figure(record).cold_us / _figure(mine).cold_us} if mine else {}
        return rows | more
    if subject.estimate and (found := predicted_otherwise(problem, device, config, here)):
        other, estimate = found
        rows |= {"other_config": str(other), "other_predicted_us": estimate.total_us}
        return rows | {"other_over_this": estimate.total_us / subject.estimate.total_us}
    return rows | {"other_config": Shown(None, "none is legal")}


def _limits(device: Device, precision: str) -> Facts:
    units, lanes, rates = count(device.units, "unit"), count(device.lanes, "lane"), device.rates
    found = {
        "read_gbs": (rates.read_gbs, rates.source),
        "f32_tflops": (rates.f32_tflops, rates.source),
        f"{precision}_tflops": (peak_tflops(device, precision), peak_from(device, precision)),
        "empty_kernel_us": (rates.empty_us, rates.empty_from),
    }
    return {
        "device": f"{device.name} ({device.arch}), {units} of {lanes}",
        **{
            name: Shown(rate, f"{_value(rate)}  ({SOURCES.get(source, source)})")
            for name, (rate, source) in found.items()
        },
        "rates_from": Shown({name.rpartition("_")[0]: source for name, (_, source) in found.items()}),
    }


def _seen(subject: Subject) -> Facts:
    """The facts that the model goes by, and what limits the kernel by them."""
    if subject.estimate is None:
        return {}
    return {**subject.estimate.facts, **({"limiter": subject.limiter} if subject.limiter else {})}


def _terms(estimate: Estimate | None) -> Facts:
    if estimate is None:
        return {"none": Shown(None, "the model does not know this family")}
    return {**estimate.terms_us, "total": estimate.total_us}


def _not_measured(subject: Subject) -> str:
    """Say how to measure a config, if that is possible."""
    if not subject.device.runs_kernels:
        return "never: NumPy computes the answer, without a kernel"
    there = "on such a GPU " if subject.elsewhere else ""
    if subject.named or not subject.family.tunable:
        run = f"tilewright run {subject.problem} --config {subject.config}{subject.options}"
        return f"no time is stored; to see one: {there}{run}"
    return f"not yet; {there}run tilewright tune {subject.problem}{subject.options}"


def _measured(subject: Subject) -> Facts:
    mine = _mine(subject)
    rows: Facts = {}
    if subject.estimate:
        rows["predicted_us"] = subject.estimate.total_us
    if subject.expected_us is not None:
        rows["corrected_by_experience_us"] = subject.expected_us
    if mine is None:
        return {**rows, "measured": _not_measured(subject)}
    figure, here = _figure(mine), mine.device == subject.device.key
    rows |= _timed("measured", figure, f" (cold, {count(figure.runs, 'run')})")
    rows["runs"] = Shown(figure.runs)
    if not here:
        key = read_key(mine.device)
        rows["measured_on"] = f"{key.name if key else mine.device}, whose rates are others"
    if subject.estimate and here:
        rows["predicted_over_measured"] = subject.estimate.total_us / figure.cold_us
    if subject.device.rates.source != "default" and here:  # guessed rates give no floor
        rows["floor_share"] = floor(subject.problem, subject.device).us / figure.cold_us
    rows["tflops"] = subject.problem.flops / figure.cold_us * 1e-6
    if figure.warm_us is not None:
        rows["warm_us"] = figure.warm_us
    if mine.registers:
        rows["registers_per_thread_compiled"] = mine.registers
    if mine.worst is not None:
        rows["error_over_bound"] = mine.worst
    if here and mine.won and (left := list(mine.search.untried)):
        again = f"tilewright tune {subject.problem}{subject.options} goes on"
        rows["families_untried"] = Shown(left, f"{', '.join(left)}: the budget ended before; {again}")
    return rows


def _second(subject: Subject) -> Facts:
    """Compare the winner with the runner-up, or a config that was named with the fastest other one."""
    mine, ranked = _mine(subject), best_records(subject.history)
    others = [record for record in ranked if record.config != str(subject.config)]
    if mine is None or not others:
        return {}
    rough = not subject.named and unfinished(subject.history, mine) is not None
    all_count = rough or not (subject.named or mine.compared)
    rivals = others if all_count else [record for record in others if record.compared] or others
    second = rivals[0]
    figure, other = _figure(mine), _figure(second)
    close = [record for record in rivals if within_noise(figure, _figure(record))]
    return {
        "config": second.config,
        **_timed("measured", other),
        "over_named" if subject.named else "over_winner": other.cold_us / figure.cold_us,
        "within_noise": _noise(figure, other, slower=rough or subject.named),
        **({"unfinished": _unfinished(subject)} if rough else {}),
        "configs_within_noise": len(close),
        "configs_tried": len({record.config for record in subject.history}),
    }


def _noise(mine: Measurement, other: Measurement, slower: bool) -> Shown:
    """Say whether two times differ; ``slower``: whether ours may well be the longer one."""
    if within_noise(mine, other):
        return Shown(True, "yes: the 95% intervals overlap")
    if other.cold_us > mine.cold_us or slower:
        return Shown(False, "no")
    late = "no, but timed when the machine was faster, not beside the winner: tune --again compares them"
    return Shown(False, late)


def _unfinished(subject: Subject) -> str:
    again = f"tilewright tune {subject.problem} --again{subject.options}"
    return f"a trial of a search that was stopped was faster in a rough timing; to finish it: {again}"


def _mine(subject: Subject) -> Record | None:
    found = [record for record in best_records(subject.history) if record.config == str(subject.config)]
    return found[0] if found else None


def _figure(record: Record) -> Measurement:
    assert record.measurement is not None
    return record.measurement


def _timed(name: str, figure: Measurement, more: str = "") -> Facts:
    """A time and its interval: two numbers in the JSON, one line in the table."""
    text = f"{time_text(figure.cold_us)} ± {width_text(figure.cold_us, figure.ci95_us)}{more}"
    return {f"{name}_us": Shown(figure.cold_us, text), f"{name}_ci95_us": Shown(figure.ci95_us)}


def _value(value: str | float | int | Shown) -> str:
    if isinstance(value, str | Shown):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else figure_text(value)
