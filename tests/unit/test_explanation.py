"""What ``explain`` says of a winner: pure figures, from the model and the records."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fake_family import FakeFamily

from tilewright.cli import main
from tilewright.device import Device, Rates, for_architecture
from tilewright.floor import least_flops
from tilewright.kernels import family_of
from tilewright.kernels.family import Config, Param
from tilewright.kernels.tile import ATOMIC, LAST, NONE, TWO_PASS
from tilewright.problem import Problem
from tilewright.record import Check, Estimate, Measurement, Record, Search, Standing
from tilewright.report.explanation import (
    Facts,
    Shown,
    Subject,
    best_records,
    document,
    sections,
    tables,
    within_noise,
)
from tilewright.report.table import as_text
from tilewright.search.experience import shipped
from tilewright.search.model import estimate
from tilewright.search.pooling import predicted_otherwise
from tilewright.search.ranking import rank

PROBLEM = Problem.parse("n1c64h56w56k64r3s3p1-f32")
DEVICE = replace(for_architecture("sm_90"), rates=Rates(3.0, 3000.0, 60.0))


class Toy(FakeFamily):
    """A family of one choice."""

    name = "toy"

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        return (Param("t", (1, 2, 4), "tile"), Param("mode", (0, 1), "how", ("plain", "staged")),
                Param("one", (7,), "no choice"))  # fmt: skip


def record(config: str, cold_us: float, ci95_us: float = 0.1, outcome: str = "correct") -> Record:
    check = Check(True, 1e-6, 1e-5, 0.1, True, True)
    timed = Measurement(cold_us, ci95_us, 20, cold_us * 0.9)
    return Record(str(PROBLEM), DEVICE.key, "toy", config, outcome, True, check, timed, registers=64)


def subject(history: list[Record]) -> Subject:
    config = Config.make("toy", {"t": 2, "mode": 1, "one": 7})
    estimate = Estimate(9.0, {"arithmetic_us": 6.0, "launch_us": 3.0}, {"occupancy": 0.5, "waves": 1.25})
    return Subject(PROBLEM, DEVICE, Toy(), config, estimate, "the stored winner", history)


MINE = "toy:mode=1.one=7.t=2"
HISTORY = [
    record("toy:mode=0.one=7.t=4", 12.0),
    record(MINE, 20.0),  # an older figure of the same config
    record("toy:mode=0.one=7.t=2", 10.3, 0.4),
    record("toy:mode=0.one=7.t=1", 1.0, outcome="correctness"),
    record(MINE, 10.0),
]


def found(history: list[Record]) -> dict[str, Facts]:
    return dict(sections(subject(history)))


def test_the_output_is_what_is_behind_the_pool() -> None:
    pooled = replace(subject([]), problem=Problem.parse("n1c64h7w9k32r3s3p1-f32+maxpool2"))
    assert dict(sections(pooled))["layer"]["output"] == Shown([1, 32, 3, 4], "1 x 32 x 3 x 4")


def test_how_to_measure_what_was_not() -> None:
    def says(asked: Subject) -> object:
        return dict(sections(asked))["predicted_against_measured"]["measured"]

    one, searched = subject([]), f"not yet; run tilewright tune {PROBLEM}"
    assert says(one) == searched
    assert says(replace(one, options=" --device cpu --family toy")) == f"{searched} --device cpu --family toy"
    # no search need try a config that was named, or tries one of a family that cannot be tuned
    run = f"no time is stored; to see one: tilewright run {PROBLEM} --config {MINE}"
    assert says(replace(one, named=True)) == run
    # with --arch the command would run here, on the CPU
    assert says(replace(one, elsewhere=True)) == f"not yet; on such a GPU run tilewright tune {PROBLEM}"
    setattr(one.family, "tunable", False)  # noqa: B010
    assert says(replace(one, options=" --device cpu")) == f"{run} --device cpu"


def test_floor_is_the_device_s_floor() -> None:
    layer = found([])["layer"]
    assert layer["flops"] == PROBLEM.flops == 2 * 64 * 64 * 9 * 56 * 56
    assert layer["floor_us"] == pytest.approx(3.0 + least_flops(PROBLEM) / 60e6)
    assert layer["bound_by"] == "arithmetic"


@pytest.mark.parametrize("layer", ["R2", "TOY", "MB1"])
@pytest.mark.parametrize("device", [("--arch", "sm_90"), ("--device", "numpy")])
def test_keys_are_names_and_titles_are_words(
    layer: str, device: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    def pairs(value: Any) -> Iterator[tuple[str, Any]]:
        for key, inner in value.items() if isinstance(value, dict) else ():
            yield from ((key, inner), *pairs(inner))

    assert main(["explain", layer, *device, "--json", "-"]) == 0
    told = list(pairs(json.loads(capsys.readouterr().out)))
    found = {key for key, _ in told}
    with_units = [(key, value) for key, value in told if key.endswith(("_us", "_bytes"))]
    assert [one for one in with_units if not isinstance(one[1], int | float | dict)] == []
    assert found and [key for key in found if not re.fullmatch(r"[a-z][a-z0-9_]*", key)] == []
    assert [table.title for table in tables(sections(subject(HISTORY)))] == [
        "layer", "config", "device", "model sees", "predicted time by term, us", "predicted against measured",
        "runner-up",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "precision", "sources"),
    [
        ("calibrated", "f32", ("calibrated", "calibrated", "calibrated")),
        ("calibrated", "f16", ("calibrated", "datasheet", "calibrated")),  # of tensor cores
        ("datasheet", "f32", ("datasheet", "datasheet", "a guess")),
        ("measured", "i8", ("measured on such a device", "datasheet", "a guess")),
        ("default", "f64", ("a guess", "a guess", "a guess")),  # follows from that of f32
    ],
)
def test_each_rate_says_where_it_comes_from(source: str, precision: str, sources: tuple[str, ...]) -> None:
    device = replace(DEVICE, rates=replace(DEVICE.rates, source=source))
    asked = replace(subject([]), device=device, problem=PROBLEM.with_dtype(precision))
    told = dict(sections(asked))["device"]
    names = ("read_gbs", f"{precision}_tflops", "empty_kernel_us")
    assert [str(told[name]).partition("  ")[2] for name in names] == [f"({one})" for one in sources]
    assert device.rates.read_gbs == told["read_gbs"].value == 3000.0  # type: ignore[union-attr]


def test_f64_without_tensor_cores_follows_from_f32() -> None:
    device = replace(DEVICE, arch="sm_75", rates=replace(DEVICE.rates, source="calibrated"))
    asked = replace(subject([]), device=device, problem=PROBLEM.with_dtype("f64"))
    assert str(dict(sections(asked))["device"]["f64_tflops"]).endswith("(calibrated)")


def test_kernels_that_are_launched_again_and_again_are_named_once() -> None:
    blueprint = SimpleNamespace(
        workspace=(), launches=[SimpleNamespace(kernel=name) for name in ("first", *("a", "b") * 40)]
    )
    kernels = dict(sections(replace(subject([]), blueprint=blueprint)))["launches"]["kernels"]  # type: ignore[arg-type]
    assert str(kernels) == "first, a, b (81 launches)"
    assert len(kernels.value) == 81  # type: ignore[union-attr, arg-type]


def test_every_term_and_fact_of_the_model_is_there() -> None:
    said = found([])
    assert said["predicted_terms_us"] == {"arithmetic_us": 6.0, "launch_us": 3.0, "total": 9.0}
    assert said["model_sees"] == {"occupancy": 0.5, "waves": 1.25}


def test_choices_are_named_and_what_is_no_choice_is_said() -> None:
    config = found([])["config"]
    assert str(config["mode"]) == "1 = staged  (how)"
    assert str(config["one"]) == "7  (no choice; the only value here)"


def test_predicted_against_measured() -> None:
    measured = found(HISTORY)["predicted_against_measured"]
    assert str(measured["measured_us"]) == "10 ± 0.1 (cold, 20 runs)"
    assert measured["predicted_over_measured"] == pytest.approx(0.9)
    assert measured["registers_per_thread_compiled"] == 64


def test_what_experience_makes_of_a_prediction_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """That is what configs are ranked by; on a chip without trials it is the prediction itself."""
    assert main(["explain", "R12", "--arch", "sm_90", "--json", "-"]) == 0
    said = json.loads(capsys.readouterr().out)
    told, config = said["predicted_against_measured"], Config.parse(said["config"]["config"])
    layer = Problem.parse(said["layer"]["problem"])
    family, here = family_of(config.family), for_architecture("sm_90")
    (expected,) = shipped(here.chip).of(family, layer, here).expected_us([config])
    assert told["corrected_by_experience_us"] == expected != told["predicted_us"]
    assert main(["explain", "R12", "--arch", "sm_75", "--json", "-"]) == 0
    assert "corrected_by_experience_us" not in capsys.readouterr().out


def test_a_time_of_another_device_is_not_held_against_this_one() -> None:
    other = DEVICE.key.replace(DEVICE.name, "NVIDIA H200")
    measured = found([replace(record(MINE, 10.0), device=other)])["predicted_against_measured"]
    assert str(measured["measured_us"]).startswith("10 ")
    assert measured["measured_on"] == "NVIDIA H200, whose rates are others"
    assert not {"predicted_over_measured", "floor_share"} & set(measured)


@pytest.mark.parametrize(("layer", "where"), [
    ("R12", None), ("n32c128h28w28k512r1s1-tf32", "NVIDIA H200, whose rates are others"),
])  # fmt: skip
def test_without_the_gpu_times_are_of_one_device(
    layer: str, where: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", layer, "--arch", "sm_90", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    measured = told["predicted_against_measured"]
    assert measured.get("measured_on") == where
    assert ("floor_share" in measured) == (where is None)
    assert told["runner_up"].get("over_winner", 1.0) > 0.97


def test_json_has_numbers_where_the_table_has_words() -> None:
    """A key that names a unit holds a number, one that asks a question true or false."""
    told = document(sections(subject(HISTORY)))
    assert told["layer"]["output"] == [1, 64, 56, 56]
    assert told["config"]["t"] == {"value": 2, "what": "tile"}
    assert told["config"]["mode"] == {"value": 1, "name": "staged", "what": "how"}
    assert told["config"]["deterministic"] is True
    measured, second = told["predicted_against_measured"], told["runner_up"]
    assert (measured["measured_us"], measured["measured_ci95_us"], measured["runs"]) == (10.0, 0.1, 20)
    assert measured["warm_us"] == pytest.approx(9.0)
    assert (second["measured_us"], second["measured_ci95_us"], second["within_noise"]) == (10.3, 0.4, True)
    lines = "\n".join(as_text(table) for table in tables(sections(subject(HISTORY))))
    assert "measured us" in lines and "ci95" not in lines  # beside the time, in its line
    assert document(sections(replace(subject([]), estimate=None)))["predicted_terms_us"] == {}


def test_runner_up_and_noise() -> None:
    second = found(HISTORY)["runner_up"]
    assert second["config"] == "toy:mode=0.one=7.t=2"
    assert second["over_winner"] == pytest.approx(1.03)
    assert str(second["within_noise"]).startswith("yes")
    assert (second["configs_within_noise"], second["configs_tried"]) == (1, 4)
    rough = record("toy:mode=1.one=7.t=4", 11.0, 5.0)  # its interval is wide, and nobody compared it
    compared = [replace(one, standing=Standing.FINALIST) for one in HISTORY]
    assert found([*compared, rough])["runner_up"]["configs_within_noise"] == 1
    for alone in (HISTORY[-1:], HISTORY[:1]):  # the winner, or another
        assert not found(alone).get("runner_up")


def test_the_runner_up_is_the_best_that_was_compared_with_the_winner() -> None:
    """A time of the search may be from a moment when the machine was faster."""
    lucky = replace(record("toy:mode=0.one=7.t=1", 8.0), standing=Standing.TRIAL)
    won = replace(record(MINE, 10.0), standing=Standing.WINNER)
    lost = replace(record("toy:mode=0.one=7.t=2", 11.0), standing=Standing.FINALIST)
    second = found([lucky, lost, won])["runner_up"]
    assert (second["config"], second["over_winner"]) == (lost.config, pytest.approx(1.1))
    assert found([lucky, won])["runner_up"]["config"] == lucky.config  # alone with it
    assert found([lost, won, lucky])["runner_up"]["config"] == lucky.config  # not compared yet
    rough = replace(record(MINE, 7.0), standing=Standing.TRIAL)  # the winner of a search that was stopped
    assert found([lost, lucky, rough])["runner_up"]["config"] == lucky.config


def test_a_runner_up_that_seems_faster_was_timed_at_another_time() -> None:
    """Figures of the search and of the last comparison, which renews those of the finalists."""
    said = found([record(MINE, 15.0), record("toy:mode=0.one=7.t=1", 11.0)])["runner_up"]
    assert said["over_winner"] < 1 and "not beside the winner: tune --again" in str(said["within_noise"])


def test_a_config_that_was_named_is_no_winner() -> None:
    """Any other config may be faster, at whatever time it was measured."""
    trial = replace(record(MINE, 15.0), standing=Standing.TRIAL)
    won = replace(record("toy:mode=0.one=7.t=1", 11.0), standing=Standing.WINNER)
    told = dict(sections(replace(subject([won, trial]), named=True)))
    other = told["other"]
    assert "runner_up" not in told and "over_winner" not in other and "unfinished" not in other
    assert (other["config"], other["over_named"]) == (won.config, pytest.approx(11 / 15))
    assert other["within_noise"] == Shown(False, "no")
    titles = [table.title for table in tables(sections(replace(subject([won, trial]), named=True)))]
    assert titles[-1] == "fastest other config"


def test_a_faster_trial_of_a_search_that_was_stopped_is_told() -> None:
    trial = replace(record("toy:mode=0.one=7.t=1", 11.0), standing=Standing.TRIAL)
    won = replace(record(MINE, 15.0), standing=Standing.WINNER)
    told = dict(sections(replace(subject([won, trial]), options=" --device cpu")))["runner_up"]["unfinished"]
    assert "faster in a rough timing" in str(told)
    assert str(told).endswith(f"tilewright tune {PROBLEM} --again --device cpu")
    assert "unfinished" not in found([trial, won])["runner_up"]  # compared since
    assert "unfinished" not in found([won, record("toy:mode=0.one=7.t=1", 16.0)])["runner_up"]


def test_families_that_the_budget_left_are_told() -> None:
    won = replace(record(MINE, 10.0), standing=Standing.WINNER)
    assert "families_untried" not in found([won])["predicted_against_measured"]
    cut = replace(won, search=Search(raced=("toy",), untried=("other", "third")))
    told = dict(sections(replace(subject([cut]), options=" --device cpu")))["predicted_against_measured"]
    left = told["families_untried"]
    assert isinstance(left, Shown) and left.value == ["other", "third"]
    again = f"tilewright tune {PROBLEM} --device cpu goes on"
    assert str(left) == f"other, third: the budget ended before; {again}"


def test_nothing_measured_yet() -> None:
    said = found([])
    assert "run tilewright tune" in str(said["predicted_against_measured"]["measured"])
    assert said["runner_up"] == {}
    assert all(table.title != "runner-up" for table in tables(sections(subject([]))))


def test_a_family_that_the_model_does_not_know() -> None:
    said = dict(sections(replace(subject(HISTORY), estimate=None)))
    assert said["model_sees"] == {}
    assert "predicted_us" not in said["predicted_against_measured"]
    assert said["predicted_against_measured"]["floor_share"] == pytest.approx(0.676, rel=0.01)
    guessed = replace(DEVICE, rates=replace(DEVICE.rates, source="default"))
    said = dict(sections(replace(subject(HISTORY), device=guessed)))
    assert "floor_share" not in said["predicted_against_measured"]


def test_best_records_are_the_newest_correct_of_each_config() -> None:
    assert [r.measurement.cold_us for r in best_records(HISTORY) if r.measurement] == [10.0, 10.3, 12.0]
    assert within_noise(Measurement(1.0, 0.1, 9), Measurement(1.2, 0.1, 9))
    assert not within_noise(Measurement(1.0, 0.1, 9), Measurement(1.3, 0.1, 9))


def test_tables_are_readable_lines() -> None:
    text = "\n".join(as_text(table) for table in tables(sections(subject(HISTORY))))
    assert "flops" in text and "231,211,008" in text
    assert "bound by" in text


def test_large_figures_have_no_exponent() -> None:
    text = as_text(tables([("model_sees", {"dram_us": 12345.6, "blocks": 147456.0, "tail": 0.00123456})])[0])
    assert [line.split()[-1] for line in text.splitlines()[1:]] == ["12,346", "147,456", "0.001235"]


def chosen(text: str, name: str) -> Subject:
    """The model's choice of one family."""
    problem, kind = Problem.parse(text), family_of(name)
    config = rank(problem, DEVICE, kind, 1)[0][0]
    laid_out = kind.blueprint(problem, DEVICE, config)
    return Subject(
        problem, DEVICE, kind, config, estimate(kind, problem, DEVICE, config), "given", [], laid_out
    )


