"""The small family: few input channels and a small filter, for many images or a large one.

Source of filters in constant memory, several images per block and a config per layer: the report on
LeNet's kernels.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

from tilewright.arithmetic import ceil_div, round_up
from tilewright.device import Device
from tilewright.kernels.bands import Bands, bands_defines, bands_of, bands_param, bands_rules, many_channels
from tilewright.kernels.family import CONSTANT, Blueprint, Config, Family, Launch, Param, Rule, Values
from tilewright.kernels.limits import MOST_BODY, blocks_param, no_gpu, shared_rule
from tilewright.kernels.split_k import left_bytes, pool_apart
from tilewright.kernels.tile import columns_under, up_to
from tilewright.kernels.whole_sums import whole_sums
from tilewright.kernels.word import in_tiles
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem

CONSTANT_BYTES = 60 << 10
WIDTHS = (2, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 16, 17, 18, 20, 24, 28, 32, 34)


@dataclass(frozen=True, kw_only=True)
class SmallTiling:
    """Sizes derived from a problem and a config; the kernel has defines of the same names.

    ``wavefronts``: of a warp's load of the input, ``words`` at once, given the row pitch ``xp``.
    """

    bands: Bands
    q_parts: int
    xp: int
    row: int
    words: int
    wavefronts: float
    x_floats: int
    f_floats: int
    out_floats: int

    def shared_bytes(self, cf: Values) -> int:
        """Shared memory of a block."""
        filters = 0 if cf["f"] == 0 else self.f_floats
        return 4 * (cf["stages"] * self.x_floats + filters + self.out_floats)


def tiling_of(pr: Problem, cf: Values) -> SmallTiling:
    """Return the tiling of a config."""
    q_parts, row = ceil_div(pr.q, cf["tw"]), columns_under(pr, cf["tw"])
    bands = bands_of(pr, cf, q_parts)
    words = gcd(4, cf["tw"] * pr.stride[1])
    last = (q_parts - 1) * cf["tw"] * pr.stride[1] + round_up(row, 4)
    xp, wavefronts = _pitch(
        max(last, pr.pad[2] + pr.w), words, step=cf["tw"] * pr.stride[1], parts=q_parts, stride=pr.stride[0],
        together=_together(pr, bands.k_groups),
    )  # fmt: skip
    x_floats = cf["ni"] * pr.c * bands.xh * xp
    taps = pr.c * pr.r * pr.s * bands.k_groups * cf["tk"]
    return SmallTiling(
        bands=bands, q_parts=q_parts, xp=xp, row=row, words=words, wavefronts=wavefronts,
        x_floats=round_up(x_floats, 4), f_floats=round_up(taps, 4),
        out_floats=round_up(cf["ni"] * pr.k * bands.band * pr.q, 4) if cf["out"] else 0,
    )  # fmt: skip


def _together(pr: Problem, k_groups: int) -> int:
    """Neighbouring lanes that compute different channels at the same place of the image."""
    return min(32, k_groups) if pr.layout_out == "nhwc" else 1


@lru_cache(maxsize=4096)
def _pitch(width: int, words: int, *, step: int, parts: int, stride: int, together: int) -> tuple[int, float]:
    """Return the row pitch, at least ``width`` floats, with fewest bank conflicts; and a load's wavefronts.

    ``parts`` units lie along a row, ``step`` floats apart, the next ones ``stride`` rows below; each has
    ``together`` lanes.
    """
    lanes = 32 // words  # served at once

    def wavefronts(pitch: int) -> int:
        found = 0
        for first in range(0, 32, lanes):
            places = {lane // together for lane in range(first, first + lanes)}
            starts = {place % parts * step + place // parts * stride * pitch for place in places}
            banks = Counter((start + word) % 32 for start in starts for word in range(words))
            found += max(banks.values())
        return found

    best = min(range(round_up(width, words), width + 36, words), key=wavefronts)
    return best, float(wavefronts(best))


class Small(Family):
    """Convolutions of at most 8 input channels, one group, on a GPU."""

    name = "small"
    examples = ("n5c4h20w24k9r7s7-f32+bias",)

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support layers of few input channels."""
        if reason := super().refuses(problem, device) or no_gpu(device) or many_channels(problem):
            return reason
        if 4 * problem.c * problem.r * problem.s * problem.k > CONSTANT_BYTES:
            return f"the filter has more than {CONSTANT_BYTES >> 10} KiB"
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        q = problem.q
        widths = tuple(t for t in up_to(q, WIDTHS) if 9 * round_up(q, t) <= 11 * q)
        return (
            Param("f", (0, 1), "filter in constant memory or in shared memory", ("constant", "shared")),
            Param("tk", up_to(2 * problem.k - 1, (1, 2, 4, 8, 16)), "output channels a thread"),
            Param("th", up_to(problem.p, (1, 2, 3, 4, 5, 6, 8)), "output rows a thread"),
            Param("tw", widths or up_to(q, (1, 2, 3, 4)), "output columns a thread"),
            Param("threads", (64, 96, 128, 160, 192, 224, 256, 288, 320, 384, 416, 512, 544, 640),
                  "threads of a block"),
            blocks_param(1, 2, 3, 4, 6, 8),
            bands_param(problem),
            Param("ni", up_to(problem.n, (1, 2, 3, 4, 5, 6, 8)), "images worked on at once"),
            Param("stages", (1, 2), "buffers of staged input"),
            Param("out", (0, 1), "output stored from registers or through shared memory",
                  ("direct", "shared")),
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the copy of the filter to constant memory, the launch, and another if there is a pool."""
        pr, cf = problem, config.values
        tiling = tiling_of(pr, cf)
        kp = tiling.bands.k_groups * cf["tk"]
        found = whole_sums(
            "small", pr, pool_apart(pr), tiling.bands.blocks(device, cf), cf["threads"],
            _defines(pr, device, tiling, cf, aligned), 4 * pr.c * pr.r * pr.s * kp,
            (("PACK_K", kp), ("PACK_C", pr.c)), packing=in_tiles(kp, pr.c),
        )  # fmt: skip
        if cf["f"]:
            return found
        first = Launch(CONSTANT, (1, 1, 1), (1, 1, 1), ("w",))
        return replace(found, launches=(first, *found.launches))

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count the work of one block and one thread."""
        return _work(problem, device, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """All products, one after the other."""
        return problem.c * problem.r * problem.s


def _registers(pr: Problem, cf: Values) -> int:
    row = round_up(columns_under(pr, cf["tw"]), 4)
    return cf["th"] * (cf["tk"] * cf["tw"] + row) + min(cf["tk"], 4) + 30


def _body(pr: Problem, tk: int, th: int, tw: int) -> int:
    """Multiply-adds of one filter row."""
    return pr.s * tk * th * tw


def _busy(problem: Problem, tk: int, th: int, tw: int, threads: int, bands: int, ni: int) -> bool:
    """Whether threads have outputs to compute in most of their iterations."""
    band = ceil_div(problem.p, bands)
    outputs = ni * band * problem.q * round_up(problem.k, tk)
    units = ni * ceil_div(band, th) * ceil_div(problem.q, tw) * ceil_div(problem.k, tk)
    return units <= 64 or 10 * outputs >= 6 * round_up(units, threads) * tk * th * tw


RULES = (
    Rule("constant", lambda problem, f, tk: f == 1 or tk >= problem.k,
         "addresses in constant memory are the same for all threads: each takes all channels"),
    Rule("body", lambda problem, tk, th, tw: _body(problem, tk, th, tw) <= MOST_BODY,
         "the loop's body overflows the instruction cache"),
    Rule("sums", lambda problem, tk, th, tw: tk * th * tw >= min(4, problem.k * problem.p * problem.q),
         "fewer than 4 sums a thread are all loads"),
    *bands_rules(_registers, "tk th tw"),
    Rule("busy", _busy, "threads without outputs"),
    shared_rule(lambda problem, cf: tiling_of(problem, cf).shared_bytes(cf),
                "f tk th tw mb bands ni stages out"),
)  # fmt: skip


def _defines(pr: Problem, device: Device, tiling: SmallTiling, cf: Values, aligned: bool) -> Values:
    body = _body(pr, cf["tk"], cf["th"], cf["tw"])
    return bands_defines(pr, device, tiling.bands, cf, aligned) | dict(
        TW=cf["tw"], Q_PARTS=tiling.q_parts, STAGES=cf["stages"], OUT=cf["out"], F_CONSTANT=int(cf["f"] == 0),
        XP=tiling.xp, X_FLOATS=tiling.x_floats, F_FLOATS=tiling.f_floats if cf["f"] else 0,
        ALIGNED_WORDS=tiling.words,
        CHANNEL_UNROLL_BY=pr.c if pr.c * pr.r * body <= MOST_BODY else 1,
        ROW_UNROLL_BY=pr.r if pr.r * body <= MOST_BODY else max(1, min(pr.r, MOST_BODY // body)),
        Y_WORDS=_words(pr, cf, tiling) if aligned else 1, SHARED_BYTES=tiling.shared_bytes(cf),
    )  # fmt: skip


def _words(pr: Problem, cf: Values, tiling: SmallTiling) -> int:
    """Contiguous outputs that are stored at once."""
    if pr.layout_out == "nhwc":
        return gcd(4, pr.k) if cf["out"] else 1
    return gcd(4, tiling.bands.band * pr.q, pr.p * pr.q) if cf["out"] else gcd(4, cf["tw"], pr.q)


def _work(pr: Problem, device: Device, cf: Values) -> GpuWork:
    tiling = tiling_of(pr, cf)
    bands, blocks = tiling.bands, tiling.bands.blocks(device, cf)
    turns = ceil_div(bands.items, blocks)  # items of a block
    passes, warps = ceil_div(bands.units, cf["threads"]), cf["threads"] // 32
    outputs = cf["tk"] * cf["th"] * cf["tw"]
    loads = cf["th"] * pr.c * pr.r * ceil_div(tiling.row, tiling.words)
    taps = pr.c * pr.r * pr.s * cf["tk"] / (1 if cf["f"] == 0 else min(cf["tk"], 4))
    line = pr.w * (pr.c if pr.layout_in == "nhwc" else 1)
    lines = cf["ni"] * bands.xh * (1 if pr.layout_in == "nhwc" else pr.c)
    words = _words(pr, cf, tiling)
    nhwc = pr.layout_out == "nhwc"
    vector = min(cf["tk"], 4) if nhwc else words
    full_sectors = cf["out"] or (cf["tk"] if nhwc else cf["tw"]) == vector
    store = outputs * ((4.0 / words + 2.0 if cf["out"] else 0.0) + 6.0 / vector)
    sectors = cf["ni"] * pr.k * bands.band * pr.q / (8.0 if full_sectors else vector)
    return GpuWork(
        blocks=blocks, threads=cf["threads"], registers=_registers(pr, cf),
        resident=cf["mb"], shared_bytes=tiling.shared_bytes(cf), steps=turns, buffers=cf["stages"],
        fma=float(turns * passes * pr.c * pr.r * pr.s * outputs),
        shared_loads=turns * passes * (loads + taps),
        staging=turns * ceil_div(lines, warps) * (14.0 + 2.0 * ceil_div(line, 32)) + 60.0,
        epilogue=turns * passes * (store + 20.0),
        wavefronts=turns * passes * warps * (
            loads * tiling.wavefronts + (taps if cf["f"] else 0)),
        load_bytes=4.0 * turns * lines * line, store_sectors=turns * sectors,
        dram_bytes=pr.x_bytes + pr.w_bytes + pr.y_bytes,
        combine=pool_apart(pr), partial_bytes=left_bytes(pr, pool_apart(pr)), tile_bytes=4.0 * sectors * 8,
        useful=pr.z_elements / (bands.items * bands.units * outputs),
        register_intensity=2.0 * pr.s * outputs / (cf["th"] * tiling.row + pr.s * cf["tk"]),
        block_intensity=2.0 * pr.c * pr.r * pr.s * outputs * bands.units / max(1, tiling.x_floats),
        more_launches=int(cf["f"] == 0),
    )  # fmt: skip
