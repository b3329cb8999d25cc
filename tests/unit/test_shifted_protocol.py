"""The warps and blocks of the shifted kernel never wait for ever, and their sums are right.

However early or late copies come and products end. Its own source runs on the host: ``shifted_host.h`` stands
in for barriers, copies and products.
"""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
from async_host import MEET, host_source, library, run

__all__ = ["library"]  # a fixture

# Copies at once, after a while or last; products the same; who arrives lingers or not: each of these once.
SEEDS = 18
BASE = dict(
    rows=1, parts=1, ni=1, across=0, tall=1, bn=32, chunks=4, mb=1, sets=2, sc=1, xs=1, stages=2, stay=0
)  # fmt: skip

# More runs than buffers for them, or, of the last and of shares in tf32, one that nothing was in before.
CASES: dict[str, tuple[str, dict[str, int]]] = {
    "one buffer": ("n2c65h5w8k33r3s3p1-f16+bias+add0.5+relu", dict(rows=3)),  # 5 rows of outputs
    "several buffers": ("n1c97h4w8k32r3s3p1-bf16", dict(rows=2, xs=3, stages=4)),
    "long runs": ("n2c130h4w8k33r3s3p1-f16+bias", dict(rows=2, chunks=8, xs=2, stages=3)),
    "one set": ("n1c97h4w8k33r3s3p1-f16+add", dict(rows=4, xs=2, sets=1, stages=3)),
    "one set, long runs": ("n1c129h4w8k32r3s3p1-f16", dict(rows=2, chunks=8, sets=1)),
    "two teams": ("n1c60h9w8k32r3s3p1-f16", dict(rows=9, bn=32)),
    "images": ("n3c65h4w4k33r3s3p1-f16+bias", dict(rows=4, ni=2)),
    "steps of a run each": ("n1c97h4w8k32r1s3p0x1-f16", dict(rows=3, xs=2, stages=3)),
    "pairs past the last column": ("n1c65h8w14k40r3s3p1u2-f16+bias", dict(rows=3)),
    "shares meet": ("n2c65h4w8k33r3s3p1-f16+bias", dict(rows=3, sc=2, stages=3)),  # of 4 and 5 steps
    "shares of two steps": ("n2c72h4w4k33r3s3p1-bf16", dict(rows=4, ni=2, sets=1, sc=4)),
    "tf32": ("n1c33h5w8k33r3s3p1-tf32+bias", dict(rows=3)),
    "tf32, images": ("n3c65h4w4k33r3s3p1-tf32+add", dict(rows=4, ni=2, chunks=8, xs=2)),
    "tf32, two teams": ("n1c33h9w8k32r3s3p1-tf32", dict(rows=9, xs=2, sets=1, stages=3)),
    "tf32, shares meet": ("n1c40h5w8k33r3s3p1-tf32", dict(rows=5, sc=2, xs=2)),
    "parts of a row": ("n2c65h1w136k33r1s3p0x1-f16+bias", dict(parts=3, stages=3)),  # 136 by 48
    "parts of rows": ("n1c40h3w280k32r3s3p1u2-f16", dict(parts=3, sets=1)),
    "planes that begin anywhere": ("n3c40h3w5k33r3s3p1-f16+bias", dict(rows=3, ni=2, xs=2)),
    "two words at once": ("n1c40h4w24k33r1s2p0x3u2d1x6-f16", dict(rows=2)),  # one of them under no tap
    "odd rows of stride 2": ("n3c40h5w9k33r3s3p1u2-f16+bias", dict(rows=3, ni=2, xs=2)),
    "odd rows of stride 2, long filters": ("n2c40h1w135k32r1s5p0x2u1x2d1x3-bf16", dict(xs=2)),
    "tf32, planes that begin anywhere": ("n2c20h5w3k33r3s3p1u2-tf32", dict(rows=2, xs=2)),
    "even planes that begin anywhere": ("n1c40h6w6k33r3s3p1u2-bf16", dict(rows=2, sc=2)),
    "registers handed on": ("n1c24h4w8k161r1s3p0x1-f16", dict(rows=4, bn=192, mb=2, sets=1)),  # one step
    "several tiles": ("n2c65h70w8k33r3s3p1-f16+bias+relu", dict(stay=1, stages=2)),
    "several tiles, a buffer for each step": ("n5c40h29w8k64r3s3p1-bf16+add", dict(stay=1, xs=2, stages=6)),
    "several tiles, one set": ("n3c65h46w8k32r3s3p1-f16+bias", dict(stay=1, sets=1, xs=3, stages=3)),
    "several tiles, parts of rows": ("n1c33h70w136k32r1s3p0x1-f16", dict(parts=3, stay=1, stages=2)),
    "several tiles, registers handed on": (
        "n9c24h96w8k161r1s3p0x1-f16", dict(rows=3, bn=192, mb=2, sets=1, stay=1)),
    "several tiles, tf32": ("n3c33h50w8k33r3s3p1u1-tf32+bias", dict(stay=1, xs=2, stages=3)),
    "across images": ("n3c40h5w7k33r3s3p1-f16+bias", dict(rows=5, across=1, xs=2)),
    "across images, tf32": ("n5c20h5w3k33r3s3p1u1x1-tf32", dict(rows=5, ni=4, across=1)),
    "across images, several tiles": ("n33c40h9w7k32r3s3p1-bf16+add", dict(rows=8, across=1, stay=1, xs=2)),
    "tall pixels": ("n2c40h9w8k32r3s3p1-f16+bias", dict(rows=2, tall=2, stay=1)),  # 9 rows of outputs
    "tall pixels, several tiles": ("n9c70h46w8k33r3s3p1-bf16+add", dict(rows=3, tall=4, stay=1, xs=3)),
    "tall pixels, one set": ("n2c40h16w8k32r3s3p1u2-f16", dict(rows=2, tall=3, stay=1, sets=1, xs=2)),
    "tall pixels, tf32": (
        "n3c33h50w8k33r3s3p1-tf32+bias", dict(rows=2, tall=2, stay=1, chunks=2, stages=5, xs=2)),
    "tall pixels, one step": ("n20c12h29w8k32r3s2p1x0-f16", dict(rows=2, tall=2, stay=1, stages=1, xs=2)),
    "tall pixels across images": (
        "n33c40h9w7k32r3s3p1-f16+bias", dict(rows=5, tall=2, across=1, stay=1, xs=2)),
    "tall pixels, parts of rows": ("n2c40h9w136k33r3s3p1-f16+bias", dict(parts=3, tall=2, stay=1, xs=2)),
    "short runs": ("n1c40h5w8k33r3s3p1-f16", dict(rows=3, chunks=2, sets=1, stages=3, xs=2)),
    "a buffer for each run": ("n1c65h4w8k32r3s3p1-f16", dict(rows=2, xs=3, stages=6)),
}

