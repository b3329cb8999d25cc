"""A CuPy and a CUDA runtime made of NumPy, to try on any machine what the array interface does on a GPU."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.runtime.host import NumpyRuntime


class ndarray:  # noqa: N801 (CuPy's name)
    """Memory on a pretended GPU; its NumPy twin is ``data_``."""

    def __init__(self, data: Any, device: int = 0) -> None:
        self.data_, self.device = data, SimpleNamespace(id=device)
        self.dtype, self.shape, self.strides, self.nbytes = data.dtype, data.shape, data.strides, data.nbytes
        self.data = SimpleNamespace(ptr=data.ctypes.data)

    def transpose(self, *axes: int) -> ndarray:
        return ndarray(self.data_.transpose(*axes), self.device.id)


class FakeCupy:
    """What the tests see of the module: its current stream and what was launched where."""

    def __init__(self) -> None:
        self.stream, self.waits = 1001, 0
        self.launched: list[int | None] = []
        self.module: Any = ModuleType("cupy")
        self.module.ndarray = ndarray
        self.module.empty = lambda shape, dtype: ndarray(np.empty(shape, dtype))
        self.module.ascontiguousarray = lambda a: ndarray(np.ascontiguousarray(a.data_))
        self.module.cuda = SimpleNamespace(
            Device=_Guard, get_current_stream=lambda: SimpleNamespace(ptr=self.stream)
        )
        self._runtime = FakeCuda(self)

    def array(self, data: Any, device: int = 0) -> ndarray:
        return ndarray(data, device)

    def runtime(self, kind: str | None, index: int = 0) -> FakeCuda:
        assert (kind, index) == ("cuda", 0)
        return self._runtime


class _Guard:
    def __init__(self, index: int) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...


class FakeCuda(NumpyRuntime):
    """Computes at once with NumPy, but says that it is CUDA and notes the streams."""

    def __init__(self, owner: FakeCupy) -> None:
        super().__init__()
        self.owner = owner
        self.unified = False
        self.device = replace(self.device, backend="cuda", name="a pretended GPU")

    def wrap(self, array: Any) -> Any:
        there = (ctypes.c_uint8 * array.nbytes).from_address(array.data.ptr)
        there.keeps = array  # type: ignore[attr-defined]
        return super().wrap(np.frombuffer(there, np.uint8))

    def launch(self, loaded: Any, launch: Any, memories: Any, stream: int | None = None) -> None:
        self.owner.launched.append(stream)
        super().launch(loaded, launch, memories, stream)

    def synchronize(self) -> None:
        self.owner.waits += bool(self.owner.launched)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCupy]:
    fake = FakeCupy()
    monkeypatch.setitem(sys.modules, "cupy", fake.module)
    yield fake
