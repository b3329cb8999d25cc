"""The warps of the pointwise kernel never wait for ever, and their sums are right.

However early or late copies come and products end. Its own source runs on the host: ``pointwise_host.h``
stands in for barriers, copies and products.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
from async_host import host_source, library, run

__all__ = ["library"]  # a fixture

# Copies at once, after a while or last; products the same; who arrives lingers or not: each of these once.
SEEDS = 18
BASE = dict(bn=32, teams=1, turns=0, chunks=4, mb=1, sets=2, keep=0, stages=2)

CASES: dict[str, tuple[str, dict[str, int]]] = {
    "steps": ("n2c120h7w8k40r1s1-f16+bias+add0.5+relu", dict(stages=3)),
    "one set": ("n2c97h7w8k40r1s1-bf16", dict(sets=1)),
    "four sets": ("n1c130h8w9k33r1s1-f16+bias", dict(sets=4, chunks=8, bn=64)),
    "two teams": ("n5c70h3w8k33r1s1-bf16+add", dict(teams=2, sets=1)),
    "three parts": ("n200c40h4w8k96r1s1-f16+bias", dict(bn=96)),  # and a second tile
    "a filter stays": ("n140c97h4w8k32r1s1-f16+bias", dict(keep=1, stages=3)),
    "a filter stays for teams": ("n300c70h4w8k32r1s1-bf16", dict(teams=2, keep=1)),
    "turns": ("n300c97h4w8k32r1s1-f16+bias", dict(teams=2, turns=1, stages=3)),
    "turns of three, few buffers": ("n400c130h4w8k32r1s1-bf16", dict(teams=3, turns=1)),
    "turns of three, many buffers": ("n400c40h4w8k32r1s1-f16+add", dict(teams=3, turns=1, stages=6)),
    "turns, a filter stays": (
        "n300c97h4w8k32r1s1-f16+bias", dict(teams=2, turns=1, keep=1, sets=1, stages=4)),
    "turns, one step": ("n300c20h4w8k32r1s1-bf16", dict(teams=2, turns=1, keep=1)),
    "registers handed on": ("n3c40h4w8k161r1s1-f16", dict(bn=192, teams=2)),
    "two strands": ("n2c78h6w10k40r1s1-f16+bias+add0.5+relu", dict(stages=3)),
    "eight strands": ("n5c72h3w11k33r1s1-bf16+bias", dict(teams=2, chunks=8)),
    "strands, two spans": ("n2c40h7w13k33r1s1-f16+add", dict(chunks=8)),
    "four strands of tf32": ("n2c44h5w7k33r1s1-tf32+bias", dict(teams=2, chunks=8)),
    "tf32": ("n3c33h5w8k40r1s1-tf32+bias+add0.5+relu", dict(stages=3)),
    "tf32, turns": ("n300c33h4w8k32r1s1-tf32", dict(teams=2, turns=1, keep=1, stages=3)),
    "tf32, one set": ("n2c70h6w6k33r1s1-tf32+add", dict(teams=2, chunks=8, sets=1)),
}  # fmt: skip

# What a slip of the pen would be: a line of the kernel, what it becomes, where that is seen, and as what.
SLIPS = (
    # who sends
    ("bar_wait(EMPTY(at.slot), at.parity);", "", "steps", ", not |written|arrivals|all wait"),
    ("Slot at = {0, 1};", "Slot at = {0, 0};", "steps", "all wait"),
    ("bar_expect(full, X_BYTES);", "bar_expect(full, SPAN_BYTES);", "a filter stays for teams",
     ", not |all wait"),
    ("bar_expect(bar, W_BYTES + more);", "bar_expect(bar, W_BYTES);", "steps", ", not |all wait"),
    ("i < SPANS; i++) {", "i < OF_TEAM; i++) {", "two teams", "all wait"),
    ("w, step, step, STAY(step), 0)", "w, step, at.slot, STAY(step), 0)", "a filter stays", ", not |written"),
    ("step * OF_STRAND, 0,", "0, 0,", "steps", ", not "),
    ("strand * PLANE_IN - AHEAD_OF(strand) / (int)sizeof(in_t)", "strand * PLANE_IN", "two strands",
     "a box that is none"),
    ("strand < STRANDS;", "strand < 1;", "two strands", "all wait"),
    ("at->slot -= STAGES, at->parity ^= 1;", "at->slot -= STAGES;", "steps", ", not |all wait|written"),
    # who multiplies
    ("bar_wait(FULL(at.slot), at.parity);", ";", "steps", ", not |arrivals|written"),
    ("if (KEEPS) bar_wait(STAY(step), 0);", "", "turns, a filter stays", ", not |written"),
    ("if (!KEEPS && i == SETS - 1 && done >= 0) release(bars, done);", "if (!KEEPS) release(bars, at.slot);",
     "one set", "arrivals|written|, not "),
    ("if (KEEPS) release(bars, at.slot);", "", "a filter stays", "all wait"),
    ("if (!KEEPS) release(bars, done);", "", "three parts", "all wait"),
    ("WG_WAIT(SETS - 1);", "WG_WAIT(SETS);", "one set", ", not |written"),
    ("WG_WAIT(0);", "", "steps", ", not "),
    ("wg_begin();", "", "one set", "behind the fence"),
    ("for (int j = 0; j < 4; j++) word", "for (int j = 0; j < 3; j++) word", "steps",
     "keeps before the fence"),
    ("h * SPAN_BYTES", "h * X_BYTES", "tf32, turns", ", not "),
    # by turns
    ("TURNS ? 4 : 4 * TEAMS", "4 * TEAMS", "turns", "all wait"),
    ("if (TURNS && id != GROUP(0)) TURN_WAIT(team);", "", "turns of three, few buffers",
     ", not |all wait|arrivals|written"),
    ("if (TURNS) TURN_OVER(team);", "", "turns", "all wait"),
    ("if (TURNS) go_on(&at, team * STEPS);", "", "turns", ", not |all wait|arrivals"),
    ("if (TURNS) go_on(&at, (TEAMS - 1) * STEPS);", "", "turns", ", not |all wait|arrivals"),
    ("at->parity ^= steps / STAGES % 2;", "at->parity ^= 0;", "turns of three, few buffers",
     ", not |all wait|arrivals|written"),
    # who stores
    ("TEAM_SYNC(team);\n", "\n", "steps", ", not "),
    ("part < PARTS; part++, turn++)", "part < PARTS; part++, turn = part)", "three parts", ", not "),
    ("origin.image < N && pixel < HW", "pixel < HW", "two teams", ", not |fault|^$"),
    ("apart ? 0x7632", "apart < 0 ? 0x7632", "eight strands", ", not "),
    ("out.at % SPAN_PIXELS", "out.at", "tf32", ", not "),
)  # fmt: skip

# Instructions, and what has their place on the host.
INSTRUCTIONS = (
    (r'asm volatile\("" : "\+l"\(pointer\)\)', ""),
    (r'asm volatile\("bar\.sync %0, 128;" ::"r"\((1 \+ \(team\))\) : "memory"\)', r"meet(\1, 128, true)"),
    (r'asm volatile\("bar\.sync %0, 256;" ::"r"\((.*?)\) : "memory"\)', r"meet(\1, 256, true)"),
    (r'asm volatile\("bar\.arrive %0, 256;" ::"r"\((.*?)\) : "memory"\)', r"meet(\1, 256, false)"),
    (r'asm volatile\("" : "\+r"\((a\[set\]\[j\])\) :: "memory"\)', r"word_written(\1)"),
)
host = partial(host_source, "pointwise", BASE, INSTRUCTIONS)


@pytest.mark.parametrize("name", CASES)
def test_no_one_waits_for_ever_and_sums_are_right(name: str, library: Path, tmp_path: Path) -> None:
    assert run(host(*CASES[name]), SEEDS, library, tmp_path) == "done"


@pytest.mark.parametrize("name", ["steps", "tf32"])
def test_the_same_where_y_begins_anywhere(name: str, library: Path, tmp_path: Path) -> None:
    assert run(host(*CASES[name], aligned=False), SEEDS, library, tmp_path) == "done"


@pytest.mark.parametrize(("line", "becomes", "name", "says"), SLIPS)
def test_a_slip_is_seen(
    line: str, becomes: str, name: str, says: str, library: Path, tmp_path: Path
) -> None:
    source = host(*CASES[name], slip=(line, becomes))
    assert re.search(says, run(source, 10 * SEEDS, library, tmp_path))  # it may be seen seldom