# What a slip of the pen would be: a line of the kernel, what it becomes, where that is seen, and as what.
SLIPS = (
    # who sends filters
    ("bar_wait(W_EMPTY(slot), parity);", "", "one buffer", "written while|all wait"),
    ("bar_wait(W_EMPTY(slot), parity);", "bar_wait(W_EMPTY(slot), !parity);", "one buffer", "all wait"),
    ("bar_expect(W_FULL(slot), STEP_BYTES);", "bar_expect(W_FULL(slot), W_BYTES);", "one set",
     ", not |all wait"),
    ("STEP_BYTES, W_FULL(slot));\n            NEXT(slot, parity, STAGES);",
     "STEP_BYTES, W_FULL(slot));\n            if (++slot == STAGES) slot = 0;", "several buffers",
     "written while|all wait"),
    # who sends planes
    ("bar_wait(X_EMPTY(slot), parity);", "", "one buffer", ", not |all wait|arrivals"),
    ("bar_wait(X_EMPTY(slot), parity);", "bar_wait(X_EMPTY(slot), !parity);", "one set", "all wait"),
    ("NEXT(slot, parity, X_STAGES);", "if (++slot == X_STAGES) slot = 0;", "one set",
     ", not |arrivals|all wait"),
    ("__reduce_add_sync(0xffffffffu, numbers)", "numbers", "images", ", not |all wait"),
    ("c < CHANNELS_OF(run) ?", "c < CHANNELS ?", "one buffer", "a copy of|all wait"),
    ("}\n            __syncwarp();\n            EACH_IMAGE", "}\n            EACH_IMAGE", "one buffer",
     ", not |all wait"),
    (" + piece.at * (int)sizeof(in_t)", "", "planes that begin anywhere", ", not "),
    ("find_piece(&b, i, c)", "find_piece(&b, 0, c)", "across images", ", not |all wait|a copy of"),
    ("pieces[image % PIECES].count", "pieces[0].count", "across images", ", not |all wait"),
    ("run <= RUN_OF_STEP(b.last - 1)", "run < b.last * OF_STEP / R", "shares meet", "all wait"),
    ("int run = RUN_OF_STEP(b.first);", "int run = (b.first + R - 1) / R;", "shares meet",
     "all wait|, not "),
    # who multiplies
    ("bar_wait(X_FULL(at->x_slot), at->x_parity);", ";", "several buffers", ", not "),
    ("bar_wait(X_FULL(at->x_slot), at->x_parity);", "bar_wait(X_FULL(at->x_slot), !at->x_parity);", "one set",
     ", not |all wait"),
    ("bar_wait(W_FULL(slot), at->parity);", "", "a buffer for each run", ", not |written while"),
    ("bar_wait(W_FULL(slot), at->parity);", "bar_wait(W_FULL(slot), !at->parity);", "several buffers",
     ", not |all wait"),
    ("r == 0 || step == b->first", "r == 0", "shares meet", ", not "),
    ("done = slot;\n            NEXT(at->slot, at->parity, STAGES);",
     "done = slot;\n            if (++at->slot == STAGES) at->slot = 0;", "one set",
     ", not |written while|all wait"),
    ("NEXT(at->x_slot, at->x_parity, X_STAGES);", "if (++at->x_slot == X_STAGES) at->x_slot = 0;", "one set",
     ", not |all wait"),
    ("if (THREAD(0) % 32 == 0) bar_arrive(X_EMPTY(at->x_slot));", "", "one buffer", "all wait"),
    ("if (THREAD(0) % 32 == 0) bar_arrive(X_EMPTY(at->x_slot));", "bar_arrive(X_EMPTY(at->x_slot));",
     "one buffer", ", not |arrivals|all wait"),
    ("if ((r += OF_STEP) == R) {\n            r = 0;\n"
     "            __syncwarp();  // all lanes have read\n"
     "            if (THREAD(0) % 32 == 0) bar_arrive(X_EMPTY(at->x_slot));",
     "if (r == 0 && THREAD(0) % 32 == 0) bar_arrive(X_EMPTY(at->x_slot));\n"
     "        if ((r += OF_STEP) == R) {\n            r = 0;",  # too early
     "one buffer", ", not |all wait"),
    ("left, slot, done);", "left, slot, slot);", "one buffer", "written while"),  # too early
    ("if (number == SETS - 1 && done >= 0 && THREAD(0) % 32 == 0) bar_arrive(W_EMPTY(done));", "",
     "one set, long runs", "all wait"),
    ("number == SETS - 1 && done >= 0", "done >= 0", "long runs", "written while|arrivals"),
    ("for (int j = 0; j < 4 * S; j++)", "for (int j = 0; j < 0; j++)", "one set", "keeps before the fence"),
    ("wg_begin();", "", "one set", "behind the fence"),
    ("UNROLL for (int j = 0; j < 4 * S; j++) word_written(a[set][j / 4][j % 4]);\n        wg_begin();",
     "wg_begin();\n        UNROLL for (int j = 0; j < 4 * S; j++) word_written(a[set][j / 4][j % 4]);",
     "two teams", "behind the fence"),
    ("WG_WAIT(SETS - 1);", "WG_WAIT(SETS);", "long runs", ", not "),
    ("WG_WAIT(SETS - 1);", "WG_WAIT(SETS);", "one set, long runs", ", not |written while"),
    ("set = number % SETS;", "set = 0;", "long runs", ", not "),
    ("WG_WAIT(0);", "", "two teams", ", not "),
    ("tf32_of(word_at(", "(word_at(", "tf32", ", not "),
    ("if (C % CHANNELS) sees = sees && c < left;", "", "a buffer for each run", ", not "),
    (" && (C % CHANNELS == 0 || c < left)", "", "tf32, shares meet", ", not "),
    # words that are moved
    ("words[e][k + 1], moved * 8)", "words[e][k + 1], 0)", "odd rows of stride 2", ", not "),
    # tall pixels
    ("done >= 0 && THREAD(0) % 32 == 0) bar_arrive(W_EMPTY(done));",
     "done >= 0 && THREAD(0) % 32 == 0) bar_arrive(W_EMPTY(slot));", "tall pixels, several tiles",
     "written while|all wait|arrivals"),
    ("row - m * STR_H;", "row - m;", "tall pixels, one set", ", not "),
    ("run + TAP_BYTES(row, 0)", "run", "tall pixels", ", not "),
    ("sums + m * SUMS, a[set][s]", "sums, a[set][s]", "tall pixels", ", not "),
    ("(tap * S + s)", "s", "tall pixels", ", not "),
    ("P % TALL ? min(TALL, P - one.p * TALL) : TALL;", "TALL;", "tall pixels", ", not "),
    ("slot * STEP_BYTES)), CHUNKS)", "slot * STEP_BYTES)), 4)", "tall pixels, tf32", "another order"),
    # a piece of each row
    (".count * pieces[image % PIECES].rows", ".count", "parts of rows", ", not |all wait|arrivals"),
    ("row * (ROW_W * (int)sizeof(in_t))", "row * (W * (int)sizeof(in_t))", "parts of rows", ", not |a copy"),
    ("from + row * W,", "from,", "tall pixels, parts of rows", ", not "),
    # several tiles
    ("if (STAYS && !KEEPS && THREAD(0) % 32 == 0) bar_arrive(W_EMPTY(done));", "",
     "several tiles", "all wait"),
    ("if (STAYS && !KEEPS && THREAD(0)", "if (STAYS && THREAD(0)", "several tiles, a buffer for each step",
     "all wait"),
    ("if (KEEPS) return;", "", "several tiles, a buffer for each step", "all wait"),
    ("KEEPS ? step : at->slot", "at->slot", "several tiles, a buffer for each step", ", not "),
    ("Ring at = {0, 0, 0, 0};\n        NO_UNROLL for (EACH_TILE(id)) {",
     "NO_UNROLL for (EACH_TILE(id)) {\n            Ring at = {0, 0, 0, 0};", "several tiles, one set",
     ", not |all wait"),
    # the block
    ("bar_init(W_FULL(i), 1)", "bar_init(W_FULL(i), 4)", "one buffer", "all wait"),
    ("bar_init(W_EMPTY(i), 4 * TEAMS)", "bar_init(W_EMPTY(i), 4)", "two teams", "written while"),
    ("bar_init(X_FULL(i), SENDERS)", "bar_init(X_FULL(i), 1)", "one buffer", ", not |arrivals|all wait"),
    ("bar_init(X_EMPTY(i), 4 * TEAMS)", "bar_init(X_EMPTY(i), 4)", "two teams", ", not |all wait"),
    ("bar_init_done();", "", "one buffer", "not seen by copies"),
    ("BARRIER();\n    if (warp < 4 * TEAMS) {", "if (warp < 4 * TEAMS) {", "one buffer", "no barrier"),
    ("ALL_SYNC();  // nobody reads buffers any more\n"
     "            keep_sums((acc_t *)shared, sums, warp, lane);",
     "keep_sums((acc_t *)shared, sums, warp, lane);\n            ALL_SYNC();", "two teams", ", not "),
    ("ALL_SYNC();  // nobody", "// nobody", "two teams", "all wait"),
    ("if (!STAYS) BARRIER();", "", "one set", ", not "),
    ("CLUSTER_BARRIER();  //", "BARRIER();  //", "shares meet", ", not "),
    ("store_tile(ep, (SHARED acc_t *)shared, &b);\n#if SC > 1\n    CLUSTER_READ();",
     "#if SC > 1\n    CLUSTER_READ();\n    store_tile(ep, (SHARED acc_t *)shared, &b);",
     "shares of two steps", "is gone"),
    ("CLUSTER_LEAVE();", "", "shares meet", "is gone"),
    ("__syncwarp();\n        ALL_SYNC();\n",
     "__syncwarp();\n        MORE_REGISTERS(REGS_ALL);\n        ALL_SYNC();\n",
     "registers handed on", "all wait"),
)  # fmt: skip


# Instructions, and what has their place on the host.
INSTRUCTIONS = (
    MEET,
    (r'asm volatile\("" : "\+r"\((a\[.*?\])\) :: "memory"\)', r"word_written(\1)"),
)  # fmt: skip
host = partial(host_source, "shifted", BASE, INSTRUCTIONS)


@pytest.mark.parametrize("name", CASES)
def test_no_one_waits_for_ever_and_sums_are_right(name: str, library: Path, tmp_path: Path) -> None:
    assert run(host(*CASES[name]), SEEDS, library, tmp_path) == "done"


def test_the_same_where_y_begins_anywhere(library: Path, tmp_path: Path) -> None:
    assert run(host(*CASES["shares meet"], aligned=False), SEEDS, library, tmp_path) == "done"


@pytest.mark.parametrize(("line", "becomes", "name", "says"), SLIPS)
def test_a_slip_is_seen(
    line: str, becomes: str, name: str, says: str, library: Path, tmp_path: Path
) -> None:
    source = host(*CASES[name], slip=(line, becomes))
    assert re.search(says, run(source, 10 * SEEDS, library, tmp_path))  # it may be seen seldom
