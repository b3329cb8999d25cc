"""The narrow family: last layers in f32 on CUDA cores; a thread computes all of a pixel's few channels.

The other families' tiles of output channels would be mostly empty here, and their staging delays memory.
"""

from __future__ import annotations

from tilewright.arithmetic import ceil_div, offset64
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Config, Family, Param, Rule, Values
from tilewright.kernels.limits import (
    MOST_BODY,
    blocks_param,
    fits_shared,
    no_gpu,
    registers_rule,
    shared_rule,
    thread_rule,
    warps_rules,
)
from tilewright.kernels.narrow.tile import (
    RUN,
    edge,
    filter_bytes,
    registers,
    rows,
    shared_bytes,
    sums,
    taps,
    team,
    tile,
    whole,
)
from tilewright.kernels.narrow.work import work_of
from tilewright.kernels.split_k import POOL_APART, POOL_PARAM
from tilewright.kernels.tile import View, image_defines, layer_defines, rows_under
from tilewright.kernels.whole_sums import tiles_defines, whole_sums
from tilewright.kernels.word import dtype_code
from tilewright.kernels.work import GpuWork
from tilewright.problem import Problem

MOST_CHANNELS = 16
MOST_TAPS = 64  # of all output channels: a thread holds those of an input channel in registers
MOST_ROWS = 31  # of the input, under a thread
ZEROS_BYTES = 32  # after the packed filter: as many as a lane loads of a row


class Narrow(Family):
    """Last layers on CUDA cores."""

    name = "narrow"
    examples = ("n2c10h9w12k2r3s3p1-f32+bias", "n1c12h9w11k3r3s3p1-f32-nchw2nhwc")

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Support layers of few output channels in nchw, on a GPU."""
        if reason := super().refuses(problem, device) or no_gpu(device):
            return reason
        if problem.layout_in != "nchw":
            return "neighbouring lanes read neighbouring columns: it takes x in nchw"
        if problem.groups > 1:
            return "it is made for layers of one group"
        if problem.stride != (1, 1) or problem.dilation != (1, 1):
            return "a thread's rows and columns lie side by side: it takes neither stride nor dilation"
        if problem.k > MOST_CHANNELS or taps(problem) > MOST_TAPS:
            most = f"{MOST_CHANNELS} output channels, {MOST_TAPS} taps of all"
            return f"it is made for few output channels, at most {most}"
        if problem.r > MOST_ROWS:
            return f"a thread has rows of the input as bits of a word: at most {MOST_ROWS} rows of a filter"
        if problem.pad[2] >= problem.s or edge(problem) > RUN:
            return f"a thread sees more than {RUN} columns of the next one, or none of its own"
        if not fits_shared(device, filter_bytes(problem), 1):
            return "its filter is more than a block's shared memory"
        return None

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Return the tunables, outermost choice first."""
        return (
            POOL_PARAM,
            Param("th", (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16), "output rows of a thread"),
            Param("tw", (4, 8), "output columns of a thread"),
            Param("depth", (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12), "rows of the input on their way"),
            Param("bw", (4, 8, 16, 32, 64, 96, 128, 256), "threads of a block across"),
            Param("split", (1, 2, 4, 8, 16), "shares of C in a block"),
            Param("warps", (1, 2, 4, 8, 12, 16), "warps of a block"),
            blocks_param(1, 2, 3, 4, 6, 8, 12),
        )  # fmt: skip

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """Return the rules: limits of the hardware and the kernel."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Return the launch, or two if there is a pool."""
        cf = config.values
        hb, wb = tile(cf)
        p_tiles, q_tiles = ceil_div(problem.p, hb), ceil_div(problem.q, wb)
        view = View.unflattened(problem)
        # Loading number by number takes more registers, which no rule has checked for this variant.
        ahead = dict(DEPTH=cf["depth"], MIN_BLOCKS=cf["mb"]) if aligned else dict(DEPTH=1, MIN_BLOCKS=1)
        defines: Values = dict(
            DTYPE=dtype_code(problem), SHARED_BYTES=shared_bytes(problem, cf),
            TH=cf["th"], TW=cf["tw"], BW=cf["bw"], SPLIT=cf["split"], TEAM=team(cf),
            WHOLE=int(aligned and whole(problem, cf)), **ahead,
            **layer_defines(problem, view), **image_defines(problem, view),
            **tiles_defines(cf["combine"], 1, p_tiles, q_tiles),
            OFFSET64=offset64(problem.x_bytes, 4 * problem.z_elements),
        )  # fmt: skip
        return whole_sums(
            self.name, problem, cf["combine"], problem.n * p_tiles * q_tiles, 32 * cf["warps"], defines,
            filter_bytes(problem) + ZEROS_BYTES, (), packer="narrow_pack.cu", chained=False,
        )  # fmt: skip

    def work(self, problem: Problem, device: Device, config: Config) -> GpuWork:
        """Count the work of one block and one thread."""
        return work_of(problem, device, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """Length of the longest chain of adds: the products of a share, then the shares."""
        return problem.c // config["split"] * problem.r * problem.s + config["split"]


RULES = (
    Rule("rows", lambda problem, th: th <= problem.p and rows_under(problem, th) <= MOST_ROWS,
         "a thread of more rows than there are, or than bits of a word"),
    Rule("body", lambda problem, cf: sums(problem, cf) * problem.r * problem.s <= MOST_BODY,
         "more multiply-adds in a loop's body than the instruction cache holds", needs="th tw"),
    Rule("depth", lambda problem, cf: rows(problem, cf) % cf["depth"] == 0,
         "a channel's rows come in whole rounds", needs="th depth"),
    thread_rule(registers, "th tw depth"),
    Rule("across", lambda problem, tw, bw: bw == 4 or (bw // 2) * tw < problem.q,
         "half of the threads beside the image"),
    Rule("shares", lambda problem, split: problem.c % split == 0, "each share takes as many channels"),
    Rule("share_warps", lambda split, warps: warps % split == 0, "each share has as many warps"),
    Rule("whole", lambda bw, split, warps: 32 * warps // split % bw == 0, "a block is whole rows of threads"),
    *warps_rules("warps"),
    registers_rule(registers, lambda cf: 32 * cf["warps"], "th tw depth warps mb"),
    shared_rule(shared_bytes, "th tw split warps mb"),
    POOL_APART,
)  # fmt: skip
