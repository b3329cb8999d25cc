"""The warps and blocks of the planar kernel never wait for ever, and their sums are right.

However early or late copies come and products end. Its own source runs on the host: ``planar_host.h`` stands
in for barriers, copies and products.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from async_host import MEET, host_source, library, run

from tilewright.device import for_architecture
from tilewright.kernels import family_of
from tilewright.kernels.config import Config
from tilewright.kernels.source import kernel_files
from tilewright.kernels.untuned import pack
from tilewright.problem import Problem

__all__ = ["library"]  # a fixture

PLANAR = family_of("planar")
H100 = for_architecture("sm_90")
# Copies at once, after a while or last; products the same; who arrives lingers or not: each of these once.
SEEDS = 18
PACKED = ("PACK_K", "PACK_PLANE", "PACK_PRODUCTS", "CG", "KG")  # what the packer is told
BASE = dict(ni=1, bn=32, mb=1, stages=2, sender=1, sets=2, sc=1, turns=1)
# 7 steps; the last one, and the last tiles of images and of channels, are not whole.
LAYER = "n3c392h7w7k40r1s1-bf16+bias+add0.5+relu"

CASES: dict[str, tuple[str, dict[str, int]]] = {
    "a warp sends": (LAYER, dict(ni=2, stages=3)),
    "a thread sends": (LAYER, dict(ni=2, stages=3, sender=0)),
    "one set of fragments": (LAYER, dict(ni=2, sets=1)),
    "one set, and a thread sends": (LAYER, dict(ni=2, bn=64, sets=1, sender=0)),
    "a buffer for each step": ("n4c193h4w12k48r1s1-bf16", dict(ni=3, mb=2, stages=4, sender=0)),
    "five teams": ("n7c136h7w7k32r1s1-bf16", dict(ni=6)),
    "shares meet": ("n2c456h7w7k40r1s1-bf16+bias", dict(sc=2, stages=3)),
    "four shares, and a thread sends": ("n3c520h3w5k40r1s1-bf16+add", dict(ni=2, sets=1, sc=4, sender=0)),
    "several tiles": ("n67c136h3w4k64r1s1-bf16+bias", dict(stages=3, turns=2)),
    "several tiles, and a thread sends": ("n89c200h3w3k104r1s1-bf16", dict(stages=3, turns=3, sender=0)),
    "tf32": ("n5c100h5w5k40r1s1-tf32+bias+add0.5+relu", dict(ni=2, stages=3)),
    "tf32, a thread sends": ("n3c68h6w6k33r1s1-tf32", dict(ni=3, sets=1, sender=0)),
    "tf32, shares meet": ("n2c228h7w7k40r1s1-tf32+bias", dict(sc=2, stages=3)),
    "several tiles, one set": ("n67c136h3w4k64r1s1-bf16", dict(stages=2, turns=2, sets=1, sender=0)),
}

# What a slip of the pen would be: a line of the kernel, what it becomes, where that is seen, and as what.
SLIPS = (
    ("bar_wait(FULL(slot), turn & 1);", "", "a warp sends", "written"),
    ("turn & 1", "0", "a warp sends", "written"),
    ("if (i >= STAGES) bar_wait", "if (i > STAGES) bar_wait", "a thread sends", "written"),
    ("i / STAGES - 1 & 1", "0", "a thread sends", "written|all wait"),
    ("bar_init(EMPTY(i), 4 * TEAMS)", "bar_init(EMPTY(i), TEAMS)", "one set of fragments", "written"),
    ("if (THREAD(0) % 32 == 0) bar_arrive(EMPTY(i % STAGES));", "", "one set of fragments", "all wait"),
    ("if (i >= SETS - 1) release(f, f->from + i - (SETS - 1));", "release(f, f->from + i);", "a warp sends",
     "written"),  # too early
    ("i + STAGES)", "i + STAGES + 1)", "a thread sends", "all wait"),
    ("W_BYTES + b.images * bytes", "W_BYTES + IMAGES * bytes", "one set of fragments", "all wait"),
    ("bar_init_done();", "", "one set, and a thread sends", "not seen by copies"),
    ("BARRIER();\n    if (SENDER &&", "if (SENDER &&", "a warp sends", "no barrier"),
    ("wg_begin();", "", "one set of fragments", "behind the fence"),
    ("for (int j = 0; j < 16; j++)", "for (int j = 0; j < 12; j++)", "one set of fragments",
     "keeps before the fence"),
    ("WG_WAIT(SETS - 1);\n    if (i >= SETS - 1) release(f, f->from + i - (SETS - 1));",
     "release(f, f->from + i);\n    WG_WAIT(0 + 0);", "one set of fragments", "written"),
    ("WG_WAIT(SETS - 1);", "WG_WAIT(SETS);", "one set of fragments", ", not "),
    ("WG_WAIT(0);", "", "a thread sends", ", not "),
    ("multiply_step(sums, a[j],", "multiply_step(sums, a[0],", "a warp sends", ", not "),
    ("TEAMS_SYNC();  //", "//", "a warp sends", ", not "),  # over buffers that others read
    ("tf32_of(word_of(first, c, 0, left))", "word_of(first, c, 0, left)", "tf32", ", not "),
    ("tf32_of(word_of(second,", "tf32_of(word_of(first,", "tf32", ", not "),
    ("to[next] = out[1]", "to[at + 1] = out[1]", "tf32, a thread sends", ", not "),
    ("HW * (int)sizeof(done_t);", "HW * 2;", "tf32", ", not "),
    ("if (Y_ALIGNED) wg_see_copies();", "", "one set of fragments", "not seen by copies"),
    ("if (SC == 1) TILE_READ();", "", "a warp sends", "all are gone|is gone"),
    ("CLUSTER_BARRIER();  //", "BARRIER();  //", "shares meet", ", not "),
    ("add_tiles(ep, shared, &b);\n    CLUSTER_READ();",
     "CLUSTER_READ();\n    add_tiles(ep, shared, &b);", "shares meet", "is gone"),
    ("CLUSTER_LEAVE();", "", "shares meet", "is gone"),
    ("if (TURNS > 1) TILE_READ();", "", "several tiles", ", not "),
    ("TEAMS_SYNC();\n        store_tile", "store_tile", "several tiles", ", not |not seen"),
    ("if (TURNS > 1 && SETS > 1) release(f, f->from + b->count - 1);", "", "several tiles", "all wait"),
    ("f->from + i) % STAGES", "i) % STAGES", "several tiles, one set",
     ", not |all wait|written"),
    ("const Block b = TURNS > 1 ? find_block(id) : *first;", "const Block b = *first;",
     "several tiles", ", not "),
)  # fmt: skip


# Instructions, and what has their place on the host.
_KEPT = r'asm volatile\("cp\.async\.bulk\.commit_group;".*?\);'
_READ = r'asm volatile\("cp\.async\.bulk\.wait_group\.read 0;".*?\)'
INSTRUCTIONS = (
    MEET, (_KEPT, ""), (_READ, "stores_read()"),
    (r'asm volatile\("" : "\+r"\((a\[j\])\) :: "memory"\)', r"word_written(\1)"),
    (r'asm volatile\("cp\.async\.bulk\.global.*?"l"\((.*?)\), "r"\((.*?)\), "r"\((.*?)\) : "memory"\)',
     r"store_bulk(\1, \2, \3)"),
)  # fmt: skip


def host(
    text: str, change: dict[str, int], aligned: bool = True, slip: tuple[str, str] = ("", "")
) -> str:
    """Return the kernel with what the host needs around it, and the packer of its filter."""
    problem, config = Problem.parse(text), Config.make("planar", BASE | change)
    packing = pack(problem, H100, PLANAR.blueprint(problem, H100, config, aligned)).defines
    return "\n".join((
        host_source("planar", BASE, INSTRUCTIONS, text, change, aligned, slip),
        *(f"#define {name} {value}" for name, value in packing if name in PACKED),
        re.sub(r"#include .*", "", kernel_files()["planar_pack.cu"].read_text()),
    ))  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_no_one_waits_for_ever_and_sums_are_right(name: str, library: Path, tmp_path: Path) -> None:
    assert run(host(*CASES[name]), SEEDS, library, tmp_path) == "done"


@pytest.mark.parametrize("name", ["a warp sends", "shares meet"])
def test_the_same_where_y_begins_anywhere(name: str, library: Path, tmp_path: Path) -> None:
    assert run(host(*CASES[name], aligned=False), SEEDS, library, tmp_path) == "done"


@pytest.mark.parametrize(("line", "becomes", "name", "says"), SLIPS)
def test_a_slip_is_seen(
    line: str, becomes: str, name: str, says: str, library: Path, tmp_path: Path
) -> None:
    source = host(*CASES[name], slip=(line, becomes))
    assert re.search(says, run(source, 10 * SEEDS, library, tmp_path))  # it may be seen seldom