def test_im2col_spells_out_its_memory() -> None:
    launches = dict(sections(chosen("n2c64h56w56k64r3s3p1u2-f32", "im2col")))["launches"]
    assert "im2col, gemm" in str(launches["kernels"])
    formula = "n * c * r * s * p * q * 4 = 2 * 64 * 3 * 3 * 28 * 28 * 4 = 3,612,672 bytes"
    assert launches["columns"] == formula
    assert launches["input"] == "n * c * h * w * 4 = 2 * 64 * 56 * 56 * 4 = 1,605,632 bytes"
    assert launches["columns_beside_input"] == (
        "2.25; away from the edges r * s / stride^2 = 3 * 3 / (2 * 2) = 2.25"
    )
    assert launches["workspace_columns_bytes"] == 3_612_672 <= launches["workspace_bytes"]  # type: ignore[operator]


def test_a_layer_that_is_computed_as_another_says_so() -> None:
    fourier = dict(sections(chosen("n1c1h1w4096k66r1s64u1x16-f32", "gemm")))["launches"]
    assert fourier["computed_as"] == "n1c16h1w256k66r1s4-f32-nhwc2nchw"  # folded: 16 columns are channels
    assert "computed_as" not in dict(sections(chosen("n1c64h56w56k64r1s1-f32", "gemm")))["launches"]


