"""Arrays on the GPU for peers: through PyTorch, else through CuPy; no peer cares which."""

from __future__ import annotations

import gc
import sys
from contextlib import AbstractContextManager
from typing import Any

from tilewright.errors import PeerError
from tilewright.peers.base import F32, Run, Setting, foreign, load, one_line
from tilewright.problem import Problem


def release() -> None:
    """Give memory that PyTorch and CuPy keep for later back to the GPU, for the next layer's contestants."""
    gc.collect()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.empty_cache()
    if "cupy" in sys.modules:
        sys.modules["cupy"].get_default_memory_pool().free_all_blocks()


class Gpu:
    """Makes arrays whose axes are n, c, h, w whatever their layout in memory, on the setting's stream."""

    def __init__(self, setting: Setting) -> None:
        """Use PyTorch if it sees the GPU, else CuPy.

        Raises:
            PeerError: neither can be used.
        """
        reasons = []
        for library in (_Torch, _Cupy):
            try:
                self._on: _Torch | _Cupy = library(setting)
                return
            except Exception as error:  # absent, or built without CUDA
                reasons.append(one_line(error, 100))
        raise PeerError(f"no arrays on the GPU ({'; '.join(reasons)}); pip install torch, or cupy-cuda13x")

    def put(self, array: F32, layout: str = "nchw") -> Any:
        """Copy an array of axes n, c, h, w to the GPU in a layout."""
        if layout == "nchw":
            return self._on.put(array.copy(order="C"))
        return self._on.permuted(self._on.put(array.transpose(0, 2, 3, 1).copy(order="C")), (0, 3, 1, 2))

    def bytes(self, count: int) -> Any:
        """Allocate raw memory."""
        return self._on.bytes(count)

    def get(self, array: Any) -> F32:
        """Wait for the GPU and copy an array to the host, axes n, c, h, w."""
        return self._on.get(array)

    def address(self, array: Any) -> int:
        """Return where an array starts."""
        return self._on.address(array)

    def on_stream(self) -> AbstractContextManager[Any]:
        """Enqueue on the setting's stream inside the context."""
        return self._on.on_stream()

    def bias_relu(self, y: Any, bias: Any, relu: bool) -> None:
        """Enqueue y += bias, y = max(y, 0), each where wanted, in place."""
        with self.on_stream():
            if bias is not None:
                y += bias
            if relu:
                self._on.relu(y)

    def copying(self, source: Any, target: Any) -> Run:
        """Return a run that copies one array to another of the same shape, whatever the layouts."""

        def run() -> None:
            with self.on_stream():
                target[...] = source

        return run

    def convert_us(self, problem: Problem, setting: Setting, layout: str, x: Any, y: Any) -> float:
        """Time bringing x from, and y to, the problem's layouts where they are not the peer's."""
        x_too, y_too = foreign(problem, layout)
        total = 0.0
        if x_too:
            total += setting.quick_us(self.copying(self.put(self.get(x), problem.layout_in), x))
        if y_too:
            total += setting.quick_us(self.copying(y, self.put(self.get(y), problem.layout_out)))
        return total


class _Torch:
    def __init__(self, setting: Setting) -> None:
        torch = self.torch = load("torch")
        if not torch.cuda.is_available():
            raise PeerError("PyTorch sees no GPU")
        self.where = torch.device("cuda", setting.device.index)
        torch.cuda.set_device(self.where)
        self.handle = setting.stream
        self.streams = {0: torch.cuda.default_stream(self.where)}

    def put(self, array: F32) -> Any:
        tensor = self.torch.from_numpy(array).to(self.where)
        self.torch.cuda.synchronize()
        return tensor

    def permuted(self, array: Any, axes: tuple[int, ...]) -> Any:
        return array.permute(axes)

    def bytes(self, count: int) -> Any:
        return self.torch.empty(max(count, 1), dtype=self.torch.uint8, device=self.where)

    def get(self, array: Any) -> F32:
        self.torch.cuda.synchronize()
        host: F32 = array.cpu().numpy()
        return host

    def address(self, array: Any) -> int:
        return int(array.data_ptr())

    def on_stream(self) -> AbstractContextManager[Any]:
        handle, cuda = self.handle(), self.torch.cuda
        if handle not in self.streams:
            self.streams[handle] = cuda.ExternalStream(handle, device=self.where)
        context: AbstractContextManager[Any] = cuda.stream(self.streams[handle])
        return context

    def relu(self, y: Any) -> None:
        y.clamp_(min=0)


class _Cupy:
    def __init__(self, setting: Setting) -> None:
        cupy = self.cupy = load("cupy")
        cupy.cuda.Device(setting.device.index).use()
        self.handle = setting.stream

    def put(self, array: F32) -> Any:
        made = self.cupy.asarray(array)
        self.cupy.cuda.runtime.deviceSynchronize()
        return made

    def permuted(self, array: Any, axes: tuple[int, ...]) -> Any:
        return array.transpose(axes)

    def bytes(self, count: int) -> Any:
        return self.cupy.empty(max(count, 1), dtype=self.cupy.uint8)

    def get(self, array: Any) -> F32:
        self.cupy.cuda.runtime.deviceSynchronize()
        host: F32 = self.cupy.asnumpy(array)
        return host

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def on_stream(self) -> AbstractContextManager[Any]:
        handle, cuda = self.handle(), self.cupy.cuda
        context: AbstractContextManager[Any] = cuda.ExternalStream(handle) if handle else cuda.Stream.null
        return context

    def relu(self, y: Any) -> None:
        self.cupy.maximum(y, 0, out=y)
