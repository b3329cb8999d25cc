"""What trials of other layers say of the model's error."""

from __future__ import annotations

import gzip
import json
import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tuning_fakes import outcome

from tilewright import errors as errors_of_package
from tilewright.device import Device, for_architecture
from tilewright.errors import StoreError
from tilewright.kernels import family_of
from tilewright.kernels.family import Config, Family
from tilewright.problem import Problem
from tilewright.record import Estimate, Outcome
from tilewright.search import experience, model, ranking, trials_file
from tilewright.search.experience import FASTEST, KEPT, Experience, Lesson, learn, shipped
from tilewright.search.places import PARTS, coordinates, features, makeup
from tilewright.search.space import Space

DIRECT = family_of("direct")
DEVICE = for_architecture("sm_90")
OTHER = replace(DEVICE, name="NVIDIA H200")  # with the same chip
HERE = Problem.parse("n1c256h14w14k256r3s3p1-f32")
THERE = Problem.parse("n1c128h28w28k128r3s3p1-f32")
TRIALS = Path(__file__).parents[2] / "tilewright" / "data" / "experience" / "h100.jsonl.gz"


@cache
def ranked(problem: Problem) -> list[Config]:
    """The model's first choices; to find them takes seconds."""
    return [config for config, _ in ranking.rank(problem, DEVICE, DIRECT, 101)]


def lesson(problem: Problem, factor: float, count: int = 20) -> Lesson:
    """Trials that were ``factor`` times slower than the model's estimate."""
    configs = ranked(problem)[:count]
    times = [(str(c), factor * model.estimate(DIRECT, problem, DEVICE, c).total_us) for c in configs]
    return Lesson(DEVICE, problem, "direct", tuple(times))


def errors(
    known: Experience, problem: Problem, configs: list[Config], kernels: Family = DIRECT
) -> np.ndarray:
    """What is expected of log(time / estimate)."""
    estimates = [model.estimate(kernels, problem, DEVICE, c).total_us for c in configs]
    return np.log(np.divide(known.of(kernels, problem, DEVICE).expected_us(configs), estimates))


@pytest.fixture
def configs() -> list[Config]:
    return ranked(HERE)[:10]


def test_nothing_is_known_without_trials(configs: list[Config]) -> None:
    assert not errors(Experience(), HERE, configs).any()
    assert not shipped(for_architecture("sm_80").chip).lessons
    other = Experience([lesson(THERE, 2.0)])
    assert not errors(other, HERE, [], family_of("gemm")).any()
    assert not errors(other, Problem.parse(str(HERE).replace("f32", "f16")), configs).any()


@pytest.mark.parametrize(
    ("kind", "others"), [("bf16", {"f16", "bf16"}), ("i8+requant", {"i8", "i8+requant"})]
)
def test_alike_kinds_learn_from_each_other(kind: str, others: set[str]) -> None:
    """i8 and requantised i8 differ in what is stored alone: what is known of one helps the other."""
    mma, text = family_of("mma"), "n1c256h14w14k256r3s3p1-{}"
    here = Problem.parse(text.format(kind.replace("i8", "i8-nhwc")))
    config = next(iter(ranking.rank(here, DEVICE, mma, 1)))[0]

    def known(other: str) -> bool:
        there = Problem.parse(text.format(other.replace("i8", "i8-nhwc")).replace("k256", "k128"))
        found = Experience([Lesson(DEVICE, there, "mma", ((str(config), 1e3),))])
        return bool(errors(found, here, [config], mma).any())

    assert {other for other in ("f16", "bf16", "i8", "i8+requant", "f8") if known(other)} == others


@pytest.mark.parametrize("math_word", ["tf32", "accurate"])
def test_what_a_family_computes_in_f32_it_knows_from_f32(math_word: str, configs: list[Config]) -> None:
    """Not so a family that has kernels of their own for it."""
    asked = Problem.parse(str(HERE).replace("f32", math_word))
    known = Experience([lesson(THERE, 2.0)])
    assert errors(known, asked, configs) == pytest.approx(errors(known, HERE, configs))
    mma = family_of("mma")
    config = next(iter(ranking.rank(asked, DEVICE, mma, 1)))[0]
    assert not errors(Experience([Lesson(DEVICE, THERE, "mma", ((str(config), 1e3),))]), asked, [config], mma)


