"""The warps and blocks of the hopper kernel never wait for ever, and never write what is read.

Its own source runs on the host: ``hopper_host.h`` stands in for barriers, copies and products.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from async_host import MEET, defines, library, run

from tilewright.device import for_architecture
from tilewright.kernels import family_of
from tilewright.kernels.blueprint import Blueprint
from tilewright.kernels.config import Config
from tilewright.kernels.source import kernel_files
from tilewright.problem import Problem

__all__ = ["library"]  # a fixture

HOPPER = family_of("hopper")
H100 = for_architecture("sm_90")
SEEDS = 10
BASE = dict(
    x=0, wm=1, wn=1, bn=56, mb=1, chunks=8, pieces=0, tall=0, batch=1, stages=3, xs=2, cm=1, sc=1, sg=1,
    combine=0,
)  # fmt: skip
MAPPED = dict(pieces=1)  # the copy engine copies the input
STAYING = MAPPED | dict(wm=2, bn=96, mb=2, stages=2)
SLID = MAPPED | dict(x=7, wn=2, batch=3)
ONE_TILE, WIDE, DEEP = (f"{sizes}-f16-nhwc" for sizes in
                        ("n1c256h7w7k64r3s3p1", "n2c128h14w14k64r3s3p1", "n1c512h7w7k64r3s3p1"))  # fmt: skip
ACCURATE = ONE_TILE.replace("f16", "accurate")

CASES: dict[str, tuple[str, dict[str, int]]] = {
    "threads copy": (ONE_TILE, {}),
    "several steps at once": (ONE_TILE, dict(batch=3, stages=2, wn=2, bn=32)),
    "the copy engine copies": (ONE_TILE, MAPPED | dict(stages=4)),
    "all taps at once": (ONE_TILE, MAPPED | dict(batch=9, chunks=4, stages=4)),
    "a rectangle": ("n1c128h14w16k64r3s3p1-f16-nhwc", MAPPED | dict(tall=1, bn=16, wn=2)),
    "filters come to two blocks": (WIDE, MAPPED | dict(cm=2)),
    "filters come to four": (WIDE, dict(cm=4, stages=2)),
    "with a stride": (WIDE.replace("p1-", "p1u2-"), dict(cm=2, bn=24)),
    "shares meet in rows": (ONE_TILE, MAPPED | dict(sc=2)),
    "shares meet in pairs of pixels": (DEEP, dict(sc=8, bn=24, xs=1)),
    "shares meet, filters come to two": (WIDE, MAPPED | dict(cm=2, sc=2, xs=1)),
    "patches come with filters": ("n1c256h14w14k64r1s1-f16-nhwc", MAPPED | dict(xs=1)),
    "the same, two at once": (
        "n1c256h14w14k64r1s1-f16-nhwc", MAPPED | dict(xs=1, batch=2, stages=2, cm=2)),
    "anew for each tap": ("n2c128h14w14k64r3s3p1u2-f16-nhwc", MAPPED | dict(x=6, xs=1, batch=3, stages=2)),
    "the same, filters come to two": (DEEP, MAPPED | dict(x=6, xs=1, bn=24, cm=2, sg=5, combine=2)),
    "blocks stay": ("n64c128h28w28k256r3s3p1-f16-nhwc", STAYING),
    "blocks stay, patches come with filters": ("n32c128h28w28k256r1s1-f16-nhwc", STAYING | dict(xs=1)),
    "spans of nchw": ("n1c128h16w64k64r1s1-f16", MAPPED | dict(x=4, bn=64, stages=2, xs=1)),
    "planes that begin anywhere": ("n2c256h7w7k64r1s1-f16", MAPPED | dict(x=4, bn=64, chunks=2, xs=1)),
    "the same, filters come to two, shares begin within a lead": (
        "n4c256h7w7k64r1s1-f16", MAPPED | dict(x=4, bn=64, chunks=2, stages=2, xs=1, cm=2, sg=3, combine=2)),
    "turned": (ONE_TILE.replace("-nhwc", ""), dict(x=5)),
    "turned by runs of pixels": ("n1c256h8w8k64r3s3p1-f16", dict(x=5)),
    "runs of several images": ("n2c256h16w16k64r3s3p1-f16", dict(x=5, stages=2)),
    "sums of columns": ("n1c128h8w32k64r3s3p1-f16", SLID | dict(bn=32, chunks=4, stages=2)),
    "sums of columns, filters come to two": (
        "n2c64h8w32k64r3s3p1-f16", SLID | dict(bn=32, chunks=4, cm=2, sc=2, xs=1)),
    "sums of columns, blocks stay": ("n9c64h64w64k128r3s3p1-f16", SLID | dict(bn=128, chunks=4, stages=2)),
    "sums of columns, a step each": (
        "n1c64h8w32k64r1s3p0x1-f16", SLID | dict(bn=32, chunks=4, stages=2, sc=2, xs=1)),
    "gathered": ("n1c4h14w14k64r3s3p1-f16-nhwc", dict(x=2, chunks=6, stages=2, xs=1)),
    "rounded": (ONE_TILE.replace("f16", "tf32"), dict(chunks=4)),
    "promoted": (ONE_TILE.replace("f16", "f8"), MAPPED | dict(stages=2)),
}  # fmt: skip

# What a slip of the pen would be: a line of the kernel, what it becomes, where that is seen, and as what.
SLIPS = (
    ("if (team < TEAMS) FEWER_REGISTERS(REGS_ALL);",  # who sends takes back what others wait for
     "if (team < TEAMS) FEWER_REGISTERS(REGS_ALL); else MORE_REGISTERS(REGS_ALL);",
     "sums of columns, a step each", "all wait"),
    ("4 * TEAMS * COPIES", "4 * TEAMS", "filters come to two blocks", "more arrivals"),
    ("bar_init(X_EMPTY(i), 4 * TEAMS)", "bar_init(X_EMPTY(i), TEAMS)", "threads copy", "written"),
    ("bar_init(FIRST, WORKERS - 32)", "bar_init(FIRST, WORKERS)", "threads copy", "all wait"),
    ("if (COPIES > 1) CLUSTER_WAIT();", "", "filters come to two blocks", "no barrier"),
    ("STAYS || i >= STAGES", "STAYS || i > STAGES", "the copy engine copies", "arrivals|written"),
    ("b->first / TAPS >= X_STAGES", "b->first / TAPS > X_STAGES", "all taps at once", "all wait|written"),
    ("i - LAG + STAGES < count", "i + STAGES < count", "the copy engine copies", "all wait"),
    ("if (STAYS && LAG && lane == 0)", "if (0)", "blocks stay, patches come with filters", "all wait"),
    ("if (TOGETHER) WG_WAIT(LAG);", "", "the copy engine copies", "written"),
    ("sent ? 0 : X_BYTES", "X_BYTES", "the copy engine copies", "all wait"),
    ("SC * pairs_of(b->sc) * KB * 8", "SC * PAIRS * KB * 8", "shares meet in pairs of pixels", "all wait"),
    ("if (SC > 1 && FINISH == BY_TILE) CLUSTER_WAIT();", "", "shares meet in rows", "gone"),
    ("if (step > b->first / TAPS) COPIERS_SYNC();", "", "turned by runs of pixels", "to be turned"),
    ("run / RAW_STAGES % 2", "0", "turned by runs of pixels", "written|all wait"),
    ("TAPWISE ? (step + patch) % TAPS", "TAPWISE ? step % TAPS", "anew for each tap", "another patch"),
    ("end - LAG + STAGES < count", "0", "planes that begin anywhere", "all wait"),
    ("i - first >= LAG", "i >= LAG", "planes that begin anywhere", "written|all wait"),
    ("bar_init_done();", "", "the copy engine copies", "not seen by copies"),
    ("p = b->px0 / WR % HR, n", "p = b->px0 / WR, n", "sums of columns, blocks stay", "another patch"),
    ("make_ready(shared, b, 0, THREAD(0));", "", "sums of columns", "no barrier"),
    ("if (TOGETHER) WG_WAIT(LAG);\n        if (i - first >= LAG) {\n            if (STAYS ||",
     "if (i - first >= LAG) {\n            give_back(shared, b, done_slot, lane);\n"
     "            if (TOGETHER) WG_WAIT(LAG);\n            if (0 &&", "blocks stay", "written"),  # too early
)  # fmt: skip


def _function(text: str, name: str) -> str:
    """Return a function of a kernel file."""
    start = re.search(rf"^INLINE [^\n]*\b{name}\(", text, re.M)
    assert start, name
    line = text[start.start() : text.index("\n", start.start())]
    return line if "}" in line else text[start.start() : text.index("\n}\n", start.start()) + 2]


def _host_source(found: Blueprint) -> str:
    """Return the kernel with what the host needs around it; what has to do with numbers is left out."""
    files = kernel_files()
    tile, store, own, send, kernel = (
        files[f"hopper{name}"].read_text() for name in ("_tile.h", "_store.h", "_own.h", "_send.h", ".cu")
    )
    turn, lead, multiply = (files[f"hopper_{name}.h"].read_text() for name in ("turn", "lead", "multiply"))
    block = re.search(r"^typedef struct \{[^}]*\} Block;", tile, re.M)
    more = re.findall(r"^#define (?:FIRST_STEP|SUM_WORDS|SUMS_OF|W_SIDES|X_SIDES)\b[^\n]*", tile, re.M)
    assert block and len(more) == 5
    kernel = re.sub(r'#include "hopper_(tile|store|own|slide)\.h"', "", kernel)
    parts = [
        defines(found), '#include "products.h"', '#include "hopper_host.h"',
        "#define __CUDACC__", tile.partition('#include "tile.h"')[0], *more,
        block[0], _function(tile, "find_block"),
        "#if LEADS > 1", lead.partition("#ifdef __CUDACC__")[0], "#endif",
        "#if TURNS_RUNS", _function(tile, "find_pixel"), turn, "#endif",
        '#include "hopper_host_main.h"',
        _function(tile, "next_tile"), _function(tile, "multiply_step"),
        "#define multiply_step(sums, shared, w, x, r, s, ...) "
        "(check_step(w, x, r, s), multiply_step(sums, shared, w, x, r, s, __VA_ARGS__))",
        _function(store, "rows_of"), _function(store, "pairs_of"),
        *re.findall(r"^#define IS_CHANNEL[^\n]*", own, re.M), own[own.index("#if FINISH == MET") :],
        kernel.replace('#include "hopper_send.h"', send).replace('#include "hopper_multiply.h"', multiply),
    ]  # fmt: skip
    return re.sub(*MEET, "\n".join(parts))


def _run(
    text: str, change: dict[str, int], library: Path, folder: Path, slip: tuple[str, str] = ("", "")
) -> str:
    """Run a kernel on the host; say "done", or what is wrong."""
    problem, config = Problem.parse(text), Config.make("hopper", BASE | change)
    HOPPER.check(problem, H100, config)
    source = _host_source(HOPPER.blueprint(problem, H100, config))
    assert slip[0] in source
    seeds = 10 * SEEDS if slip[0] else SEEDS  # a slip may be seen seldom
    return run(source.replace(*slip, 1) if slip[0] else source, seeds, library, folder)


@pytest.mark.parametrize("name", CASES)
def test_no_one_waits_for_ever_and_nothing_is_written_while_it_is_read(
    name: str, library: Path, tmp_path: Path
) -> None:
    assert _run(*CASES[name], library, tmp_path) == "done"


@pytest.mark.parametrize("change", [{}, MAPPED | dict(x=1), MAPPED | dict(x=3)])
def test_the_same_of_numbers_in_two_parts(change: dict[str, int], library: Path, tmp_path: Path) -> None:
    assert _run(ACCURATE, change | dict(stages=2), library, tmp_path) == "done"


@pytest.mark.parametrize(("line", "becomes", "name", "says"), SLIPS)
def test_a_slip_is_seen(
    line: str, becomes: str, name: str, says: str, library: Path, tmp_path: Path
) -> None:
    assert re.search(says, _run(*CASES[name], library, tmp_path, (line, becomes)))
