"""What tensor cores multiply if the dtype does not say it (as in products.h); and their fragments."""

from __future__ import annotations

from tilewright.problem import DTYPE_BYTES, Problem

PLAIN, TF32, THREE, E4M3, E4M3_AS_F16, HALVES, DOUBLE = range(7)

INSTRUCTION = 16 * 8 * 16  # multiply-adds of one in f16 (mma_sync.h); those of i8 and tf32 take the same time
INSTRUCTION_F64 = 16 * 8 * 4  # of one in f64 (fragments_f64.h)
WORD, LANES = 4, 4  # bytes of a fragment's register, and lanes that share one of its rows


def tf32_or_plain(pr: Problem) -> int:
    """What a family multiplies that computes f32 tensors only as tf32."""
    return TF32 if pr.math == "tf32" else PLAIN


def products_define(name: str, product: int) -> dict[str, int]:
    """The define ``name`` of what is multiplied; none for PLAIN, which DTYPE says by itself."""
    return {name: product} if product != PLAIN else {}


def packer_of(product: int) -> str:
    """The kernel file that packs a filter, in chunks of 16 bytes, for such products."""
    return {PLAIN: "pack.cu", HALVES: "halves_pack.cu"}.get(product, "mma_pack.cu")


def in_chunk(pr: Problem) -> int:
    """Numbers of the input in a chunk of 16 bytes."""
    return 16 // DTYPE_BYTES[pr.dtype]


def in_word(pr: Problem) -> int:
    """Numbers of the input that a fragment's register holds."""
    return WORD // DTYPE_BYTES[pr.dtype]


def paired(pr: Problem) -> bool:
    """Whether a word of operand A is two numbers, and so of two neighbouring pixels of a plane (PAIRED)."""
    return in_word(pr) == 2