def test_an_error_elsewhere_is_expected_here_in_part(configs: list[Config]) -> None:
    near = errors(Experience([lesson(THERE, 2.0)]), HERE, configs)
    far = Experience([lesson(Problem.parse("n1c3h224w224k64r7s7p3u2-f32"), 2.0)])
    assert (near > 0.0).all() and (near < math.log(2.0)).all()
    assert (errors(far, HERE, configs) < near).all()
    same = errors(Experience([lesson(HERE, 2.0)]), HERE, configs)
    assert (same > near).all() and same.max() == pytest.approx(math.log(2.0), rel=0.1)


def test_what_one_trial_says_is_that_of_the_normal_distribution(configs: list[Config]) -> None:
    """The textbook's two-variable conditional: of the config itself, of others, and on another layer."""
    tried, *others = configs
    slow = 3.0 * model.estimate(DIRECT, HERE, DEVICE, tried).total_us
    known = Experience([Lesson(DEVICE, HERE, "direct", ((str(tried), slow),))])
    common, own, kind = experience.COMMON**2, experience.OWN**2, experience.MAKEUP**2
    trial = common + own + kind + experience.LAYER**2 + experience.NOISE**2

    def wanted(problem: Problem, config: Config) -> float:
        at = coordinates(DIRECT.params(HERE, DEVICE), [tried, config])
        made = makeup([model.estimate(DIRECT, p, DEVICE, c) for p, c in ((HERE, tried), (problem, config))])
        layers = np.array([features(HERE), features(problem)])
        scales = experience.LENGTH_SCALE, experience.MAKEUP_LENGTH_SCALE, experience.LAYER_LENGTH_SCALE
        params, makeups, layer = (
            math.exp(-float(abs(rows[0] - rows[1]).sum()) / scale)
            for rows, scale in zip((at, made, layers), scales, strict=True)
        )
        return ((common + own * params) * layer + kind * makeups) / trial * math.log(3.0)

    for problem in (HERE, THERE):
        assert errors(known, problem, configs) == pytest.approx([wanted(problem, c) for c in configs])
    assert errors(known, HERE, [tried]) > errors(known, HERE, others).max()


