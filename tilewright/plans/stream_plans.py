"""Per-stream resources of a plan: each stream has its own workspace, constant memory and packed filter."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from tilewright.errors import RunError, TilewrightError
from tilewright.plans.plan import Plan
from tilewright.plans.streams import DEFAULT, PER_THREAD, StreamKey, stream_key, tell_of_end
from tilewright.runtime.base import Memory


@dataclass(eq=False)
class StreamPlan:
    """The resources of one stream.

    Attributes:
        plan: the kernel, with the stream's workspace.
        packed: buffer for a packed filter; None until one was packed here.
        recorded: whether a CUDA graph uses it, which may outlive the thread.
        counted_bytes: bytes that it held when the plans' total was last checked.
    """

    plan: Plan
    packed: Memory | None = None
    recorded: bool = False
    counted_bytes: int = 0

    @property
    def allocated_bytes(self) -> int:
        """Bytes of device memory that it holds now."""
        return self.plan.allocated_bytes + (self.packed.nbytes if self.packed else 0)

    def has_grown(self) -> bool:
        """Whether it holds more than at the last call."""
        before, self.counted_bytes = self.counted_bytes, self.allocated_bytes
        return self.counted_bytes > before

    def pack(self, w: Memory, stream: int | None) -> Memory:
        """Pack a kcrs filter into its own buffer, in stream order."""
        plan = self.plan
        if plan.blueprint.pack is None:
            return w
        if self.packed is None:
            self.packed = plan.runtime.alloc(plan.blueprint.packed_bytes)
        plan.pack_into(w, self.packed, stream)
        return self.packed


class StreamPlans:
    """The resources of all streams of one plan: each stream gets its own at its first call and keeps them for
    the life of the plan; a per-thread default stream for the life of its thread.
    """

    def __init__(self, plan: Plan) -> None:
        """Give the default stream the plan's own workspace."""
        self._plan = plan
        first = StreamPlan(plan, counted_bytes=plan.allocated_bytes)
        self.by_stream: dict[StreamKey, StreamPlan] = {DEFAULT: first}

    @property
    def allocated_bytes(self) -> int:
        """Bytes of device memory that all of them hold now."""
        found = list(self.by_stream.values())
        packed = sum(one.packed.nbytes for one in found if one.packed)
        return packed + sum(plan.allocated_bytes for plan in {one.plan for one in found})

    def of(self, stream: int | None) -> StreamPlan:
        """Return the resources of a stream handle; without CUDA those of the default stream.

        Raises:
            CompileError, OutOfMemory, RunError: the stream is new, and its resources cannot be made.
        """
        if not self._plan.device.is_cuda or stream is None:
            return self.by_stream[DEFAULT]
        key = stream_key(stream)
        if key not in self.by_stream:
            self.by_stream[key] = StreamPlan(self._plan_for(stream))
            tell_of_end(self, key)
        found = self.by_stream[key]
        if stream == PER_THREAD and not found.recorded:
            found.recorded = self._plan.runtime.is_recording(stream)
        return found

    def _plan_for(self, stream: int) -> Plan:
        """Return a plan for another stream, which may already be recording a graph.

        A plan that writes only to the output is shared by all streams: it has no workspace, and fills no
        constant memory, of which a loaded program has only one.
        """
        plan, runtime = self._plan, self._plan.runtime
        if not plan.of_one_stream:
            return plan
        try:
            return Plan.make(runtime, plan.problem, plan.config, plan.why)
        except RunError as error:
            if not runtime.is_recording(stream):
                raise
            what = f"nothing is ready for a stream that is recording a graph: {error}"
            todo = "call the plan once on that stream before, and name it to torch.cuda.graph(g, stream=s)"
            raise RunError(f"{what}; {todo}") from error

    def let_go(self, key: StreamKey) -> None:
        """Free the resources of a thread's own default stream; called on the thread when it ends."""
        found = self.by_stream.get(key)
        if found is not None and not found.recorded:
            with suppress(TilewrightError):  # a device that is broken runs nothing
                self._plan.runtime.finish(key[0])
            del self.by_stream[key]
            found.plan.let_go(key)
