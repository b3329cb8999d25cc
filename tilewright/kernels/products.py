"""What tensor cores multiply where the dtype does not say it: products.h has the same names."""

from __future__ import annotations

PLAIN, TF32, THREE, E4M3, E4M3_AS_F16, HALVES = range(6)

INSTRUCTION = 16 * 8 * 16  # multiply-adds of one of f16 (mma_sync.h); those of i8 and tf32 take as long
