"""Dtypes of a layer's arrays, layouts, and how f32 is multiplied."""

from __future__ import annotations

from dataclasses import dataclass

DTYPE_BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i8": 1, "i32": 4, "f8": 1, "q8": 1}
DTYPES = ("f64", "f32", "f16", "bf16", "i8")  # of inputs; others hold numbers of one of these (``portable``)
LAYOUTS = ("nchw", "nhwc")
MAX_EXTENT = 1 << 24
MATHS = ("strict", "tf32", "accurate")  # the latter two of f32 tensors


@dataclass(frozen=True)
class ArrayDtypes:
    """The dtypes of a layer's arrays: x and w as stored, bias and z (``added``), and y (``out``)."""

    stored: str
    added: str
    out: str
    portable: str  # of the same numbers in a dtype of DTYPES


ARRAY_DTYPES = {name: ArrayDtypes(name, name, name, name) for name in ("f64", "f32", "f16", "bf16")}
ARRAY_DTYPES["i8"] = ArrayDtypes("i8", "i32", "i32", "i8")
ARRAY_DTYPES["f8"] = ArrayDtypes("f8", "f16", "f16", "f16")  # e4m3; every one is an f16
ARRAY_DTYPES["q8"] = ArrayDtypes("i8", "i32", "i8", "i8")  # i8 whose sums are requantised
STORED = (*DTYPES, "f8")  # what x and w can be
# Whose kernels take the same time, or nearly: one instruction reads f16 or bf16; q8 is i8 that writes less.
TIMED_AS = {"bf16": "f16", "q8": "i8"}
PRECISIONS = (*DTYPES, "f8", "q8", *MATHS[1:])  # what a problem string, or --dtype, can ask for
