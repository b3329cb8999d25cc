"""What each family shows of what it takes (``Family.examples``), and what is asked of every family."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import islice

import pytest

from tilewright.device import Device, for_architecture
from tilewright.errors import CompileError
from tilewright.kernels import FAMILIES
from tilewright.kernels.family import Config, Family
from tilewright.kernels.tile import ATOMIC
from tilewright.kernels.untuned import pack
from tilewright.problem import Problem
from tilewright.search import model
from tilewright.search.ranking import rank
from tilewright.search.space import Space

CASES = [(one.name, text) for one in FAMILIES for text in one.examples]
TRIED = 12  # configs: one that spills is data, but all of them are not
NAMES = {"x", "w", "bias", "z", "y", "scale"}  # that a launch may name beside workspace


def examples(one: Family) -> list[Problem]:
    """The layers that a family shows, whatever device they are for."""
    return [Problem.parse(text) for name, text in CASES if name == one.name]


def taken(one: Family, device: Device, more: Sequence[Problem] = ()) -> list[Problem]:
    """Those that it takes on the device, its own first and then of ``more``."""
    return [problem for problem in (*examples(one), *more) if one.refuses(problem, device) is None]


def drawn(kind: Family, problem: Problem, device: Device) -> Iterator[Config]:
    """Configs at random; of a family that nobody tunes the one that it has."""
    if not kind.tunable:
        yield Config.make(kind.name, {p.name: p.values[0] for p in kind.params(problem, device)})
        return
    space, rng = Space(kind, problem, device), random.Random(str(problem))
    while True:
        yield space.sample(rng)


def holds_together(kind: Family, problem: Problem, device: Device) -> None:
    """Ask of a few configs what a family promises to those who read it (``kernels/family.py``)."""
    for param in kind.params(problem, device):
        assert len(param.names) in (0, len(param.values)), f"{param.name}: a name for each value"
    for config in islice(drawn(kind, problem, device), 5):
        kind.check(problem, device, config)
        assert Config.parse(str(config)) == config
        here, off = (kind.blueprint(problem, device, config, aligned) for aligned in (True, False))
        filters = [(one.packed_bytes, one.pack, one.packer) for one in (here, off)]
        assert filters[0] == filters[1], "a filter packed once serves aligned tensors and others"
        assert kind.chain(problem, device, config) >= 1
        assert config.values.get("combine") != ATOMIC or not kind.deterministic(config)
        if kind.tunable:
            assert 0 < model.estimate(kind, problem, device, config).total_us < math.inf
        for one in (here, off):
            known = NAMES | {buffer.name for buffer in one.workspace}
            assert {arg for launch in one.launches for arg in launch.args} <= known
            most = max(launch.shared_bytes for launch in one.launches)
            assert most <= device.shared_per_block, "no rule is asked again for tensors that are not aligned"


def compiles_unspilt(kind: Family, problem: Problem, arch: str) -> None:
    """Compile one config of those drawn for a GPU, for tensors that are aligned and others."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    spilt, device = list[Config](), for_architecture(arch)
    for config in islice(drawn(kind, problem, device), TRIED):
        both = [kind.blueprint(problem, device, config, aligned) for aligned in (True, False)]
        try:
            built = [compile_cuda(program, arch) for program in {p for one in both for p in one.programs}]
        except CompileError as error:
            assert "spilled" in str(error), config
            spilt.append(config)
            continue
        assert all(used.local_bytes == 0 for one in built for used in one.resources.values()), config
        return
    pytest.fail(f"all of {len(spilt)} configs spilt: say in a rule what does not fit")


def best_compile(kind: Family, problem: Problem, arch: str, count: int) -> None:
    """Compile the configs that the model likes best."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda  # which raises where a thread spills

    device = for_architecture(arch)
    configs = [config for config, _ in rank(problem, device, kind, count)]
    assert len(configs) == count
    for config in configs:
        assert compile_cuda(kind.blueprint(problem, device, config), arch).registers > 0


def _alike(kind: Family, problem: Problem, likeness: Callable[[Config], Hashable]) -> dict[Hashable, Config]:
    configs = islice(drawn(kind, problem, for_architecture("sm_90")), 60)
    return {likeness(config): config for config in configs}


def alike_compile(
    kind: Family, texts: Sequence[str], text: str, likeness: Callable[[Config], Hashable], least: int
) -> None:
    """Compile configs of a layer, of those drawn for sm_90a: what spills or is serialised is an error.

    And the packers of their filters. One of each likeness that no layer before it of ``texts`` has, in the
    same numbers, or one at all. ``least``: so many likenesses there are.
    """
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    problem, device = Problem.parse(text), for_architecture("sm_90")
    chosen = _alike(kind, problem, likeness)
    assert len(chosen) >= least
    before = [Problem.parse(other) for other in texts[: texts.index(text)]]
    shown = {
        one for other in before if other.precision == problem.precision
        for one in _alike(kind, other, likeness)
    }  # fmt: skip
    new = [config for one, config in chosen.items() if one not in shown]
    for number, config in enumerate(new or [*chosen.values()][:1]):
        found = kind.blueprint(problem, device, config, aligned=number % 3 > 0)
        for program in (*found.programs, *pack(problem, device, found).programs):
            assert 0 < compile_cuda(program, device.arch).registers <= 255
