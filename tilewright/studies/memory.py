"""Bytes of im2col's columns relative to the input: by the source's formula, and in our ``im2col``."""

from __future__ import annotations

from tilewright.kernels.gemm.im2col import column_bytes
from tilewright.problem import DTYPE_BYTES, Problem, shapes
from tilewright.studies.study import Column, Im2colMemory, PartResult, Value

COLUMNS = (
    Column("layer", "layer"), Column("problem", "problem"), Column("input_bytes", "input", "bytes"),
    Column("formula_bytes", "columns by the formula", "bytes"), Column("growth", "growth", "x"),
    Column("here_bytes", "columns here", "bytes"),
)  # fmt: skip


def run_memory(part: Im2colMemory) -> PartResult:
    """Compute the memory of every layer of the suites."""
    layers = [layer for suite in part.suites for layer in shapes.load([suite])]
    rows: list[dict[str, Value]] = []
    for layer in layers:
        formula = formula_bytes(layer.problem)
        rows.append({
            "layer": layer.name, "problem": str(layer.problem), "input_bytes": float(layer.problem.x_bytes),
            "formula_bytes": float(formula), "growth": formula / layer.problem.x_bytes,
            "here_bytes": float(column_bytes(layer.problem)),
        })  # fmt: skip
    return PartResult(part.title, "memory", part.note, COLUMNS, tuple(rows))


def formula_bytes(pr: Problem) -> int:
    """Return R S (H - R + 1) (W - S + 1) C N elements, in bytes: no padding, no stride, as in the source."""
    places = max(pr.h - pr.r + 1, 0) * max(pr.w - pr.s + 1, 0)
    return pr.r * pr.s * places * pr.c * pr.n * DTYPE_BYTES[pr.dtype]