def test_kernels_that_are_made_up_alike_have_like_errors(
    configs: list[Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever their parameters and layers: what is known of like parameters is switched off."""
    monkeypatch.setattr("tilewright.search.experience.COMMON", 0.0)
    monkeypatch.setattr("tilewright.search.experience.OWN", 0.0)
    taught = Experience([lesson(THERE, 2.0)])
    near = errors(taught, HERE, configs)
    assert (near > 0.1).all()
    far = Problem.parse("n64c64h56w56k64r1s1-f32")
    assert errors(taught, far, ranked(far)[:10]).max() < near.min()
    monkeypatch.setattr("tilewright.search.experience.MAKEUP", 0.0)
    assert not errors(Experience(taught.lessons), HERE, configs).any()


def test_what_an_estimate_is_made_of() -> None:
    """On a GPU shares of the time, none of them below 0 or above 1; a CPU's estimate has fewer parts."""
    estimates = [model.estimate(DIRECT, HERE, DEVICE, config) for config in ranked(HERE)]
    shares = makeup(estimates)[:, : len(PARTS)]
    assert (shares >= 0.0).all() and (shares <= 1.0).all() and (shares.max(axis=0) > 0.0).sum() > 5
    assert np.array_equal(makeup(estimates[:1] * 2)[0], makeup(estimates[:1])[0])
    bare = makeup([Estimate(8.0, {}, {})])
    assert bare.shape == makeup(estimates[:1]).shape and not bare[0, : len(PARTS)].any()


def test_how_far_layers_are_apart() -> None:
    """An octave is 1 apart; pixels count, however they are arranged, and so does each other choice."""

    def apart(text: str) -> float:
        return float(np.abs(features(Problem.parse(text)) - features(here)).sum())

    here = Problem.parse("n1c64h16w16k64r3s3p1-f32")
    for octave in ("n1c128h16w16k64r3s3p1", "n1c32h16w16k64r3s3p1", "n1c64h16w16k32r3s3p1",
                   "n2c64h16w16k64r3s3p1", "n1c64h32w16k64r3s3p1", "n1c64h16w8k64r3s3p1",
                   "n1c64h16w16k64r3s3p1g2"):  # fmt: skip
        assert apart(f"{octave}-f32") == pytest.approx(1.0), octave
    for same in ("n4c64h8w8k64r3s3p1-f32", "n1c64h8w32k64r3s3p1-f32", "n1c64h16w16k64r3s3p1-f32+relu"):
        assert apart(same) == pytest.approx(0.0), same
    for other in ("n1c64h16w16k64r5s5p2-f32", "n1c64h32w32k64r3s3p1u2-f32", f"{here}-nhwc"):
        assert apart(other) > 1.0, other


def test_only_the_nearest_layers_are_looked_at(
    configs: list[Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many devices the lessons of one layer are of."""
    monkeypatch.setattr("tilewright.search.experience.NEAREST", 2)
    near = [lesson(HERE, 1.0, 2), replace(lesson(HERE, 1.0, 2), device=OTHER), lesson(THERE, 1.0, 2)]
    with_far = Experience([lesson(Problem.parse("n1c3h224w224k64r7s7p3u2-f32"), 9.0), *near])
    assert np.allclose(errors(with_far, HERE, configs), 0.0)
    assert not np.allclose(errors(Experience(with_far.lessons[:2]), HERE, configs), 0.0)


def test_the_layers_asked_for_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.search.experience.MADE", 2)
    known = Experience([lesson(HERE, 2.0, 2)])
    first, second = known.of(DIRECT, HERE, DEVICE), known.of(DIRECT, THERE, DEVICE)
    assert known.of(DIRECT, HERE, DEVICE) is first
    known.of(family_of("gemm"), HERE, DEVICE)
    assert known.of(DIRECT, HERE, DEVICE) is first
    assert known.of(DIRECT, THERE, DEVICE) is not second


@pytest.mark.parametrize(("family", "forms", "others"), [
    ("mma", "f32 f32-nhwc f32-nchw2nhwc f32+bias+add+relu f32-nhwc+relu+maxpool2", "tf32 f16"),
    ("mma", "f16 f16-nhwc bf16 f16+bias+relu bf16-nhwc+alpha0.5", "f32 tf32 f8 i8"),
    ("mma", "i8-nhwc i8-nhwc+requant i8-nhwc+bias+relu+requant", "f16-nhwc f8-nhwc"),
    ("mma", "tf32 tf32-nhwc tf32+relu", "f32 accurate"),
    ("direct", "f32 tf32 tf32-nhwc accurate+relu", "f16 f8"),
])  # fmt: skip
def test_a_layer_is_kept_from_its_own_trials_in_any_form(family: str, forms: str, others: str) -> None:
    """Its layout, its epilogue and precisions that are timed alike make no other layer; its batch does."""
    text = "n{}c256h14w14k256r3s3p1-{}"
    own = [Problem.parse(text.format(1, form)) for form in forms.split()]
    rest = [Problem.parse(text.format(1, form)) for form in others.split()]
    rest += [replace(own[0], n=8), replace(own[0], k=128)]
    known = Experience(Lesson(DEVICE, problem, family, ()) for problem in [*own, *rest])
    for problem in own:
        assert [e.problem for e in known.besides(problem, [family_of(family)]).lessons] == rest


def test_the_fastest_and_some_others_are_learnt() -> None:
    *configs, last = ranked(HERE)
    records = [outcome(config, 10.0 + i, HERE) for i, config in enumerate(configs)]
    records.append(outcome(last, None, HERE))
    (learnt,) = learn(DEVICE, records)
    times = [us for _, us in learnt.times_us]
    assert len(times) <= KEPT and times[: KEPT // 2] == [10.0 + i for i in range(KEPT // 2)]
    assert times == sorted(times) and times[-1] > 90.0


def test_what_is_learnt_is_measured_against_the_device_it_was_learnt_on() -> None:
    """Of a device whose memory is as fast again the model was right; so it is expected to be right here."""
    wide = Problem.parse("n64c64h56w56k64r1s1-f32")
    fast = replace(OTHER, rates=replace(DEVICE.rates, read_gbs=2 * DEVICE.rates.read_gbs))
    configs = ranked(wide)[:10]
    times = {c: model.estimate(DIRECT, wide, fast, c).total_us for c in configs}
    assert any(us < model.estimate(DIRECT, wide, DEVICE, c).total_us for c, us in times.items())
    there = Experience([Lesson(fast, wide, "direct", tuple((str(c), us) for c, us in times.items()))])
    assert np.allclose(errors(there, wide, configs), 0.0)


@pytest.mark.parametrize("change", [{"one_that_is_gone": 1}, {"sw": None}])
def test_trials_of_other_parameters_are_skipped(configs: list[Config], change: dict[str, int | None]) -> None:
    """They ship; the family may have got or lost a parameter since."""
    good = lesson(THERE, 2.0)
    values = [{**Config.parse(text).values, **change} for text, _ in lesson(THERE, 9.0).times_us]
    others = [Config.make("direct", {n: v for n, v in each.items() if v is not None}) for each in values]
    old = replace(good, times_us=tuple((str(config), 5.0) for config in others))
    want = errors(Experience([good]), HERE, configs)
    assert np.array_equal(errors(Experience([old, good]), HERE, configs), want)
    assert not errors(Experience([old]), HERE, configs).any()


def test_the_search_expects_what_it_was_taught(configs: list[Config]) -> None:
    """A config that was three times slower than estimated on a like layer falls behind."""
    bad = configs[0]
    three_times = 3.0 * model.estimate(DIRECT, HERE, DEVICE, bad).total_us
    slow = Lesson(DEVICE, HERE, "direct", ((str(bad), three_times),))
    ranked = ranking.ModelRanking(Space(DIRECT, HERE, DEVICE), random.Random(0), configs, Experience([slow]))
    assert ranked.order()[0] != bad
    assert ranked.seen[bad] > model.estimate(DIRECT, HERE, DEVICE, bad).total_us


def test_a_search_begins_with_what_was_fastest_on_like_layers() -> None:
    """As far as the layer has it: not what is wider than its image, or has a parameter that is gone."""
    here, there, rng = Space(DIRECT, HERE, DEVICE), Space(DIRECT, THERE, DEVICE), random.Random(3)
    wide = next(config for config in iter(lambda: there.sample(rng), None) if not here.has(config))
    by_chance = ranking.ModelRanking(here, random.Random(0), None, Experience())
    by_chance.glance()
    drawn = iter(lambda: here.sample(rng), None)
    first, second, third = islice((config for config in drawn if config not in by_chance.seen), 3)

    def taught(problem: Problem, *configs: Config | str) -> Lesson:
        times = tuple((str(config), float(us)) for us, config in enumerate(configs, 5))
        return Lesson(DEVICE, problem, "direct", times)

    lessons = [taught(THERE, wide, first, third), taught(replace(THERE, k=96), f"{first}.gone=1", second)]
    looked = ranking.ModelRanking(here, random.Random(0), None, Experience(lessons))
    looked.glance()
    assert FASTEST == 2 and {first, second} <= looked.seen.keys()
    assert not {wide, third} & looked.seen.keys()
    assert not here.has(Config.parse(f"{first}.gone=1")) and not here.has(Config.parse("gemm:cs=16"))

    name = next(name for name, value in first.items if value != second[name])
    pinned = Space(DIRECT, HERE, DEVICE, {name: first[name]})
    looked = ranking.ModelRanking(pinned, random.Random(0), None, Experience(lessons))
    looked.glance()
    assert first in looked.seen and {config[name] for config in looked.seen} == {first[name]}


def test_the_shipped_trials_are_of_layers_that_the_families_take() -> None:
    device, _ = trials_file.read(TRIALS)
    known = shipped(device.chip)
    assert {e.device.name for e in known.lessons} == {"NVIDIA H100 80GB HBM3", "NVIDIA H200"}
    assert known is shipped(OTHER.chip)
    assert {e.family for e in known.lessons} >= {"direct", "gemm", "winograd", "winograd4", "small"}
    for each in known.lessons:
        assert family_of(each.family).refuses(each.problem, device) is None
        assert 0 < len(each.times_us) <= KEPT
        assert {Config.parse(text).family for text, _ in each.times_us} == {each.family}


def test_what_ships_is_read_before_the_device_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """All chips of its backend, and no others."""
    chips = ("sm_80", "sm_90", "sm_120")
    devices = [for_architecture(arch) for arch in chips]
    devices[2] = replace(devices[2], backend="opencl")
    read: list[str] = []
    monkeypatch.setattr(experience, "_files", lambda: [(TRIALS, device) for device in devices])
    monkeypatch.setattr(experience, "shipped", read.append)
    experience.read_shipped("cuda")
    assert sorted(read) == sorted(device.chip for device in devices[:2])


def test_of_what_ships_only_what_can_be_read_of_the_chip_is_taught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged installation loses what it knows of other layers, and says so; a search goes on."""
    monkeypatch.setattr(experience.resources, "files", lambda package: tmp_path)
    monkeypatch.setattr(errors_of_package, "_warned", set())
    folder, config = tmp_path / "data" / "experience", Config.make("direct", dict(tk=1))
    folder.mkdir(parents=True)
    devices = {"a": DEVICE, "b": OTHER, "c": for_architecture("sm_80")}
    for name, device in devices.items():
        trials_file.write(folder / f"{name}.jsonl.gz", device, [outcome(config, 9.0, HERE)])
    (folder / "d.jsonl.gz").write_bytes((folder / "a.jsonl.gz").read_bytes()[:-20])  # its device can be read
    (folder / "e.jsonl.gz").write_bytes(b"no gzip")
    with pytest.warns(RuntimeWarning, match=r"shipped trials are skipped: .*[de]\.jsonl\.gz"):
        found = experience._shipped.__wrapped__(DEVICE.chip)
    taught = ((str(config), 9.0),)
    assert found.lessons == tuple(Lesson(device, HERE, "direct", taught) for device in (DEVICE, OTHER))


def test_times_alone_are_those_of_the_whole_records() -> None:
    device, records = trials_file.read(TRIALS)
    same, times = trials_file.read_times(TRIALS)
    assert same == device
    assert learn(device, records, kept=10**6) == [
        Lesson(device, problem, kind, tuple(sorted(known.items(), key=lambda item: (item[1], item[0]))))
        for (problem, kind), known in sorted(times.items(), key=lambda item: (str(item[0][0]), item[0][1]))
    ]


@pytest.mark.parametrize("line", (
    '["n1c8h9k8-f32", "direct:tk=1", "correct"]', '["n1", "a:b=1", "correct", 1.0]',
    '["n1c8h9k8-f32", "a:b=1", "correct", "soon"]', "[", "7",
    *(f'["n1c8h9k8r1", "a:b=1", "correct", {time}]' for time in ("0", "-1", "NaN", "1e999", "true", '"1"')),
))  # fmt: skip
@pytest.mark.parametrize("read", (trials_file.read, trials_file.read_times))
def test_a_line_that_is_no_trial_is_named(
    read: Callable[[Path], object], line: str, tmp_path: Path
) -> None:
    path = tmp_path / "some.gz"
    trials_file.write(path, DEVICE, [outcome(ranked(HERE)[0], 10.0, HERE)])
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"\n" + line.encode()))
    with pytest.raises(StoreError, match="some.gz, line 3"):
        read(path)


@pytest.mark.parametrize("read", (trials_file.read, trials_file.read_times, trials_file.device_of))
@pytest.mark.parametrize(("damage", "why"), (
    (lambda _: b"", "line 1"), (lambda _: b"plain text", "gzip"), (lambda packed: packed[:20], "end"),
    (lambda packed: packed[:12] + b"\xff" * 9, "invalid"), (lambda _: gzip.compress(b"\xff"), "utf-8"),
    (lambda packed: gzip.compress(gzip.decompress(packed).replace(b"-trials", b"-t")), "'tilewright-t'"),
    (lambda _: gzip.compress(b"[]"), "line 1"),
))  # fmt: skip
def test_a_file_that_is_no_trials_file_is_refused(
    read: Callable[[Path], object], damage: Callable[[bytes], bytes], why: str, tmp_path: Path
) -> None:
    path = tmp_path / "some.gz"
    trials_file.write(path, DEVICE, [])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StoreError, match=rf"trials file .*some\.gz.*{why}.* want one of model-report --save"):
        read(path)


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=re.escape(f"trials file {tmp_path}: Is a directory")):
        trials_file.write(tmp_path, DEVICE, [])


