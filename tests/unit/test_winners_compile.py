"""Configs that win on a GPU compile, with no GPU here, and spill nothing.

Of those that are alike (a family, a kind of numbers, what chooses among the lines of its kernel: ``choices``)
the one that asks for the most registers, and of these as many as show every choice in each kind of numbers,
and every two choices that meet in any; with ALL_WINNERS=1 in the environment every one, in a few minutes.
Each is compiled for the architecture where it won, and every other one for one of the others that its rules
allow: these take turns among the winners of a family in a dtype. Where it takes every register of a thread at
home, the compiler may need more elsewhere: then it is refused by name, and a search there goes on without it.

Winners are those of benchmarks/h100 and of the package's data/tuned. As long as neither is there, the
model's first choice for each layer of the suites stands for them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from math import prod
from pathlib import Path

import pytest
from pairs import fewest_of, pairs

import tilewright
from tilewright.device import ARCHITECTURES, for_architecture
from tilewright.errors import CompileError, ConfigError
from tilewright.kernels import family_of
from tilewright.kernels.family import Config
from tilewright.kernels.limits import registers_at_most
from tilewright.problem import Problem, shapes
from tilewright.search.guesses import GUESSES
from tilewright.search.ranking import rank_all

pytest.importorskip("cuda.bindings.nvrtc")

from tilewright.runtime.nvrtc import compile_cuda  # noqa: E402

PACKAGE = Path(tilewright.__file__).parent
HOME = "sm_90"  # where the winners won
SHARES = ("sb", "sc", "sg", "sw", "cm")  # parameters that are 1 where nothing is shared out
WIDTHS = ("cv", "fd")  # and where numbers are read one by one, buffers are single


def committed() -> list[tuple[str, str]]:
    """Return problem and config of every winner that is in the tree, each once."""
    found = []
    for path in sorted(PACKAGE.parent.glob("benchmarks/h100/*.json")):
        rows = json.loads(path.read_text(encoding="utf-8")).get("rows", [])
        found += [(row["problem"], row["ours"]["config"]) for row in rows if row["ours"].get("config")]
    for path in sorted(PACKAGE.glob("data/tuned/*.json")):
        for row in json.loads(path.read_text(encoding="utf-8"))["records"]:
            if row["device"].startswith("cuda/"):
                found.append((row["problem"], str(Config.make(row["family"], row["config"]))))
    return list(dict.fromkeys(found))


def imagined() -> list[tuple[str, str]]:
    """Return every layer of the suites in both layouts; the model has yet to choose."""
    layers = (
        layer
        for layout in ("nchw", "nhwc")
        for suite in ("resnet", "yolo9000")
        for layer in shapes.load([suite], layout=layout)
    )
    return [(str(layer.problem), "") for layer in layers]

pytestmark = pytest.mark.usefixtures("kept_cache")


def choices(problem: Problem, config: Config) -> list[Hashable]:
    """What chooses among the lines of a kernel: choices by name, what is shared out, layouts, a pool."""
    params = family_of(config.family).params(problem, for_architecture(HOME))
    found = [(one.name, config[one.name]) for one in params if one.names]
    found += [(name, config.values.get(name, 1) > 1) for name in SHARES + WIDTHS]
    layer = [("x", problem.layout_in), ("y", problem.layout_out), ("pool", problem.epilogue.pool is not None)]
    return [(config.family, problem.precision, *one) for one in (*layer, *found)]


def registers(problem: Problem, config: Config) -> int:
    """How many the spec says a thread needs."""
    work = family_of(config.family).work(problem, for_architecture(HOME), config)
    return int(getattr(work, "registers", 0))


def hungriest(winners: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Of winners that are alike the one that asks for the most registers, if it shows a pair; or all."""
    kept: dict[Hashable, tuple[int, str, str]] = {}
    for text, chosen in winners:
        problem, config = Problem.parse(text), Config.parse(chosen)
        one, kind = (registers(problem, config), text, chosen), tuple(choices(problem, config))
        kept[kind] = max(one, kept.get(kind, one))
    hungry = {one[1:]: shown(kind) for kind, one in sorted(kept.items(), key=lambda item: item[1])}
    return winners if os.environ.get("ALL_WINNERS") else fewest_of(hungry)


def shown(kind: Sequence[Hashable]) -> frozenset[Hashable]:
    """What a winner shows: each of its choices in its numbers, and every two of them in any."""
    return pairs((one[0], *one[2:]) for one in kind) | frozenset(kind)  # type: ignore[index]


def turns(winners: list[tuple[str, str]]) -> list[tuple[str, str, int]]:
    """Count the winners of each family in each dtype."""
    seen: dict[tuple[str, str], Iterator[int]] = {}
    found = []
    for text, chosen in winners:
        kind = chosen.partition(":")[0], Problem.parse(text).precision
        found.append((text, chosen, next(seen.setdefault(kind, count()))))
    return found


