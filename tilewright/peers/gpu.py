"""Arrays on the GPU for peers: by PyTorch, or by CuPy without it; most peers accept either."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tilewright.arrays.use import on_host, to_nchw
from tilewright.checking.inputs import Inputs
from tilewright.errors import PeerError
from tilewright.peers.base import Array, Contestant, Setting, as_nchw, as_output, foreign, load, one_line
from tilewright.peers.eager import Step, eager, to_tensor
from tilewright.problem import Problem
from tilewright.runtime.base import Run
from tilewright.runtime.pools import trim_pools


def release() -> None:
    """Free the memory that PyTorch and CuPy cache, for the next layer's contestants."""
    gc.collect()
    trim_pools()


@dataclass(frozen=True, eq=False)
class GpuInputs:
    """A problem's inputs on the GPU, of axes n, c, h, w in one layout; ``w_kcrs`` is the filter as given."""

    x: Any
    w: Any
    w_kcrs: Any
    bias: Any = None
    z: Any = None
    scale: Any = None


class GpuArrays(ABC):
    """Makes arrays on the GPU by one library; their axes are n, c, h, w in any memory layout."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    @abstractmethod
    def copied(self, array: Array) -> Any:
        """Copy a contiguous host array to the GPU, and wait."""

    @abstractmethod
    def bytes(self, count: int) -> Any:
        """Allocate raw memory."""

    @abstractmethod
    def get(self, array: Any) -> Array:
        """Wait for the GPU and copy an array to the host, axes n, c, h, w."""

    @abstractmethod
    def on_stream(self) -> AbstractContextManager[Any]:
        """Enqueue on the setting's stream inside the context."""

    def address(self, array: Any) -> int:
        """Return the address of an array."""
        return int(array.data_ptr() if hasattr(array, "data_ptr") else array.data.ptr)

    def eager(self, problem: Problem, placed: GpuInputs, done: Collection[str]) -> Step:
        """Return the remaining steps of the epilogue as separate operations.

        Raises:
            PeerError: some steps remain, and the library has no such operations.
        """
        raise PeerError("an epilogue apart from the convolution needs PyTorch")

    def place(self, problem: Problem, inputs: Inputs, layout: str) -> GpuInputs:
        """Copy a problem's inputs to the GPU, all in one layout; the bias has the shape (1, K, 1, 1)."""
        z = None if inputs.z is None else self.put(as_nchw(inputs.z, problem.layout_out), layout)
        bias = self.put(inputs.bias.reshape(1, -1, 1, 1)) if problem.epilogue.bias else None
        x, w_kcrs = self.put(as_nchw(inputs.x, problem.layout_in), layout), self.put(inputs.w)
        scale = None if inputs.scale is None else self.put(inputs.scale.reshape(1, -1, 1, 1))
        w = w_kcrs if layout == "nchw" else self.put(inputs.w, layout)
        return GpuInputs(x, w, w_kcrs, bias, z, scale)

    def put(self, array: Array, layout: str = "nchw") -> Any:
        """Copy an array of axes n, c, h, w to the GPU in a layout."""
        if layout == "nchw":
            return self.copied(array.copy(order="C"))
        return to_nchw(self.copied(array.transpose(0, 2, 3, 1).copy(order="C")))

    def copying(self, source: Any, target: Any) -> Run:
        """Return a run that copies one array to another of the same shape, whatever the layouts."""

        def run() -> None:
            with self.on_stream():
                target[...] = source

        return run

    def contestant(
        self, peer: str, name: str, detail: str, problem: Problem, layout: str, placed: GpuInputs,
        run: Run, last: list[Any],
    ) -> Contestant:  # fmt: skip
        """Make a contestant of ``run``, which leaves its result in ``last``; run it once."""
        run()
        return Contestant(
            peer, name, detail, layout, run, lambda: as_output(self.get(last[0]), problem),
            pack_us=self._pack_us(layout, placed),
            convert_us=self._convert_us(problem, layout, placed, last[0]),
        )  # fmt: skip

    def _pack_us(self, layout: str, placed: GpuInputs) -> float:
        """Time the conversion of the filter from kcrs to a layout."""
        return 0.0 if layout == "nchw" else self._setting.quick_us(self.copying(placed.w_kcrs, placed.w))

    def _convert_us(self, problem: Problem, layout: str, placed: GpuInputs, y: Any) -> float:
        """Time converting x and z from, and y to, the problem's layouts, if they are not the peer's."""
        x_too, y_too = foreign(problem, layout)
        inputs = [(placed.x, problem.layout_in)] if x_too else []
        inputs += [(placed.z, problem.layout_out)] if y_too and placed.z is not None else []
        total = 0.0
        for array, at in inputs:
            total += self._setting.quick_us(self.copying(self.put(self.get(array), at), array))
        if y_too:
            total += self._setting.quick_us(self.copying(y, self.put(self.get(y), problem.layout_out)))
        return total


