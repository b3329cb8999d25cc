"""The gemv family: a filter as large as the image leaves one pixel: the layer is a matrix-vector product.

A classifier layer. Each number of the filter is used once per image: the limit is how many of its bytes are
in flight.
"""

from __future__ import annotations

from tilewright.arithmetic import ceil_div, offset64, round_up
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Config, Family, Launch, Param, Rule, Values
from tilewright.kernels.limits import (
    BLOCK,
    RESIDENT,
    SPILLS,
    TOO_FULL,
    blocks_param,
    fits_registers,
    fits_shared,
    no_kernels,
    resident,
)
from tilewright.kernels.split_k import (
    ATOMIC_EPILOGUE,
    ATOMIC_SUMS,
    COMBINE_NONE,
    LAST_ORDER,
    SECOND_POOLS,
    combine_param,
    combining,
    operands,
    reduction_buffers,
    share_defines,
)
from tilewright.kernels.tile import ATOMIC, LAST, NONE, TWO_PASS, View, image_defines, up_to
from tilewright.kernels.word import dtype_code, issue_slots, word_channels
from tilewright.kernels.work import CpuWork, GpuWork, Work
from tilewright.problem import DTYPE_BYTES, Problem

MOST_IMAGES = 64
# Share of a CPU's last cache for the filter, which the next images need again. On one core of a Zen 4 each
# took 0.51 of the first one's time with a filter of a quarter of the cache, 0.67 with half, 0.82 with more.
CACHE_SHARE = 0.5
# Instructions of a core to add up each lane of a sum, and to store a sum: counted in PoCL's code for AVX-512.
OF_LANE, OF_SUM = 2.0, 8.0
# Instructions of a core to convert a word, an f32 or four i8. Fitted to 12 configs on a Sapphire Rapids.
WIDENING = {"f16": 4.7, "bf16": 2.6, "i8": 2.3}


def inputs(pr: Problem) -> int:
    """Numbers in one image, which is also those in one row of the filter."""
    return pr.c * pr.r * pr.s


def vector(pr: Problem, device: Device) -> int:
    """Numbers per load of a thread: 16 bytes on a GPU, the widest vector on a CPU."""
    if device.is_gpu:
        return 16 // DTYPE_BYTES[pr.dtype]
    most = 8 if pr.dtype == "i8" else 16  # PoCL cannot load an int16
    return max(4, min(most, device.lanes)) * word_channels(pr)


def share(pr: Problem, device: Device, cf: Values) -> int:
    """Numbers in one share of a row: whole vectors, except in the last share."""
    step = vector(pr, device) * cf["lanes"]
    return round_up(ceil_div(inputs(pr), cf["sg"]), step)