def a_first_choice_compiles(problem: Problem, name: str, turn: int, guesses: Sequence[int]) -> None:
    """Assert that one of the model's first choices does, as dispatch takes them."""
    ranked = rank_all(problem, for_architecture(HOME), [family_of(name)], len(GUESSES))
    for place in guesses:
        try:
            compiles(problem, ranked[place][0], turn)
            return
        except CompileError as error:
            last = error
    raise last


@pytest.mark.parametrize(("text", "chosen", "turn"), turns(hungriest(committed()) or imagined()))
def test_a_winner_compiles_here_and_there_or_is_refused_by_name(text: str, chosen: str, turn: int) -> None:
    problem = Problem.parse(text)
    if chosen:
        compiles(problem, Config.parse(chosen), turn)
        return
    a_first_choice_compiles(problem, "direct", turn, GUESSES)


def test_what_is_compiled_stands_for_all() -> None:
    winners, kept = committed(), hungriest(committed())
    assert set(kept) <= set(winners)
    for names in (SHARES, WIDTHS):
        assert all(any(name in Config.parse(chosen).values for _, chosen in winners) for name in names)

    def of(some: list[tuple[str, str]]) -> set[Hashable]:
        found = [shown(choices(Problem.parse(text), Config.parse(chosen))) for text, chosen in some]
        return {one for each in found for one in each}

    assert of(kept) == of(winners)


def test_an_array_that_is_not_aligned_may_spill() -> None:
    """The variant for such arrays was never tuned: a winner's may spill, and is compiled all the same."""
    config = "gemm:combine=0.cs=16.cv=1.fd=2.lk=4.mb=3.sb=1.sg=1.stages=4.stream=0.tk=2.tp=6.v=2.wk=4.wp=1"
    problem, device = Problem.parse("n32c512h34w34k256r1s1-f32"), for_architecture(HOME)
    recipe = family_of("gemm").blueprint(problem, device, Config.parse(config), aligned=False)
    built = compile_cuda(recipe, HOME, spills=True)
    if any(used.local_bytes for used in built.resources.values()):  # as the compiler has it
        with pytest.raises(CompileError, match="spilled"):
            compile_cuda(recipe, HOME)


def test_winners_find_room_in_shared_memory_for_arrays_that_are_not_aligned() -> None:
    """Nothing asks the rules again before that variant is launched: what they allow must fit both ways."""
    fitted = set()
    for text, chosen in committed():
        problem, config = Problem.parse(text), Config.parse(chosen)
        kind = family_of(config.family)
        for arch in ARCHITECTURES:
            device = for_architecture(arch)
            with suppress(ConfigError):
                kind.check(problem, device, config)
                recipe = kind.blueprint(problem, device, config, aligned=False)
                for launch in recipe.launches:
                    assert launch.shared_bytes <= device.shared_per_block, f"{text}, {config} for {arch}"
                fitted.add((text, chosen))
    assert len(fitted) == len(committed())


def compiles(problem: Problem, config: Config, turn: int) -> None:
    """Compile for its home and the next architecture, by its turn, whose limits the config keeps."""
    kind, home = family_of(config.family), for_architecture(HOME)
    kind.check(problem, home, config)
    of_device = {rule.name for rule in kind.rules(home) if "device" in rule.needs}
    others = [arch for arch in ARCHITECTURES if arch != HOME]
    first = turn // 2 % len(others)
    taken = [HOME]
    for arch in (*others[first:], *others[:first]):
        device = for_architecture(arch)
        if kind.refuses(problem, device):  # made for the instructions of its home
            continue
        try:
            kind.check(problem, device, config)
        except ConfigError as error:
            rule = re.search(r"breaks rule '(\w+)': \w+", str(error))
            no_cluster = device.max_cluster == 1 and re.search(r": sc=\d+ must be 1$", str(error))
            assert no_cluster or (rule and rule[1] in of_device), error
            continue
        taken.append(arch)
    full = False  # whether the build for its home leaves a thread, in steps of 8, no register
    for arch in taken[: 1 if turn % 2 else 2]:
        device = for_architecture(arch)
        blueprint = kind.blueprint(problem, device, config)
        try:
            built = compile_cuda(blueprint, arch)  # refuses what spills
        except CompileError as error:
            assert full, error
            assert "spilled" in str(error), error
            return
        for name, used in built.resources.items():
            assert used.local_bytes == 0 < used.registers <= device.regs_per_thread, f"{name} for {arch}"
        blocks = config.values.get("mb", 1)
        most = {  # of kernels that a unit can hold so many blocks of
            launch.kernel: registers_at_most(prod(launch.block), blocks, device.regs_per_unit)
            for launch in blueprint.launches
            if device.lanes <= prod(launch.block) * blocks <= device.threads_per_unit
        }
        full = any(used.registers > most[name] - 8 for name, used in built.resources.items() if name in most)