def test_a_long_line_is_told_in_a_short_one(tmp_path: Path) -> None:
    path = tmp_path / "some.gz"
    trials_file.write(path, DEVICE, [outcome(ranked(HERE)[0], 10.0, HERE)])
    line = json.dumps(["n1c8h9k8r1-f32", "a:b=1", "y" * 2000, 1.0])
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"\n" + line.encode()))
    with pytest.raises(StoreError, match="some.gz, line 3: .*yyy") as told:
        trials_file.read(path)
    assert len(str(told.value)) < 300 + len(str(path))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """A time as far as it was measured, a failure without one, and the same bytes each time."""
    path, (first, second) = tmp_path / "some.gz", ranked(HERE)[:2]
    records = [outcome(first, 10.12345, HERE), outcome(second, None, HERE)]
    assert trials_file.write(path, DEVICE, records) == 2
    device, found = trials_file.read(path)
    told = [(one.problem, one.device, one.family, one.config, one.outcome) for one in found]
    assert device == DEVICE and told == [
        (str(HERE), DEVICE.key, "direct", str(config), kind)
        for config, kind in ((first, "correct"), (second, "compile"))
    ]
    assert [one.cold_us for one in found] == [10.123, math.inf] and found[1].measurement is None
    assert trials_file.read_times(path) == (DEVICE, {(HERE, "direct"): {str(first): 10.123}})
    before = path.read_bytes()
    assert before[4:8] == bytes(4), "no time of day"
    trials_file.write(path, DEVICE, found)
    assert path.read_bytes() == before


