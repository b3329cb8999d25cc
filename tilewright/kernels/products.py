"""What tensor cores multiply where the dtype does not say it: products.h has the same names."""

from __future__ import annotations

PLAIN, TF32, THREE, E4M3, E4M3_AS_F16, HALVES = range(6)
