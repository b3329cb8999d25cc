"""The store: which record is the best, and what is in its key."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from store_samples import DEVICE, GOOD, H100, KERNELS, LAYER, Tiles, best, families, path, record

from tilewright import hints
from tilewright.device import for_architecture
from tilewright.errors import ProblemError, StoreError
from tilewright.hints import likely
from tilewright.plans.provenance import Basis
from tilewright.problem import Problem
from tilewright.problem.shapes import as_problem
from tilewright.record import Measurement, Record, Search, Spent, Standing, Versions
from tilewright.store import Store
from tilewright.store.record_json import from_json, to_json
from tilewright.store.sources import Sources

__all__ = ["families", "path"]  # fixtures
SIZES = LAYER.removesuffix("-f32")
OTHER = for_architecture("sm_80").key


def test_a_record_comes_back_as_it_was(path: Path) -> None:
    box = Store(path)
    rest: dict[str, Any] = {"registers": 64, "workspace_bytes": 1 << 33, "compile_s": 1.5}
    told = [
        record(),
        record(outcome="correctness", check=replace(GOOD, ok=False, worst=float("inf"), reason="corner")),
        record(outcome="timeout", check=None, measurement=None, reason="no answer in 5 s\nin stage 'run'"),
        record(measurement=Measurement(7.5, 0.25, 31, 6.5, 0.04), **rest),
    ]
    for one in told:
        box.add(one)
    assert Store(path).records() == told
    assert box.records(LAYER, H100) == told and box.records(LAYER, OTHER) == []
    assert box.records(Problem.parse(LAYER)) == told


def test_a_store_stays_where_it_was_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.chdir(tmp_path / "first")
    box = Store("mine.sqlite")
    box.add(record())
    monkeypatch.chdir(tmp_path / "second")
    assert box.records() == [record()] and not (tmp_path / "second" / "mine.sqlite").exists()
    assert box.path == tmp_path / "first" / "mine.sqlite" and repr(box) == f"<store {box.path}>"


def test_a_store_in_a_folder_that_is_gone_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(StoreError, match="store mine.sqlite: the current folder is gone"):
        Store("mine.sqlite")


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for given in ("~/mine.sqlite", Path("~/mine.sqlite")):
        assert Store(given).path == tmp_path / "home" / "mine.sqlite"
    assert not (tmp_path / "~").exists()
    with pytest.raises(StoreError, match="store ~nobody at all/x: there is no such home folder"):
        Store("~nobody at all/x")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": "a\0b"}, r"store 'a\\x00b': no path has a null character"),
        ({"path": "a\ud800b"}, r"store 'a\\ud800b': has characters that no path here has"),
        ({"path": 5}, "an int was given; must be the path of a file, or None"),
        ({"timeout_s": "x"}, "timeout_s='x': must be a number of seconds from 0 to 1e\\+06"),
        ({"timeout_s": None}, "timeout_s=None: must be"), ({"timeout_s": -1}, "timeout_s=-1: must be"),
        ({"timeout_s": float("nan")}, "timeout_s=nan: must be"),
        ({"timeout_s": 1e7}, "timeout_s=10000000.0: must be"),
    ],
)  # fmt: skip
def test_what_can_be_no_store_is_told_so(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=said):
        Store(**{"path": tmp_path / "box.sqlite", **given})


def test_what_is_no_record_is_refused(path: Path) -> None:
    box: Any = Store(path)
    for add in (lambda: box.add("x"), lambda: box.add_all([record(), "x"])):
        with pytest.raises(StoreError, match=f"store {path}: a str was given; must be a Record"):
            add()
    assert box.records() == []


def test_best_is_the_fastest_that_is_right(path: Path) -> None:
    box = Store(path)
    assert best(box) is None
    box.add(record("tiles:t=1.u=0", 10.0))
    box.add(record("tiles:t=2.u=0", 5.0))
    box.add(record("tiles:t=4.u=0", 1.0, outcome="correctness", check=replace(GOOD, ok=False)))
    box.add(record("tiles:t=4.u=0", 0.5, check=None))
    assert best(box) == "tiles:t=2.u=0"


def test_determinism_is_part_of_the_key(path: Path) -> None:
    box = Store(path)
    box.add(record("tiles:t=1.u=1", 1.0, deterministic=False))
    assert best(box, deterministic=True) is None
    box.add(record("tiles:t=1.u=0", 2.0))
    assert best(box, deterministic=True) == "tiles:t=1.u=0"
    assert best(box) == "tiles:t=1.u=1"


def test_a_wide_interval_counts_against_a_time(path: Path) -> None:
    box = Store(path)
    box.add(record("tiles:t=1.u=0", measurement=Measurement(10.0, 3.0, 5)))
    box.add(record("tiles:t=2.u=0", measurement=Measurement(11.0, 0.2, 50)))
    assert best(box) == "tiles:t=2.u=0"


def test_a_finalist_goes_before_a_lucky_time_of_the_search(path: Path) -> None:
    box = Store(path)
    box.add(record("tiles:t=1.u=0", 9.0))
    box.add(record("tiles:t=2.u=0", 10.0, context={"compiler": "c1", "stage": "final"}))
    assert best(box) == "tiles:t=2.u=0"


def test_a_winner_gives_way_to_that_of_a_later_comparison_it_had_a_place_in(path: Path) -> None:
    """A machine that was quiet when one won, and busy when another did, must not keep the first."""
    box = Store(path)
    won = {"compiler": "c1", "stage": "final"}
    box.add(record("tiles:t=1.u=0", 5.0, context=won | {"raced": "tiles"}))
    box.add(record("tiles:t=2.u=0", 9.0, context=won | {"raced": "others"}))
    assert best(box) == "tiles:t=1.u=0"  # of a search without its family: their times are all there is
    box.add(record("tiles:t=2.u=0", 9.0, context=won | {"raced": "others tiles"}))
    assert best(box) == "tiles:t=2.u=0"
    box.add(record("tiles:t=4.u=1", 20.0, deterministic=False, context=won | {"raced": "tiles"}))
    assert best(box) == "tiles:t=4.u=1" and best(box, deterministic=True) == "tiles:t=2.u=0"
    box.add(record("tiles:t=1.u=0", 30.0, context=won | {"raced": "tiles"}))
    assert best(box, deterministic=True) == "tiles:t=1.u=0"
    assert best(box) == "tiles:t=4.u=1"  # that search may have been of deterministic ones alone


WON = {"compiler": "c1", "stage": Standing.WINNER.value, "raced": "tiles"}


@pytest.mark.parametrize(
    ("changes", "origin"),
    [
        ({"compiler": "c2"}, "measured"),  # of another source: two compilers that share a store
        ({"stage": Standing.TRIAL.value}, "measured"),
        ({}, "imported"),
    ],
)
def test_only_a_later_winner_of_these_kernels_takes_the_place_of_one(
    path: Path, changes: dict[str, str], origin: str
) -> None:
    box = Store(path)
    box.add(record("tiles:t=1.u=0", 9.0, context=WON))
    box.add(record("tiles:t=2.u=0", 8.0, context=WON | {"stage": Standing.FINALIST.value}))
    box.add(record("tiles:t=4.u=1", 7.0, deterministic=False, context=WON | changes), origin)
    assert best(box) == "tiles:t=1.u=0"
    box.add(record("tiles:t=4.u=1", 7.0, deterministic=False, context=WON))
    assert best(box) == "tiles:t=4.u=1"


def test_what_was_compared_here_goes_before_what_was_found_elsewhere(path: Path) -> None:
    """A trial does not: its time is as rough as that of a winner from elsewhere that was verified here."""
    box = Store(path, shipped=False)
    box.add(record("tiles:t=1.u=0", 5.0), "verified")
    box.add(record("tiles:t=4.u=0", 9.0, context={"compiler": "c1", "stage": "trial"}))
    assert best(box) == "tiles:t=1.u=0"
    box.add(record("tiles:t=2.u=0", 9.0, context={"compiler": "c1", "stage": "final"}))
    box.add(record("tiles:t=4.u=0", 1.0), "imported")
    assert best(box) == "tiles:t=2.u=0"
    assert best(box, sources=None) == "tiles:t=2.u=0", "an import is no answer for reports either"
    with pytest.raises(StoreError, match="origin 'found': must be one of measured, verified, imported"):
        box.add(record(), "found")
    assert len(box.records()) == 4


def test_who_lost_a_comparison_goes_before_rough_times(path: Path) -> None:
    """Of those that may run: here a search of all has found a faster kernel that is not deterministic."""
    box = Store(path)
    won = {"compiler": "c1", "stage": "final", "raced": "tiles"}
    box.add(record("tiles:t=2.u=0", 8.9))
    box.add(record("tiles:t=1.u=0", 9.0, context=won))
    box.add(record("tiles:t=4.u=1", 7.0, deterministic=False, context=won))
    box.add(record("tiles:t=1.u=0", 9.1, context=won | {"stage": "finalist"}))
    assert best(box) == "tiles:t=4.u=1"
    assert best(box, deterministic=True) == "tiles:t=1.u=0"


def test_the_newest_record_of_a_config_holds(path: Path) -> None:
    box = Store(path)
    box.add(record("tiles:t=1.u=0", 1.0))
    box.add(record("tiles:t=2.u=0", 5.0))
    box.add(record("tiles:t=1.u=0", 9.0))
    assert best(box) == "tiles:t=2.u=0"
    box.add(record("tiles:t=2.u=0", outcome="runtime", check=None, measurement=None))
    assert best(box) == "tiles:t=1.u=0"
    assert len(box.records()) == 4


@pytest.mark.parametrize(
    "changes",
    [
        {"device": H100.replace("/132", "/114")},
        {"device": H100.replace("sm_90", "sm_80")},
        {"device": H100.replace("HBM3", "PCIe")},
        {"problem": LAYER + "-nhwc"},
        {"context": {"compiler": "c2"}},
        {"family": "other"},
    ],
)
def test_what_changes_the_answer_is_in_the_key(path: Path, changes: dict[str, Any]) -> None:
    box = Store(path)
    box.add(record(**changes))
    assert best(box) is None


@pytest.mark.parametrize("name", ["driver", "clocks_sm", "power_draw"])
def test_driver_and_clocks_are_recorded_only(path: Path, name: str) -> None:
    box = Store(path)
    box.add(record(context={"compiler": "c1", name: "new"}))
    found = box.best(LAYER, H100, sources=KERNELS)
    assert found is not None and found.versions.to_dict()[name] == "new"


def test_another_source_is_a_hint_only(path: Path) -> None:
    box = Store(path)
    box.add(record("tiles:t=1.u=0", 7.0, context={"compiler": "old"}))
    box.add(record("tiles:t=2.u=0", 6.0, context={"compiler": "old"}))
    assert best(box) is None
    found = likely(box, LAYER, H100, sources=KERNELS)
    assert [h.record.config for h in found] == ["tiles:t=2.u=0", "tiles:t=1.u=0"]
    box.add(record("tiles:t=2.u=0", outcome="correctness", measurement=None))
    assert [h.record.config for h in likely(box, LAYER, H100, sources=KERNELS)] == ["tiles:t=1.u=0"]
    box.add(record("tiles:t=1.u=0", outcome="correctness", measurement=None, context={"compiler": "older"}))
    assert [h.record.config for h in likely(box, LAYER, H100, sources=KERNELS)] == ["tiles:t=1.u=0"]


def test_what_an_earlier_version_stored_is_a_hint_and_it_can_read_ours(path: Path) -> None:
    box = Store(path, shipped=False)
    box.add(replace(record(), source="5f" * 16))  # it hashed whole modules
    assert best(box) is None and box.best(LAYER, H100) == replace(record(), source="5f" * 16)
    (found,) = likely(box, LAYER, H100, sources=KERNELS)
    assert (found.record.config, found.basis) == (record().config, Basis.OLDER)
    assert record().source and "source" not in json.loads(to_json(record())), "a field that it would refuse"
    box.add(record(us=12.0), "verified")
    assert best(box) == record().config
    assert likely(box, LAYER, H100, sources=KERNELS)[0].record.cold_us == 10.0


def test_what_is_imported_was_not_of_these_kernels(path: Path) -> None:
    box = Store(path)
    box.add(record(), "imported")
    assert [one.source for one in box.records()] == [""] and not KERNELS.has(*box.records())
    box.add_all([record(us=20.0), record("tiles:t=2.u=0", problem=LAYER + "-nhwc")])
    assert [one.cold_us for one in box.records(LAYER, H100, measured=True)] == [20.0]
    assert len(box.records(measured=True)) == 2 and len(box.records()) == 3


def test_a_winner_of_two_sources_has_its_better_place(path: Path) -> None:
    box = Store(path)
    for config, us, compiler in (("t=1", 5.0, "old"), ("t=2", 7.0, "old"), ("t=1", 9.0, "older")):
        box.add(record(f"tiles:{config}.u=0", us, context={"compiler": compiler}))
    found = [hint.record for hint in likely(box, LAYER, H100, sources=KERNELS)]
    assert [(h.config, h.measurement and h.measurement.cold_us) for h in found] == [
        ("tiles:t=1.u=0", 5.0), ("tiles:t=2.u=0", 7.0)
    ]  # fmt: skip


def won(problem: str, t: int = 1, us: float = 9.0, **context: str) -> Record:
    """A winner of a search of all families that came to its end."""
    known = {"compiler": "c1", "stage": Standing.WINNER.value, "raced": "tiles", **context}
    return record(f"tiles:t={t}.u=0", us, problem=problem, context=known)


def alike(box: Store, name: str) -> list[str]:
    found = hints.alike(box, Problem.parse(SIZES + name), DEVICE, sources=KERNELS)
    return [f"{one.problem.removeprefix(SIZES)} {one.config[6:]}" for one in found]


def test_layers_alike(path: Path) -> None:
    """The most alike first: with a residual if this has one, of the same kind, activation, bias."""
    box = Store(path)
    others = {"f16+add": "4.u=1", "bf16+bias": "2.u=1", "f16+relu": "1.u=0", "f16+alpha2": "2.u=0"}
    for name, config in (others | {"bf16": "1.u=1"}).items():
        box.add(KERNELS.signed(replace(won(f"{SIZES}-{name}"), config=f"tiles:t={config}")))
    for name in ("f16+maxpool2", "f32+bias", "i8", "f16-nhwc+bias"):
        box.add(won(f"{SIZES}-{name}"))
    box.add(won(SIZES + "-bf16", 4, compiler="old"))
    box.add(won(SIZES.replace("c64", "c640") + "-f16"))
    box.add(replace(won(f"{SIZES}-f16"), problem=f"{SIZES}-f16+unheard"))  # of another version
    assert alike(box, "-f16+bias") == [
        "-f16+alpha2 t=2.u=0", "-f16+relu t=1.u=0", "-bf16+bias t=2.u=1", "-bf16 t=1.u=1", "-bf16 t=4.u=0",
        "-f16+add t=4.u=1",
    ]  # fmt: skip
    assert alike(box, "-i8+requant") == ["-i8 t=1.u=0"] and alike(box, "-f32") == ["-f32+bias t=1.u=0"]
    assert alike(box, "-tf32") == alike(box, "-f16+maxpool3") == alike(box, "-f16-nhwc2nchw") == []


def test_images_of_a_pixel_lie_alike_in_both_layouts(path: Path) -> None:
    box = Store(path)
    box.add(won("n1c64h1w1k128r1s1-f16-nhwc"))
    for name, found in (("-f16+bias", 1), ("-bf16-nhwc2nchw", 1), ("-f32", 0)):
        asked = Problem.parse("n1c64h1w1k128r1s1" + name)
        assert len([*hints.alike(box, asked, DEVICE, sources=KERNELS)]) == found
    box.add(won("n1c64h3w3k128r3s3-f16-nhwc"))
    asked = Problem.parse("n1c64h3w3k128r3s3-f16")
    assert [*hints.alike(box, asked, DEVICE, sources=KERNELS)] == [], "an output of one pixel is not enough"


def test_of_layers_alike_only_who_was_searched_well(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box, name = Store(path), SIZES + "-f32"
    box.add(record(problem=name))  # a trial
    box.add(won(name, 2, raced=""))  # of other families alone
    box.add(won(name, 4, cut_s="2", cut_trials="7"))
    assert alike(box, "-f32+relu") == []
    box.add(won(name, 4, cut_s="2", cut_trials="8"))
    assert alike(box, "-f32+relu") == ["-f32 t=4.u=0"]
    box.add(won(name + "+bias", 4))
    assert alike(box, "-f32+relu") == ["-f32 t=4.u=0"], "each config once"
    box.add(won(name + "+silu", 2, raced="others"))
    assert alike(box, "-f32+silu") == ["-f32 t=4.u=0"]
    relu, h200 = Problem.parse(name + "+relu"), replace(DEVICE, name="NVIDIA H200")
    none = Sources((), DEVICE, "c1")
    assert len([*hints.alike(box, relu, DEVICE, sources=none)]) == 2, "no family is wanted that did not race"
    assert len([*hints.alike(box, relu, DEVICE)]) == 1
    with monkeypatch.context() as patch:
        patch.setattr(Tiles, "races", False)
        assert len([*hints.alike(box, relu, DEVICE)]) == 2, "nor one that never races"
    assert [one.problem for one in hints.alike(box, relu, h200)] == [name], "of a device with the same chip"
    box.add(record("tiles:t=4.u=0", problem=name + "+relu", outcome="correctness", measurement=None))
    assert alike(box, "-f32+relu") == [], "what is wrong here"
    assert alike(box, "-f32+relu+maxpool2") == [] and alike(box, "-f32+silu") == ["-f32 t=4.u=0"]
    box.add(record("tiles:t=1.u=0", problem=name + "+bias+silu"), "imported")
    assert alike(box, "-f32+silu") == ["-f32+bias+silu t=1.u=0", "-f32 t=4.u=0"], "shared: searched well"


def test_clear_and_info(path: Path) -> None:
    box = Store(path, shipped=False)
    box.add_all([record(), record(outcome="compile", measurement=None), record(problem=LAYER + "-nhwc")])
    facts = box.info()
    assert (facts.records, facts.correct, facts.problems, facts.devices) == (3, 2, 2, (H100,))
    assert facts.path == str(path) and facts.nbytes > 0 and facts.set_aside == ()
    assert (facts.shipped, facts.imported) == (0, 0) and Store(path).info().shipped > 0
    assert box.clear(LAYER) == 2 and box.clear(device_key=OTHER) == 0 and box.clear() == 1
    assert box.info().records == 0


@pytest.mark.parametrize("given", ["n1c64h56k128r3p1", "R12", Problem.parse("n1c8h6k16r1")])
def test_a_layer_is_found_by_any_of_its_names(path: Path, given: Problem | str) -> None:
    name, box = str(as_problem(given)), Store(path, shipped=False)
    box.add_all([won(name), won("n1c3h224w224k64r7s7p3u2-f32")])
    assert [found.problem for found in box.records(given)] == [name]
    best = box.best(given, H100)
    assert best is not None and best.problem == name
    assert [one["problem"] for one in json.loads(box.export_json(given))["records"]] == [name]
    assert box.clear(given) == 1 and len(box.records()) == 1


def test_a_mistake_in_a_layer_is_no_empty_answer(path: Path) -> None:
    for ask in (Store(path).records, Store(path).clear, Store(path).export_json):
        with pytest.raises(ProblemError, match="missing k, r"):
            ask("n1c8h6")
    with pytest.raises(ProblemError, match="missing k, r"):
        Store(path).best("n1c8h6", H100)


def test_a_device_or_its_name_in_place_of_its_key_is_no_empty_answer(path: Path) -> None:
    box = Store(path)
    for ask in (box.records, box.clear, box.best):
        with pytest.raises(StoreError, match="device_key: a Device was given; must be the key of a Device"):
            ask(LAYER, DEVICE)  # type: ignore[operator]
        for name in ("cpu", "cuda:0", "H100", DEVICE.name, ""):
            with pytest.raises(StoreError, match=f"device_key '{name}': must be the key of a Device; Store"):
                ask(LAYER, name)  # type: ignore[operator]


def test_how_far_a_record_came_is_kept_as_it_always_was(path: Path) -> None:
    """A store of an earlier version says the same to this one, and the other way round."""
    trial = record(standing=Standing.TRIAL)
    winner = record("tiles:t=2.u=0", 20.0, standing=Standing.WINNER, search=Search(("tiles", "slabs")))
    cut = replace(winner, search=Search(("tiles", "slabs"), Spent(20.0, 45)), shared_worst=0.1)
    finalist = replace(trial, standing=Standing.FINALIST, versions=Versions("c1", "5", {"clocks_sm": "1980"}))
    for one, context in (
        (trial, '"context":{"compiler":"c1","stage":"trial"}'),
        (finalist, '"context":{"clocks_sm":"1980","compiler":"c1","driver":"5","stage":"finalist"}'),
        (winner, '"context":{"compiler":"c1","raced":"tiles slabs","stage":"final"}'),
        (cut, '"context":{"compiler":"c1","cut_s":"20","cut_trials":"45","raced":"tiles slabs",'
              '"stage":"final","worst":"0.1"}'),
    ):  # fmt: skip
        assert from_json(to_json(one)) == replace(one, source=""), "what code signed it is kept, too"
        assert context in to_json(replace(one, versions=replace(one.versions, code="")))
    assert [r.won for r in (record(), trial, finalist, winner)] == [False, False, False, True]
    box = Store(path)
    box.add_all([winner, trial])
    assert best(box) == "tiles:t=2.u=0", "re-measured, though slower"


def test_layers_of_the_same_sizes_are_those_alone(path: Path) -> None:
    box = Store(path, shipped=False)
    others = [f"{SIZES}u2-f32", f"{SIZES}g2-f32", LAYER.replace("p1", "p2"), "n1c1h1w1k1r1s1-f32"]
    alike = [LAYER, f"{SIZES}-f16-nhwc", f"{SIZES}-i8+bias"]
    for problem in alike + others:
        box.add(record(problem=problem))
    assert box.same_sizes(LAYER) == {(problem, H100) for problem in alike}


def test_of_another_device_with_the_chip_the_best_few_are_hints(path: Path) -> None:
    """It may have hundreds of records; of this device all are."""
    kin = replace(DEVICE, name="NVIDIA H200").key
    configs = [f"tiles:t={t}.u={u}" for t in (1, 2, 4) for u in (0, 1)]
    box = Store(path, shipped=False)
    for place, config in enumerate(configs):
        box.add(record(config, us=20.0 - place, device=kin, deterministic=config.endswith("u=0")))
    assert [hint.record.config for hint in likely(box, LAYER, H100)] == configs[:-4:-1]
