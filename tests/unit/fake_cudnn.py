"""A stand-in for cuDNN's front end, on host memory: the calls that the peer makes, as the real one answers.

Its refusals have the real texts: ``tilewright.peers.cudnn_plans`` reads them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilewright.dtypes import numpy_dtype

Conv = Callable[["Graph", np.ndarray, np.ndarray], np.ndarray]


@dataclass
class Engine:
    """One engine: its notes, and how it behaves."""

    notes: tuple[str, ...] = ()
    workspace: int = 0
    refuses: str = ""
    fails: str = ""
    factor: float = 1.0
    tiles: int = 0
    stride: int = 1


@dataclass
class Tensor:
    """A tensor of a graph: given, or what ``make`` computes from the arrays of those that are."""

    dim: list[int] = field(default_factory=list)
    stride: list[int] = field(default_factory=list)
    uid: int = 0
    kind: str = "f32"
    make: Callable[[dict[int, np.ndarray]], np.ndarray] | None = None

    def set_output(self, on: bool) -> None: ...

    def set_data_type(self, kind: str) -> None:
        self.kind = kind

    def set_dim(self, dim: list[int]) -> None:
        self.dim = dim

    def set_stride(self, stride: list[int]) -> None:
        self.stride = stride

    def set_uid(self, uid: int) -> None:
        self.uid = uid

    def of(self, at: dict[int, np.ndarray]) -> np.ndarray:
        return self.make(at) if self.make else at[self.uid].astype(np.float64)


class Graph:
    """A graph of one convolution and its epilogue."""

    def __init__(self, cudnn: Cudnn, **owner: Any) -> None:
        self.cudnn, self.given, self.ops = cudnn, [], []
        self.last = Tensor()
        self.listed: list[tuple[str, int]] = []
        self.barred: set[int] = set()
        self.most: float = float("inf")

    def tensor(self, name: str, dim: list[int], stride: list[int], uid: int, data_type: str) -> Tensor:
        self.given.append(Tensor(dim, stride, uid, data_type))
        return self.given[-1]

    def _then(self, op: str, make: Callable[[dict[int, np.ndarray]], np.ndarray]) -> Tensor:
        self.ops.append(op)
        self.last = Tensor(make=make)
        return self.last

    def conv_fprop(self, x: Tensor, w: Tensor, **shape: Any) -> Tensor:
        self.shape = shape
        return self._then("conv", lambda at: self.cudnn.conv(self, x.of(at), w.of(at)))

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        return self._then("add", lambda at: a.of(at) + b.of(at))

    def mul(self, a: Tensor, b: Tensor, compute_data_type: str = "") -> Tensor:
        self.scaled = compute_data_type
        return self._then("mul", lambda at: a.of(at) * b.of(at))

    def relu(self, a: Tensor, lower_clip: float = 0.0, upper_clip: float = np.inf) -> Tensor:
        return self._then("relu", lambda at: np.clip(a.of(at), lower_clip, upper_clip))

    def leaky_relu(self, a: Tensor, negative_slope: float) -> Tensor:
        return self._then("leaky", lambda at: np.where(a.of(at) < 0, a.of(at) * negative_slope, a.of(at)))

    def swish(self, a: Tensor) -> Tensor:
        return self._then("swish", lambda at: a.of(at) / (1 + np.exp(-a.of(at))))

    def validate(self) -> None: ...

    def build_operation_graph(self) -> None:
        if self.cudnn.refuses & set(self.ops):
            raise RuntimeError("No valid engine configs for this graph")

    def create_execution_plans(self, modes: list[str]) -> None:
        self.listed += [(f"eng{n}_k2=1", n) for n, e in self.cudnn.engines.items() if not e.refuses]

    def get_engine_count(self) -> int:
        return max(self.cudnn.engines) + 2

    def create_execution_plan(self, engine: int, knobs: dict[Any, int]) -> None:
        found = self.cudnn.engines.get(engine, Engine(refuses="CUDNN_STATUS_NOT_SUPPORTED"))
        if found.refuses:
            raise RuntimeError(f"finalize failed, and code: {found.refuses}")
        name = "_".join([f"eng{engine}", *(f"k{kind[-1]}={value}" for kind, value in knobs.items())])
        self.listed.append((name, engine))

    def get_knobs_for_engine(self, engine: int) -> list[Any]:
        tiles, stride = self.cudnn.engines[engine].tiles, self.cudnn.engines[engine].stride
        knob = SimpleNamespace(type="TILE_2", min_value=0, max_value=tiles - 1, stride=stride)
        unnamed = SimpleNamespace(type="knob_type.NOT_SET", min_value=0, max_value=1, stride=1)
        return [knob, unnamed] if tiles else []

    def get_execution_plan_count(self) -> int:
        return len(self.listed)

    def get_plan_name_at_index(self, index: int) -> str:
        return self.listed[index][0]

    def _engine(self, index: int) -> Engine:
        return self.cudnn.engines[self.listed[index][1]]

    def select_numeric_notes(self, notes: list[str]) -> None:
        for note in notes:
            self.barred |= {i for i in range(len(self.listed)) if note not in self._engine(i).notes}

    def deselect_workspace_greater_than(self, most: int) -> None:
        self.most = most

    def build_plan_at_index(self, index: int) -> None:
        if index in self.barred:
            raise RuntimeError("Deselecting execution plan")
        if self._engine(index).workspace > self.most:
            raise RuntimeError("Error: Skipping plan since workspace violation. Requires 0")
        self.cudnn.built.append(self.listed[index][0])
        if self._engine(index).fails == "build":
            raise RuntimeError("nvrtc: no\n  luck")

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return self._engine(index).workspace

    def execute_plan_at_index(self, places: dict[int, int], workspace: int, index: int, handle: Any) -> None:
        if self._engine(index).fails == "run":
            raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")
        assert places.keys() == {t.uid for t in (*self.given, self.last)}, places
        at = {t.uid: _view(places[t.uid], t) for t in self.given}
        y = self.last.of(at) * self._engine(index).factor
        if self.last.kind == "i8":
            y = np.clip(np.rint(y), -128, 127)
        _view(places[self.last.uid], self.last)[...] = y


class Cudnn:
    """The module ``cudnn``."""

    data_type = SimpleNamespace(
        DOUBLE="f64", FLOAT="f32", HALF="f16", BFLOAT16="bf16", INT8="i8", INT32="i32",
        FP8_E4M3="f8",
    )
    heur_mode = SimpleNamespace(A="a", B="b", FALLBACK="c")
    notes = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION", "WINOGRAD", "FFT")
    numerical_note = SimpleNamespace(NONDETERMINISTIC="NONDETERMINISTIC", **{n: n for n in notes})

    def __init__(self, engines: dict[int, Engine], conv: Conv) -> None:
        self.engines, self.conv = engines, conv
        self.built: list[str] = []
        self.refuses: set[str] = set()  # operations in no graph that it takes

    def pygraph(self, **how: Any) -> Graph:
        return Graph(self, **how)

    def create_handle(self) -> object:
        return object()

    def set_stream(self, handle: object, stream: int) -> None:
        assert stream == 5

    def backend_version(self) -> int:
        return 91900

    def backend_version_string(self) -> str:
        return "9.19"


def _view(address: int, tensor: Tensor) -> np.ndarray:
    """The tensor at an address, through its strides."""
    dtype = numpy_dtype(tensor.kind)
    count = 1 + sum((d - 1) * s for d, s in zip(tensor.dim, tensor.stride, strict=True))
    flat = np.ctypeslib.as_array((ctypes.c_byte * (count * dtype.itemsize)).from_address(address)).view(dtype)
    return as_strided(flat, tensor.dim, [dtype.itemsize * s for s in tensor.stride])
