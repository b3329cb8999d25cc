"""Launches the kernels that serve a check, by the names of their buffers."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.kernels.blueprint import Blueprint
from tilewright.runtime.base import Array, Loaded, Memory, Runtime


class Launcher:
    """Runs Blueprints on one device and loads each but once."""

    def __init__(self, runtime: Runtime) -> None:
        """Launch on ``runtime``; nothing is loaded yet."""
        self.runtime = runtime
        self._loaded: dict[Blueprint, Loaded] = {}

    def launch(self, blueprint: Blueprint, memories: Mapping[str, Memory]) -> None:
        """Enqueue the launches of a Blueprint; its workspace is made here."""
        runtime = self.runtime
        if blueprint not in self._loaded:
            self._loaded[blueprint] = runtime.load(runtime.compile(blueprint))
        operands = {**memories, **{b.name: runtime.alloc(b.nbytes) for b in blueprint.workspace}}
        for launch in blueprint.launches:
            runtime.launch(self._loaded[blueprint], launch, [operands[name] for name in launch.args])
        if blueprint.workspace:
            runtime.synchronize()  # the workspace goes as soon as this returns

    def put(self, array: Array) -> Memory:
        """Return a copy of a NumPy array on the device."""
        memory = self.runtime.alloc(array.nbytes)
        self.runtime.upload(memory, array)
        return memory