def test_the_time_of_a_wrong_answer_is_not_read(tmp_path: Path) -> None:
    path, record = tmp_path / "some.gz", outcome(Config.make("direct", dict(tk=1)), 9.0, HERE)
    trials_file.write(path, DEVICE, [replace(record, outcome=Outcome.WRONG)])
    assert len(trials_file.read(path)[1]) == 1 and trials_file.read_times(path) == (DEVICE, {})


@pytest.mark.parametrize("read", (trials_file.read, trials_file.device_of))
def test_files_from_before_a_device_had_some_fact_are_read(
    read: Callable[[Path], Any], tmp_path: Path
) -> None:
    path = tmp_path / "some.gz"
    trials_file.write(path, DEVICE, [])
    head = json.loads(gzip.decompress(path.read_bytes()))
    for facts, name in ((head["device"], "byte_dots"), (head["device"], "tensor_macs"),
                        (head["device"]["rates"], "source")):  # fmt: skip
        del facts[name]
    path.write_bytes(gzip.compress(json.dumps(head).encode()))
    found = read(path)
    device = found if isinstance(found, Device) else found[0]
    assert device.name == DEVICE.name and (device.byte_dots, device.tensor_macs) == (False, 0)


@pytest.mark.parametrize(("name", "value"), (
    ("units", "132"), ("units", 0), ("lanes", 32.0), ("shared_per_unit", "x"), ("regs_per_thread", None),
    ("clock_ghz", 0), ("arch", 90), ("backend", "metal"), ("byte_dots", 1), ("rates", {"read_gbs": 3000}),
    ("rates", {"empty_us": 3, "read_gbs": 0, "f32_tflops": 60}), ("threads_per_unit", False), ("type", "tpu"),
))  # fmt: skip
@pytest.mark.parametrize("read", (trials_file.read, trials_file.read_times, trials_file.device_of))
def test_a_device_whose_facts_are_none_is_refused(
    read: Callable[[Path], object], name: str, value: object, tmp_path: Path
) -> None:
    path = tmp_path / "some.gz"
    trials_file.write(path, DEVICE, [])
    head = json.loads(gzip.decompress(path.read_bytes()))
    assert trials_file.device_of(path) == DEVICE
    head["device"][name] = value
    path.write_bytes(gzip.compress(json.dumps(head).encode()))
    what = "tpu" if name == "type" else rf"device\.{name}"
    with pytest.raises(StoreError, match=rf"some.gz, line 1: .*{what}.* want one of model-report --save"):
        read(path)
