"""The toeplitz family: depthwise convolution on tensor cores, a row of the filter as a Toeplitz matrix.

On CUDA cores a layer of 7x7 at batch 16, or of 31x31, is bound by its multiply-adds and their loads.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Buffer, Config, Family, Launch, Param, Rule, Values
from tilewright.kernels.limits import fits_registers, fits_shared, no_gpu, resident
from tilewright.kernels.shares import SUM_THREADS, combine_param, operands, pool_apart, second_pass
from tilewright.kernels.tile import COMBINE_NAMES, NONE, TWO_PASS, View, ceil_div, image_defines, up_to
from tilewright.kernels.work import GpuWork
from tilewright.problem import DTYPES, Problem

MOST_WINDOW = 96  # inputs under eight outputs: more registers of a row than a thread has to spare
UNROLLED = 96  # products of an unrolled loop over a filter's rows: more overflow the instruction cache
MOST_HELD = 8  # loads of 16 bytes under way of a thread
ROUND_CYCLES = 2000.0  # until rows that a warp loads have come (fitted to 143 trials of 11 layers on an H100)
PRODUCT = 16 * 8 * 16  # multiply-adds of an instruction
EIGHT, BAND = 8, 16  # outputs of a row, and rows, of a product


class Toeplitz(Family):
    """Depthwise layers on tensor cores."""

    name = "toeplitz"
    dtypes = ("f16", "bf16")
    widens = False
    plain = False  # a window's inputs that an output has no part in are multiplied by zeros

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Take depthwise layers, on a device that has tensor cores."""
        if reason := super().refuses(problem, device) or no_gpu(device):
            return reason
        if not device.tensor_macs:
            return "the device has no tensor cores with the products of sm_80"
        if not problem.cg == problem.kg == 1 or problem.groups == 1:
            return "it is made for depthwise layers: a group for each channel"
        if "nhwc" in (problem.layout_in, problem.layout_out) and problem.c % EIGHT:
            return "in nhwc it moves eight channels at a time, and has not a multiple of eight"
        if window(problem) > MOST_WINDOW:
            return f"eight outputs of a row see more than {MOST_WINDOW} columns"
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Offer the tunables, outermost choice first."""
        together = EIGHT if "nhwc" in (problem.layout_in, problem.layout_out) else 1
        return (
            Param("cb", tuple(c for c in (1, 2, 4, 8, 16, 32) if c % together == problem.c % c == 0),
                  "channels of a block"),
            Param("th", up_to(problem.p + BAND - 1, (16, 32, 48)), "output rows of a block"),
            Param("wb", up_to(ceil_div(problem.q, EIGHT), (1, 2, 3, 4, 6, 7, 8, 10, 14)),
                  "eights of output columns of a block"),
            Param("warps", (1, 2, 4, 8, 16), "warps of a block, which share its channels"),
            Param("mb", (1, 2, 3, 4, 6, 8, 12, 16),
                  "blocks that a unit holds at once (bounds the registers of a thread)"),
            combine_param(NONE, TWO_PASS),
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """State what the hardware and the kernel forbid."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Lay out one launch, two where there is a pool."""
        cf = config.values
        sz, combine = sizes(problem, cf), cf["combine"]
        main = Launch(
            "toeplitz", (sz.blocks, 1, 1), (32 * cf["warps"], 1, 1), operands(combine),
            shared_bytes=sz.shared_bytes,
        )  # fmt: skip
        return Blueprint(
            source="toeplitz.cu", defines=tuple(_defines(problem, sz, cf, aligned).items()),
            launches=(main, *second_pass(problem, combine, chained=False)),
            packed_bytes=2 * problem.k * problem.r * sz.taps,
            pack=(("PACK_TAPS", sz.taps), ("PACK_FIRST", slope(problem)), ("PACK_STEP", problem.dilation[1])),
            packer="toeplitz_pack.cu",
            workspace=(Buffer("partial", 4 * problem.z_elements),) if combine == TWO_PASS else (),
        )  # fmt: skip

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count what one block and one thread do."""
        return _work(problem, device, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """All products of the windows, of which some are with zeros."""
        return problem.r * 16 * steps(problem)


def window(pr: Problem) -> int:
    """Columns of the input under eight neighbouring outputs."""
    return (EIGHT - 1) * pr.stride[1] + (pr.s - 1) * pr.dilation[1] + 1


def steps(pr: Problem) -> int:
    """Products of 16 inputs that make up a window (KS)."""
    return ceil_div(window(pr), 16)


def slope(pr: Problem) -> int:
    """Zeros before a row of the filter: the last of eight outputs takes none of the first inputs."""
    return (EIGHT - 1) * pr.stride[1]


@dataclass(frozen=True)
class Sizes:
    """Sizes that follow from a problem and a config; the kernel's defines of the same names.

    Lengths are in numbers of two bytes, except ``shared_bytes`` and ``eights``, the kernel's NC: pieces of
    16 bytes of a row.
    """

    k_tiles: int
    p_tiles: int
    q_tiles: int
    blocks: int
    rows: int
    eights: int
    pitch: int
    plane: int
    skew: int
    tile: int
    taps: int
    shared_bytes: int
    items: int

    @property
    def fragments(self) -> int:
        """Loads of a band: 16 rows by two eights each."""
        return ceil_div(self.eights, 2)


def sizes(pr: Problem, cf: Values) -> Sizes:
    """Work out the sizes of a config."""
    cb, th, wb = cf["cb"], cf["th"], cf["wb"]
    rows = (th - 1) * pr.stride[0] + (pr.r - 1) * pr.dilation[0] + 1
    eights = (wb - 1) * pr.stride[1] + 2 * steps(pr)
    pitch = EIGHT * (eights | 1)
    sums = th * EIGHT * (wb | 1) * (2 if cf["combine"] == TWO_PASS else 1) if pr.layout_out == "nhwc" else 0
    plane = max(rows * pitch, sums)
    skew = 256 // cb if cb > EIGHT else 0  # a warp that stages all eights of channels writes to all banks
    tile = cb * plane + ceil_div(cb, EIGHT) * skew + EIGHT  # the last row is loaded two eights at a time
    taps = ceil_div(16 * steps(pr) + slope(pr), EIGHT) * EIGHT
    items = cb * rows * eights  # of eight numbers
    k_tiles, p_tiles, q_tiles = pr.k // cb, ceil_div(pr.p, th), ceil_div(pr.q, EIGHT * wb)
    return Sizes(
        k_tiles, p_tiles, q_tiles, pr.n * k_tiles * p_tiles * q_tiles, rows, eights, pitch, plane, skew, tile,
        taps, 2 * (tile + cb * pr.r * taps), items,
    )  # fmt: skip


def _turns(pr: Problem, sz: Sizes, cf: Values) -> tuple[int, int]:
    """Loads of a lane for a row, and turns of its warp: a row each, or of nchw all that it has lanes for."""
    if pr.layout_in == "nhwc":
        step = 32 * EIGHT // cf["cb"]
        return ceil_div(EIGHT * sz.eights, step), ceil_div(sz.rows, cf["warps"])
    return 1, ceil_div(sz.rows, 32 // sz.eights)


def _held(pr: Problem, sz: Sizes, cf: Values) -> int:
    """Rows of a lane that are under way at once: as many in each turn of the loop over them."""
    each, turns = _turns(pr, sz, cf)
    return ceil_div(turns, ceil_div(turns, max(1, MOST_HELD // each)))


def _rounds(pr: Problem, sz: Sizes, cf: Values) -> int:
    """Times that a warp waits for rows to come, one after the other."""
    channels = 1 if pr.layout_in == "nhwc" else cf["cb"] // cf["warps"]
    return channels * ceil_div(_turns(pr, sz, cf)[1], _held(pr, sz, cf))


def _products(pr: Problem, cf: Values) -> int:
    """Products of a warp for a row of the filter of one channel."""
    return cf["th"] // BAND * cf["wb"] * steps(pr)


def _registers(pr: Problem, cf: Values) -> int:
    sz = sizes(pr, cf)
    summing = 4 * (cf["th"] // BAND) * cf["wb"] + 2 * sz.fragments + 2 * steps(pr) + 46
    return max(summing, 4 * _held(pr, sz, cf) * _turns(pr, sz, cf)[0] + 44)


def _fits_registers(problem: Problem, device: Device, cf: Values) -> bool:
    return fits_registers(device, _registers(problem, cf), 32 * cf["warps"] * cf["mb"], spare=5)


RULES = (
    Rule("rows", lambda problem, th: th - BAND < problem.p, "rows without outputs"),
    Rule("columns", lambda problem, wb: EIGHT * (wb - 1) < problem.q, "columns without outputs"),
    Rule("row", lambda problem, wb: (wb - 1) * problem.stride[1] + 2 * steps(problem) <= 32,
         "a row of the tile is more than a warp loads at once"),
    Rule("channels", lambda cb, warps: cb % warps == 0, "each warp takes as many channels"),
    Rule("resident", lambda device, warps, mb: 32 * warps * mb <= device.threads_per_unit,
         "more threads than a unit holds at once"),
    Rule("registers", _fits_registers, "more registers than a thread or a unit has: the compiler would spill",
         needs="th wb warps mb cb combine"),
    Rule("shared", lambda problem, device, cf: fits_shared(device, sizes(problem, cf).shared_bytes, cf["mb"]),
         "more shared memory than a block may have", needs="cb th wb mb combine"),
    Rule("pool", lambda problem, combine: combine == pool_apart(problem),
         "the second kernel is there to pool"),
)  # fmt: skip


def _defines(pr: Problem, sz: Sizes, cf: Values, aligned: bool) -> Values:
    products = _products(pr, cf)
    return dict(
        SHARED_BYTES=sz.shared_bytes, DTYPE=DTYPES.index(pr.dtype),
        CB=cf["cb"], TH=cf["th"], WBT=cf["wb"], WARPS=cf["warps"], MIN_BLOCKS=cf["mb"], COMBINE=cf["combine"],
        KS=steps(pr), NC=sz.eights, PITCH=sz.pitch, PLANE=sz.plane, SKEW=sz.skew, TILE=sz.tile, TAPS=sz.taps,
        R_UNROLLED=max(1, min(pr.r, UNROLLED // products)), VECTORS=int(aligned),
        HELD=_held(pr, sz, cf),
        N=pr.n, C=pr.c, H=pr.h, W=pr.w, K=pr.k, R=pr.r, S=pr.s, GROUPS_=1,
        STR_H=pr.stride[0], STR_W=pr.stride[1], DIL_H=pr.dilation[0], DIL_W=pr.dilation[1],
        PAD_T=pr.pad[0], PAD_L=pr.pad[2], X_NHWC=int(pr.layout_in == "nhwc"),
        K_TILES=sz.k_tiles, P_TILES=sz.p_tiles, Q_TILES=sz.q_tiles, K_FASTEST=int(pr.layout_in == "nhwc"),
        SC=1, SG=1, STEPS=1, CS=1, SUM_THREADS=SUM_THREADS,
        **image_defines(pr, View(pr.n, pr.h, pr.w, pr.p, pr.q)),
        OFFSET64=int(max(pr.n * pr.c * pr.h * pr.w, pr.z_elements) >= 1 << 30),
    )  # fmt: skip


def _work(pr: Problem, device: Device, cf: Values) -> GpuWork:
    sz, warps = sizes(pr, cf), cf["warps"]
    threads, channels = 32 * warps, cf["cb"] / warps
    rows = channels * pr.r  # of the filter, for a warp
    products = rows * _products(pr, cf)
    loads = rows * (cf["th"] // BAND) * sz.fragments
    nhwc, out_nhwc = pr.layout_in == "nhwc", pr.layout_out == "nhwc"
    items, copies = sz.items / threads, cf["cb"] * pr.r * sz.taps / EIGHT / threads
    outputs = cf["cb"] * cf["th"] * EIGHT * cf["wb"]
    out_bytes = 4 if cf["combine"] == TWO_PASS else 2
    lone = 2.0 if cf["cb"] == EIGHT else 1.0  # half of a sector of nhwc: the other half is another block's
    stored = outputs * out_bytes / 32
    resident_ = resident(device, _registers(pr, cf), threads, sz.shared_bytes, cf["mb"])
    inputs = sz.items * EIGHT
    return GpuWork(
        blocks=sz.blocks, threads=threads, registers=_registers(pr, cf), resident=resident_,
        shared_bytes=sz.shared_bytes, steps=_rounds(pr, sz, cf), buffers=0,
        fma=products, shared_loads=loads + rows * 6.0 * steps(pr), global_loads=0.0,
        staging=items * (17.0 if nhwc else 24.0) + copies * 5.0,
        epilogue=outputs / threads * (6.0 if out_nhwc else 4.0),
        wavefronts=0.6 * (4.0 * loads * warps + (inputs / 32 if nhwc else inputs / 64)
                          + (outputs / 16 if out_nhwc else 0.0)),
        load_bytes=2.0 * inputs * (lone if nhwc else 1.0) + 2.0 * cf["cb"] * pr.r * sz.taps,
        store_sectors=stored * (lone if out_nhwc else 2.0),
        dram_bytes=float(pr.x_bytes + 2 * pr.k * pr.r * sz.taps + pr.y_bytes), cluster=1, shares=1,
        combine=COMBINE_NAMES[cf["combine"]],
        partial_bytes=4.0 * pr.z_elements * (cf["combine"] == TWO_PASS),
        tile_bytes=4.0 * outputs, useful=pr.z_elements / (outputs * sz.blocks),
        register_intensity=2.0 * PRODUCT * products / max(1.0, loads * 256),
        block_intensity=2.0 * pr.r * pr.s * outputs / max(1, inputs),
        tensor_cycles=products * warps * PRODUCT / device.tensor_macs, turn_cycles=ROUND_CYCLES,
    )  # fmt: skip
