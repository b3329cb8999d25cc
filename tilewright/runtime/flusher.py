"""Flushes a device's caches: of data by reading a clean buffer, of instructions by running much code.

See ``kernels/untuned/flush.cu`` and ``code.cu``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.kernels.untuned import tools

if TYPE_CHECKING:
    from tilewright.kernels.blueprint import Launch
    from tilewright.runtime.base import Loaded, Memory, Runtime


class Flusher:
    """Reads ``nbytes`` bytes ``reads`` times; then, with ``code``, flushes the instruction caches.

    Buffers and kernels are made on first use.
    """

    def __init__(self, runtime: Runtime, nbytes: int, reads: int = 1, code: bool = False) -> None:
        """Remember what to do."""
        self._runtime, self._nbytes, self._reads = runtime, nbytes, reads
        self._read = tools.flush(runtime.device, nbytes)
        self._code = tools.code(runtime.device) if code else None
        self._steps: list[tuple[Loaded, Launch, list[Memory]]] = []

    def enqueue(self) -> None:
        """Enqueue the reads and the code on the runtime's stream."""
        self._steps = self._steps or self._make()
        for step in self._steps:
            self._runtime.launch(*step)

    def _make(self) -> list[tuple[Loaded, Launch, list[Memory]]]:
        runtime = self._runtime
        buffer, sink = runtime.alloc(self._nbytes), runtime.alloc(64)
        for memory in (buffer, sink):
            runtime.fill(memory, 0)
        read = runtime.load(runtime.compile(self._read)), self._read.launches[0], [buffer, sink]
        if self._code is None:
            return [read] * self._reads
        code = runtime.load(runtime.compile(self._code)), self._code.launches[0], [sink]
        return [*[read] * self._reads, code]
