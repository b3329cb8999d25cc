"""Empties the caches of a device by reading a clean buffer, see ``kernels/untuned/flush.cu``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.kernels.untuned import tools

if TYPE_CHECKING:
    from tilewright.runtime.base import Loaded, Memory, Runtime


class Flusher:
    """Reads ``nbytes`` on demand; the buffer and the kernel are made at the first use."""

    def __init__(self, runtime: Runtime, nbytes: int) -> None:
        """Remember how much to read."""
        self._runtime = runtime
        self._nbytes = nbytes
        self._blueprint = tools.flush(runtime.device, nbytes)
        self._loaded: Loaded | None = None
        self._memories: list[Memory] = []

    def enqueue(self) -> None:
        """Enqueue the read on the runtime's stream."""
        runtime = self._runtime
        if self._loaded is None:
            self._loaded = runtime.load(runtime.compile(self._blueprint))
            self._memories = [runtime.alloc(self._nbytes), runtime.alloc(64)]
            for memory in self._memories:
                runtime.fill(memory, 0)
        runtime.launch(self._loaded, self._blueprint.launches[0], self._memories)
