"""Per-stream resources of a plan: each stream has its own workspace, constant memory and packed filter."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from tilewright.errors import RunError, TilewrightError
from tilewright.plans.plan import Plan
from tilewright.plans.streams import DEFAULT, PER_THREAD, StreamKey, stream_key, tell_of_end
from tilewright.runtime.base import Memory

MOST_STREAMS = 32  # that keep their resources for the life of the plan; of later ones as many, the last used


@dataclass(eq=False)
class StreamPlan:
    """The resources of one stream.

    Attributes:
        plan: the kernel, with the stream's workspace.
        lasting: whether it is kept for the life of the plan: it is of one of the first streams, or a CUDA
            graph uses it, which may outlive the stream.
        packed: buffer for a packed filter; None until one was packed here.
        counted_bytes: bytes that it held when the plans' total was last checked.
    """

    plan: Plan
    lasting: bool
    packed: Memory | None = None
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
    """The resources of all streams of one plan: each stream gets its own at its first call.

    The first ``MOST_STREAMS`` keep them for the life of the plan, a per-thread default stream for the life of
    its thread. Programs that make streams without end would fill the device: of later streams those not used
    for longest lose theirs, and get new ones if they come again.
    """

    def __init__(self, plan: Plan) -> None:
        """Give the default stream the plan's own workspace."""
        self._plan, self._has_streams = plan, plan.device.is_cuda
        first = StreamPlan(plan, lasting=True, counted_bytes=plan.allocated_bytes)
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
        if stream is None or not self._has_streams:
            return self.by_stream[DEFAULT]
        key = stream_key(stream)
        found = self.by_stream.get(key) or self._new(key, stream)
        if not found.lasting:
            found.lasting = self._plan.runtime.is_recording(stream)
            self.by_stream[key] = self.by_stream.pop(key)  # the last used
        return found

    def _new(self, key: StreamKey, stream: int) -> StreamPlan:
        """Make the resources of a stream; those of the later stream that was not used for longest may go."""
        found = list(self.by_stream.items())
        later = [one for one, own in found if one[0] != PER_THREAD and not own.lasting]
        if len(later) >= MOST_STREAMS:
            self._free(later[0])
        first = key[0] != PER_THREAD and sum(own.lasting for _, own in found) < MOST_STREAMS
        made = self.by_stream[key] = StreamPlan(self._plan_for(stream), lasting=first)
        tell_of_end(self, key)
        return made

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
        if found is not None and not found.lasting:
            with suppress(TilewrightError):  # a device that is broken runs nothing
                self._plan.runtime.finish(key[0])
            self._free(key)

    def _free(self, key: StreamKey) -> None:
        """Drop a stream's resources. To free memory waits for kernels that use it, also of ended streams."""
        self.by_stream.pop(key).plan.let_go(key)