class Gemv(Family):
    """A matrix times one vector, or a few."""

    name = "gemv"
    precisions = ("f32", "f16", "bf16", "i8")
    examples = tuple(f"n3c130h1w1k70r1s1-{dtype}+bias" for dtype in precisions)

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support layers of one output pixel and at most 64 images."""
        if reason := super().refuses(problem, device) or no_kernels(device):
            return reason
        pr = problem
        if (pr.r, pr.s, pr.dilation, pr.pad, pr.groups) != (pr.h, pr.w, (1, 1), (0, 0, 0, 0), 1):
            return "the filter does not cover the whole image, unpadded"
        if pr.layout_in == "nhwc" and pr.h * pr.w > 1 and pr.c > 1:
            return "an image in nhwc lies in another order than the filter"
        return None if pr.n <= MOST_IMAGES else f"more than {MOST_IMAGES} images are a matrix product"

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        gpu = device.is_gpu
        return (
            Param("threads", (32, 64, 128, 256, 512, 1024) if gpu else (1,), "threads of a block"),
            Param("lanes", (8, 16, 32, 64, 128, 256) if gpu else (1,), "threads that share rows"),
            Param("rows", up_to(problem.k, (1, 2, 4, 8, 16)), "rows of the filter a thread"),
            Param("images", up_to(problem.n, (1, 2, 4, 8, 16)), "images a thread"),
            Param("unroll", (1, 2, 4, 8), "vectors of each row under way at once"),
            blocks_param(1, 2, 3, 4, 6, 8) if gpu else blocks_param(1),
            Param("x", (0, 1) if gpu else (0,), "input from global memory or held in shared memory",
                  ("global", "shared") if gpu else ("global",)),
            Param("sg", (1, 2, 3, 4, 6, 8, 16, 32) if gpu else (1,), "shares of a row across the grid"),
            combine_param(NONE, ATOMIC, TWO_PASS, LAST),
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch, or two if a second pass adds up the shares. The filter is used as given."""
        pr, cf = problem, config.values
        block_rows = cf["threads"] // cf["lanes"] * cf["rows"]
        tiles = ceil_div(pr.k, block_rows) * ceil_div(pr.n, cf["images"])
        combine, blocks = cf["combine"], tiles * cf["sg"]
        shared = _shared_bytes(pr, device, cf)
        args = (*operands(combine), "partial", "arrived")
        main = Launch("gemv", (blocks, 1, 1), (cf["threads"], 1, 1), args, shared)
        return Blueprint(
            source="gemv.cu", defines=tuple(_defines(pr, device, cf, aligned, shared).items()),
            launches=combining(main, pr, device, combine),
            packed_bytes=pr.w_bytes,
            workspace=reduction_buffers(pr, cf, blocks * block_rows * cf["images"], tiles),
        )  # fmt: skip

    def work(self, problem: Problem, device: Device, config: Config) -> Work:
        """Count the work of one block, and on a GPU of one thread."""
        return (_work if device.is_gpu else _cpu_work)(problem, device, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """A lane's part of a row, its vector, a tree over the lanes, then the shares one after the other."""
        cf = config.values
        lane = ceil_div(inputs(problem), cf["sg"] * cf["lanes"])
        return lane + 16 + cf["lanes"].bit_length() + cf["sg"]


def _registers(pr: Problem, device: Device, cf: Values) -> int:
    width = vector(pr, device) // word_channels(pr)
    under_way = cf["unroll"] * cf["rows"] * (width if width == 4 else width + 4)
    return cf["rows"] * cf["images"] * width + under_way + 2 * width + 46


def _fits_registers(problem: Problem, device: Device, cf: Values) -> bool:
    if not device.is_gpu:
        return cf["rows"] * cf["images"] <= 16
    return fits_registers(device, _registers(problem, device, cf), cf["threads"] * cf["mb"])


def _shared_bytes(pr: Problem, device: Device, cf: Values) -> int:
    staged = cf["images"] * share(pr, device, cf) // word_channels(pr) if cf["x"] else 0
    return 4 * max(staged, cf["threads"] * cf["rows"] * cf["images"])


RULES = (
    Rule("team", lambda threads, lanes: lanes <= threads, "a team lies in one block"),
    BLOCK,
    Rule("rows", lambda problem, threads, lanes, rows:
         rows <= problem.k and (threads // lanes * rows < 2 * problem.k or (threads <= 32 and rows == 1)),
         "teams without rows"),
    Rule("lanes", lambda problem, device, lanes: lanes * vector(problem, device) < 2 * inputs(problem)
         or lanes <= 32, "lanes without numbers"),
    Rule("registers", _fits_registers, SPILLS, needs="threads rows images unroll mb"),
    RESIDENT,
    Rule("unroll", lambda problem, device, lanes, unroll:
         unroll == 1 or unroll * lanes * vector(problem, device) <= inputs(problem),
         "more under way than a row has"),
    Rule("pieces", lambda problem, device, lanes, sg: sg == 1 or share(
        problem, device, dict(lanes=lanes, sg=sg)) * (sg - 1) < inputs(problem),
        "shares of a row without numbers"),
    Rule("shared", lambda problem, device, cf: fits_shared(
        device, _shared_bytes(problem, device, cf), cf["mb"]), TOO_FULL, "threads lanes rows images mb x sg"),
    COMBINE_NONE,
    LAST_ORDER,
    ATOMIC_EPILOGUE,
    ATOMIC_SUMS,
    SECOND_POOLS,
)  # fmt: skip


def _defines(pr: Problem, device: Device, cf: Values, aligned: bool, shared: int) -> Values:
    width, row = vector(pr, device), inputs(pr)
    block_rows = cf["threads"] // cf["lanes"] * cf["rows"]
    return dict(
        VECTOR=width // word_channels(pr), THREADS=cf["threads"], LANES=cf["lanes"],
        ROWS=cf["rows"], IMAGES=cf["images"],
        UNROLL_PIECES=cf["unroll"], X_SHARED=cf["x"], MIN_BLOCKS=cf["mb"],
        WIDE=int(device.is_gpu and aligned and row % width == 0), DTYPE=dtype_code(pr),
        N=pr.n, C=row, K=pr.k, H=1, W=1, GROUPS_=1, X_NHWC=0, C_SHARE=share(pr, device, cf),
        K_TILES=ceil_div(pr.k, block_rows), P_TILES=1, Q_TILES=1, K_FASTEST=1,
        **image_defines(pr, View(pr.n, 1, 1, 1, 1)), SHARED_BYTES=shared,
        OFFSET64=offset64(pr.w_bytes, pr.x_bytes), **share_defines(cf["combine"], sg=cf["sg"]),
    )  # fmt: skip


def _work(pr: Problem, device: Device, cf: Values) -> GpuWork:
    width, row = vector(pr, device), share(pr, device, cf)
    block_rows = cf["threads"] // cf["lanes"] * cf["rows"]
    blocks = ceil_div(pr.k, block_rows) * ceil_div(pr.n, cf["images"]) * cf["sg"]
    numbers = row / cf["lanes"]  # of a thread, in each of its rows
    turns = numbers / (width * cf["unroll"])
    loads = numbers / width * (cf["rows"] + cf["images"] * (1 - cf["x"]))
    size, sums = DTYPE_BYTES[pr.dtype], cf["rows"] * cf["images"]
    words = numbers / word_channels(pr)
    widen = 0.0 if pr.dtype in ("f32", "i8") else numbers * (cf["rows"] + cf["images"])
    registers = _registers(pr, device, cf)
    shared = _shared_bytes(pr, device, cf)
    held = resident(device, registers, cf["threads"], shared, cf["mb"])
    return GpuWork(
        blocks=blocks, threads=cf["threads"], registers=registers, resident=held, streams=True,
        shared_bytes=shared, steps=max(1, round(turns)),
        buffers=2,  # nothing is staged, but an iteration's loads are in flight at once, as a stage's copies
        fma=words * sums * issue_slots(pr, device), shared_loads=words * cf["images"] * cf["x"],
        global_loads=loads / 8,
        staging=loads * 2.0 + widen + turns * 6.0, epilogue=40.0 + sums * cf["lanes"].bit_length() * 6.0,
        wavefronts=cf["threads"] / 32 * words * cf["images"] * cf["x"],
        load_bytes=float(size) * row * (block_rows + cf["images"]),
        store_sectors=block_rows / 8 * cf["images"],
        dram_bytes=pr.x_bytes + pr.w_bytes * ceil_div(pr.n, cf["images"]) + pr.y_bytes,
        shares=cf["sg"], combine=cf["combine"],
        partial_bytes=0.0 if cf["combine"] == NONE else 4.0 * pr.z_elements * cf["sg"],
        tile_bytes=4.0 * block_rows * cf["images"], useful=pr.k / (round_up(pr.k, block_rows)),
        register_intensity=2.0 * sums / (cf["rows"] + cf["images"]),
        block_intensity=2.0 * block_rows * cf["images"] / (block_rows + cf["images"]),
    )  # fmt: skip


def _cpu_work(pr: Problem, device: Device, cf: Values) -> CpuWork:
    rows, images = cf["rows"], cf["images"]
    row_tiles, image_tiles, sums = ceil_div(pr.k, rows), ceil_div(pr.n, images), rows * images
    numbers, blocks = share(pr, device, cf), row_tiles * image_tiles
    size, width = DTYPE_BYTES[pr.dtype], vector(pr, device) // word_channels(pr)
    turns = numbers // vector(pr, device)
    filter_tile, input_tile = float(size * rows * numbers), size * images * numbers
    kept = pr.w_bytes <= CACHE_SHARE * device.l2_bytes  # for the next images
    return CpuWork(
        blocks=blocks, dram_bytes=pr.x_bytes + pr.w_bytes * (1 if kept else image_tiles) + pr.y_bytes,
        combine=cf["combine"], partial_bytes=0.0 if cf["combine"] == NONE else 4.0 * pr.z_elements,
        useful=pr.k * pr.n / (blocks * sums),
        register_intensity=2.0 * sums / (rows + images), block_intensity=2.0 * sums / (rows + images),
        vectors=sums + rows + 1, width=width, multiply_adds=float(turns * sums * issue_slots(pr, device)),
        filter_loads=float(turns * rows), input_loads=float(turns * images), turns=turns,
        copying=turns * width * (rows + images) * WIDENING.get(pr.dtype, 0.0),
        storing=sums * (OF_LANE * width + OF_SUM),
        filter_bytes=filter_tile, filter_once_bytes=filter_tile, filter_tile_bytes=filter_tile,
        input_bytes=float(input_tile), input_tile_bytes=input_tile,
    )  # fmt: skip
