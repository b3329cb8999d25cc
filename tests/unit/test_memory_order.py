"""What kernels must not be early with: shared memory of a cluster, and what the launch before has written.

A launch may begin while the one before it on the stream ends: ``ACQBULK`` waits for it, ``PREEXIT`` lets the
next one begin before this one ends.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest
from every_family import drawn, taken
from sass import instructions, listing_of
from test_winners_compile import committed, hungriest

import tilewright
from tilewright.device import for_architecture
from tilewright.kernels import FAMILIES, family_of
from tilewright.kernels.blueprint import NO_KERNELS, Blueprint, Launch
from tilewright.kernels.config import Config
from tilewright.problem import Problem
from tilewright.search.ranking import rank

H100 = for_architecture("sm_90")
MMA = "n1c512h14w14k256r3s3p1-f16-nhwc+bias", dict(
    x=0, l1=0, mt=2, nt=4, wm=4, wn=1, sb=1, mb=3, fd=1, chunks=8, stages=3, sc=4, sg=1, combine=0
)  # fmt: skip


def _config(name: str, text: str, **pins: int) -> Config:
    return rank(Problem.parse(text), H100, family_of(name), 1, pins=pins)[0][0]


def _of_cluster(name: str) -> tuple[str, Config]:
    if name == "mma":
        return MMA[0], Config.make("mma", MMA[1])
    text = "n1c256h14w14k256r3s3p1-f32"
    return text, _config("direct", text, sc=4, combine=0)


@pytest.mark.parametrize("name", ["mma", "direct"])
def test_a_block_says_it_has_read_its_cluster_once_the_loads_are_done(name: str, tmp_path: Path) -> None:
    """Who has heard that of all leaves: a load that is still on its way would read what is gone."""
    pytest.importorskip("cuda.bindings.nvrtc")
    text, config = _of_cluster(name)
    lines = instructions(family_of(name).blueprint(Problem.parse(text), H100, config), "sm_90", tmp_path)
    arrivals = [i for i, line in enumerate(lines) if "UCGABAR_ARV" in line]
    assert len(arrivals) == 2  # the sums are there; they are read
    before = lines[arrivals[0] + 1 : arrivals[1]]
    loads = [i for i, line in enumerate(before) if re.match(r"(@\S+ )?LDS?(\.|\b)", line.strip())]
    fences = [i for i, line in enumerate(before) if "MEMBAR.ALL.CTA" in line]
    assert loads and fences and fences[-1] > loads[-1]


@pytest.mark.parametrize(
    ("name", "text", "pins", "kernel"),
    [
        ("direct", "n1c256h14w14k256r3s3p1-f32", dict(combine=2), "sum_shares"),
        ("winograd4", "n1c256h34w34k512r3s3p1-f32-nhwc", {}, "transform_output"),
        ("strassen", "n1c1024h32w32k1024r1s1-f32", {}, "transform_output"),
    ],
)
def test_what_the_launch_before_wrote_is_no_constant(
    name: str, text: str, pins: dict[str, int], kernel: str, tmp_path: Path
) -> None:
    """A kernel that begins before the one before ends must not read its outputs as data that never change."""
    pytest.importorskip("cuda.bindings.nvrtc")
    found = family_of(name).blueprint(Problem.parse(text), H100, _config(name, text, **pins))
    lines = listing_of(kernel, found, "sm_90", tmp_path)
    assert any(line.startswith("LDG") or " LDG" in line for line in lines)
    assert not any("LDG" in line and "CONSTANT" in line for line in lines)


POOLED = [Problem.parse("n1c8h9w8k8r3s3p1-f32+bias+maxpool2")]
MEMORY = re.compile(r"(@\S+ )?(LDG|LD|LDGSTS|STG|ST|ATOMG?|REDG?|UBLKCP|UTMALDG|UTMASTG)\b")  # SASS


def _kernels(blueprint: Blueprint) -> list[Launch]:
    return [launch for launch in blueprint.launches if launch.kernel not in NO_KERNELS]


def _chains() -> list[tuple[str, str, bool]]:
    """Return a winner for each first and last kernel of a family, also of arrays that are not aligned.

    Of a family that has never won, configs at random for each layer that it shows.
    """
    found = dict[tuple[str, str, str], tuple[str, str, bool]]()
    won = hungriest(committed())
    winners = {Config.parse(chosen).family for _, chosen in won}
    others = [
        (str(problem), str(config))
        for kind in FAMILIES
        if kind.name not in winners
        for problem in taken(kind, H100, POOLED)
        for config in islice(drawn(kind, problem, H100), 12)
    ]
    for text, chosen in [*won, *others]:
        config = Config.parse(chosen)
        for aligned in (True, False):
            launches = _kernels(
                family_of(config.family).blueprint(Problem.parse(text), H100, config, aligned)
            )
            key = config.family, launches[0].kernel, launches[-1].kernel
            found.setdefault(key, (text, chosen, aligned))
    return list(found.values())


def _lines(kernel: str, blueprint: Blueprint, folder: Path) -> list[str]:
    for program in blueprint.programs:
        with suppress(StopIteration):
            return [line.strip() for line in listing_of(kernel, program, "sm_90", folder)]
    raise AssertionError(f"no {kernel}")


@pytest.mark.usefixtures("kept_cache")
@pytest.mark.parametrize(("text", "chosen", "aligned"), _chains())
def test_a_plan_waits_for_what_ran_before_it_and_ends_before_what_runs_behind(
    text: str, chosen: str, aligned: bool, tmp_path: Path
) -> None:
    """Its first kernel touches no memory before that; its last lets no blocks take the places of its own."""
    pytest.importorskip("cuda.bindings.nvrtc")
    config = Config.parse(chosen)
    blueprint = family_of(config.family).blueprint(Problem.parse(text), H100, config, aligned)
    kernels = _kernels(blueprint)
    first, last = (_lines(kernels[i].kernel, blueprint, tmp_path) for i in (0, -1))
    early = first[: next(i for i, line in enumerate(first) if "ACQBULK" in line)]
    assert not [line for line in early if MEMORY.match(line)]
    assert not [line for line in last if "PREEXIT" in line]


def test_what_reads_or_writes_memory_by_assembly_stays_behind_the_wait() -> None:
    """Which is assembly itself: of two such statements compilers keep the order if both are volatile."""
    found = [
        (path.name, volatile, text)
        for path in sorted((Path(tilewright.__file__).parent / "kernels").rglob("*"))
        if path.suffix in (".h", ".cu")
        for volatile, text in re.findall(r'\basm( volatile)?\(\s*"([^"]*)', path.read_text("utf-8"))
    ]
    touching = [one for one in found if re.match(r"(ld|st|atom|red|cp|griddepcontrol)\.", one[2])]
    assert len(touching) > 9 and not [one for one in touching if not one[1]]


@pytest.mark.usefixtures("kept_cache")
def test_a_copy_waits_before_the_kernel_behind_it_reads_its_filter(tmp_path: Path) -> None:
    """What was packed right before a call must be there when the second kernel's blocks take places."""
    pytest.importorskip("cuda.bindings.nvrtc")
    text = "n1c128h28w28k128r3s3p1-f16"
    config = _config("mma", text, x=1)
    blueprint = family_of("mma").blueprint(Problem.parse(text), H100, config)
    copy, main = (_lines(one.kernel, blueprint, tmp_path) for one in _kernels(blueprint))
    assert ["ACQBULK" in line for line in copy if "ACQBULK" in line or "PREEXIT" in line][:2] == [True, False]
    loads = [i for i, line in enumerate(main) if MEMORY.match(line)]
    assert loads[0] < next(i for i, line in enumerate(main) if "ACQBULK" in line)
