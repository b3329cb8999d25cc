"""Words: what the kernels that take every dtype multiply with and sum (see word.h, pack.cu)."""

from __future__ import annotations

from tilewright.arithmetic import ceil_div
from tilewright.device import Device
from tilewright.device.architectures import f64_slots
from tilewright.problem import DTYPE_BYTES, STORED, Problem

CHANNELS_OF_I8 = 4  # in one word, for dot4


def dtype_code(pr: Problem) -> int:
    """Return DTYPE (types.h) of a layer whose input is read as it is stored."""
    return STORED.index(pr.stored)


def word_bytes(pr: Problem) -> int:
    """Bytes of a word, and of a sum."""
    return 8 if pr.dtype == "f64" else 4


def word_registers(pr: Problem) -> int:
    """32-bit registers that hold a word."""
    return word_bytes(pr) // 4


def word_channels(pr: Problem) -> int:
    """Channels that one word holds."""
    return CHANNELS_OF_I8 if pr.is_integer else 1


def words(pr: Problem) -> int:
    """Words of the channels of one group, at one pixel."""
    return ceil_div(pr.cg, word_channels(pr))


def filter_bytes(pr: Problem) -> int:
    """Bytes of the filter in words, without padding."""
    return word_bytes(pr) * pr.k * words(pr) * pr.r * pr.s


def in_tiles(tile: int, channels: int) -> str:
    """Describe pack.cu's order of the filter, with PACK_K and PACK_C words a tile (``Blueprint.packing``)."""
    return f"""\
packed[g][t][c][r * S + s][i] = w[g * K / GROUPS + t * {tile} + i][c][r][s],
i < {tile}, c < {channels}, 0 past the last k or c of a group.
{_A_WORD}"""


_A_WORD = "A word is an f32 (f64 of f64; of i8 four channels, the first in the lowest byte)."
PACKED_FLAT = f"packed[c][r * S + s][k] = w[k][c][r][s], all groups side by side.\n{_A_WORD}"  # PACK_FLAT
PACKED_POINTS = "It is transformed as well (Winograd): leave it to the kernel in the pack source."


def as_words(pr: Problem, aligned: bool = True) -> bool:
    """Whether the input in memory already consists of words, so that copies can bypass registers."""
    in_words = pr.layout_in == "nhwc" and pr.cg % CHANNELS_OF_I8 == 0 and aligned
    return pr.dtype in ("f64", "f32") or (pr.is_integer and in_words)


def read_bytes(pr: Problem) -> float:
    """Bytes of the input from which one word is made."""
    return float(DTYPE_BYTES[pr.dtype] * min(word_channels(pr), pr.cg))


def issue_slots(pr: Problem, device: Device) -> int:
    """Issue slots of a multiply-add of words, relative to one of f32.

    On a CPU an f64 vector has half the lanes instead, and dot4 is some eight instructions. On a GPU dp4a,
    which the CUDA programming guide's table of throughputs leaves out, is taken to be as fast as its integer
    multiply-add: half of f32's.
    """
    if not device.is_gpu:
        return 8 if pr.is_integer else 1
    if pr.dtype == "f64":
        return f64_slots(device.capability)
    return 2 if pr.is_integer else 1