class TorchArrays(GpuArrays):
    """Tensors of PyTorch, which also has the operations of an epilogue."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        torch = self.torch = load("torch")
        if not torch.cuda.is_available():
            raise PeerError("PyTorch sees no GPU")
        self.where = torch.device("cuda", setting.device.index)
        torch.cuda.set_device(self.where)
        self.streams = {0: torch.cuda.default_stream(self.where)}

    def wait(self) -> None:
        self.torch.cuda.synchronize()

    def copied(self, array: Array) -> Any:
        tensor = to_tensor(array).to(self.where)
        self.wait()
        return tensor

    def bytes(self, count: int) -> Any:
        return self.torch.empty(max(count, 1), dtype=self.torch.uint8, device=self.where)

    def get(self, array: Any) -> Array:
        self.wait()
        host: Array = on_host(array.cpu())
        return host

    def on_stream(self) -> AbstractContextManager[Any]:
        handle, cuda = self._setting.stream(), self.torch.cuda
        if handle not in self.streams:
            self.streams[handle] = cuda.ExternalStream(handle, device=self.where)
        context: AbstractContextManager[Any] = cuda.stream(self.streams[handle])
        return context

    def eager(self, problem: Problem, placed: GpuInputs, done: Collection[str]) -> Step:
        return eager(problem.epilogue, placed.bias, placed.z, done, placed.scale)


class CupyArrays(GpuArrays):
    """Arrays of CuPy."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        cupy = self.cupy = load("cupy")
        cupy.cuda.Device(setting.device.index).use()

    def copied(self, array: Array) -> Any:
        if array.dtype.name == "bfloat16":
            raise PeerError("bf16 arrays on the GPU need PyTorch")
        made = self.cupy.asarray(array)
        self.cupy.cuda.runtime.deviceSynchronize()
        return made

    def bytes(self, count: int) -> Any:
        return self.cupy.empty(max(count, 1), dtype=self.cupy.uint8)

    def get(self, array: Any) -> Array:
        self.cupy.cuda.runtime.deviceSynchronize()
        host: Array = self.cupy.asnumpy(array)
        return host

    def on_stream(self) -> AbstractContextManager[Any]:
        handle, cuda = self._setting.stream(), self.cupy.cuda
        context: AbstractContextManager[Any] = cuda.ExternalStream(handle) if handle else cuda.Stream.null
        return context


def gpu_arrays(setting: Setting) -> GpuArrays:
    """Use PyTorch if it sees the GPU, else CuPy.

    Raises:
        PeerError: neither can be used.
    """
    reasons = []
    for library in (TorchArrays, CupyArrays):
        try:
            return library(setting)
        except Exception as error:  # absent, or built without CUDA
            reasons.append(one_line(error, 100))
    raise PeerError(f"no arrays on the GPU ({'; '.join(reasons)}); pip install torch, or cupy-cuda13x")