@pytest.mark.parametrize(("name", "apart"), [("direct", False), ("gemm", True)])
def test_a_pool_is_fused_or_not_and_the_other_way_is_costed(name: str, apart: bool) -> None:
    subject = chosen("n1c64h56w56k64r1s1-f32+relu+maxpool2", name)
    assert subject.estimate
    if name == "direct":  # whichever the model likes
        apart = subject.config["combine"] == 2
    pool = dict(sections(subject))["pool"]
    assert str(pool["here"]).startswith("two_pass" if apart else "fused")
    assert str(pool["other_way"]).startswith("fused" if apart else "two_pass")
    predicted = pool["other_predicted_us"]
    assert isinstance(predicted, float)
    assert pool["other_over_this"] == pytest.approx(predicted / subject.estimate.total_us)
    # measured is better than predicted
    problem, other = str(subject.problem), str(pool["other_config"])
    timed = [
        replace(record(config, us), problem=problem, family=config.partition(":")[0])
        for config, us in ((str(subject.config), 20.0), (other, 25.0), ("direct:tk=1", 1.0))
    ]
    pool = dict(sections(replace(subject, history=timed)))["pool"]
    assert pool["other_config"] == other
    assert str(pool["other_measured_us"]) == "25 ± 0.1"
    assert pool["other_over_this"] == pytest.approx(1.25)


def test_the_other_way_to_pool_is_as_good_as_a_search_of_its_family_would_find() -> None:
    subject = chosen("n1c16h12w12k16r3s3p1-f32+maxpool2", "direct")
    problem, here = subject.problem, subject.config["combine"] == TWO_PASS
    found = predicted_otherwise(problem, DEVICE, subject.config, here)
    assert found
    ways = {"combine": (NONE, ATOMIC, LAST) if here else (TWO_PASS,)}
    (_, best_us), *_ = rank(problem, DEVICE, subject.family, 1, pins=ways)
    (us,) = shipped(DEVICE.chip).of(family_of(found[0].family), problem, DEVICE).expected_us([found[0]])
    assert us <= 1.01 * best_us


def test_no_pool_no_word_of_it() -> None:
    assert dict(sections(chosen(str(PROBLEM), "direct")))["pool"] == {}
