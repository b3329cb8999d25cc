"""A Plan for callers' arrays: checks them, finds their stream, allocates the output in their library."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tilewright.arrays.look import look, look_at
from tilewright.arrays.untraced import untraced
from tilewright.arrays.use import contiguous, current_stream, tell_written
from tilewright.arrays.view import Array, ArrayView
from tilewright.device import Device
from tilewright.errors import ArrayError, DeviceError
from tilewright.kernels.config import Config
from tilewright.plans.binding import Binding, Given
from tilewright.plans.bound_call import BoundCall, BoundLaunches
from tilewright.plans.packed import Packed, packed_memory
from tilewright.plans.plan import Plan
from tilewright.plans.plan_cache import evict_oldest, with_room
from tilewright.plans.provenance import Basis, Provenance
from tilewright.plans.stream_plans import StreamPlan, StreamPlans
from tilewright.problem import Problem
from tilewright.runtime import forked, open_runtime
from tilewright.runtime.base import Memory, Run, Step
from tilewright.runtime.ending import Inside
from tilewright.runtime.pending import settle


class LayerPlan:
    """One layer, ready to run on arrays. Made by ``tilewright.plan``.

    Attributes:
        plan: the kernel, which runs memory of the device rather than arrays.

    It may be called from several threads, whose calls are enqueued one after the other, and on several
    streams: each stream gets its own workspace and constant memory at its first call. The first 32 keep them
    for the life of the plan, CUDA's per-thread default stream for the life of its thread; of later ones those
    32 that were used last do, and those that a graph recorded. A CUDA call enqueues and returns; any other
    waits for the answer. A CUDA graph that a call was recorded in uses the workspace of the stream that
    recorded it: keep the plan as long as the graph, and replay it on that stream, or in order with the calls
    there.

    A copy, or one that was pickled and sent to another process, is planned again there, with the same
    problem, device and config.

    Example:
        >>> import numpy as np, tilewright as tw
        >>> plan = tw.plan("n1c8h6w6k16r3s3p1-f32", device="cpu")
        >>> w = np.ones((16, 8, 3, 3), np.float32)
        >>> packed = plan.pack(w)
        >>> plan(np.ones((1, 8, 6, 6), np.float32), packed).shape
        (1, 16, 6, 6)
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._host_arrays = not plan.device.is_cuda  # callers' arrays are the host's, and a call waits
        self._has_driver = plan.device.runs_kernels
        self._where = f"{plan.device.backend}:{plan.device.index}"
        self._binding = Binding(plan.problem, "cpu" if self._host_arrays else f"cuda:{plan.device.index}")
        self._streams = StreamPlans(plan)
        self._lock = threading.RLock()

    @property
    def problem(self) -> Problem:
        """The layer."""
        return self.plan.problem

    @property
    def device(self) -> Device:
        """Facts of the device it runs on."""
        return self.plan.runtime.device

    @property
    def config(self) -> Config:
        """The kernel's family and parameters."""
        return self.plan.config

    @property
    def note(self) -> str:
        """What a user should know about the choice ("untuned: the model's choice ..."), or empty."""
        return self.plan.note

    @property
    def deterministic(self) -> bool:
        """Whether two runs give the same bits."""
        return self.plan.deterministic

    @property
    def workspace_bytes(self) -> int:
        """Bytes of device memory in addition to the arrays and the packed filter, for each stream.

        Arrays that are not 16-byte aligned may need more, which a call with such arrays allocates.
        """
        return self.plan.workspace_bytes

    @property
    def allocated_bytes(self) -> int:
        """Bytes of device memory that it holds now, for all streams that it ran on.

        These are workspaces, also those for unaligned arrays, and filters that calls have packed.
        """
        return self._streams.allocated_bytes

    def __repr__(self) -> str:
        return f"<plan of {self.problem} on {self.device.name}: {self.config}{self.note and '; '}{self.note}>"

    def __reduce__(self) -> tuple[Callable[..., LayerPlan | forked.Refused], tuple[Any, ...]]:
        device, why = self.device, self.plan.why
        return _again, (device.backend, device.index, self.problem, self.config, why, device.key)

    @untraced
    def pack(self, w: Array) -> Packed:
        """Bring a filter into the kernel's order, once.

        Args:
            w: filter of shape (K, C / groups, R, S) in the problem's dtype, where the plan runs.
                One that is not contiguous (a model in channels_last has such) is copied first.

        Returns:
            The packed filter. Changing ``w`` in place later may or may not change it: pack again.

        Raises:
            ArrayError: wrong dtype, shape or device.
            OutOfMemory: there is no room for the packed filter, or the copy.
            DeviceError: this process was forked from the one that opened the device.
        """
        seen = look("w", w)
        array = self._binding.filter(seen)
        self._refuse_forked()
        with Inside(), self._lock:
            given = self.plan.runtime.wrap(array), current_stream(seen)
            memory = with_room(self.plan.runtime, self.plan, self.plan.pack, *given)
        return Packed(memory, self.problem, self.config, self._where)

    @untraced
    def __call__(
        self,
        x: Array,
        packed_w: Packed,
        bias: Array = None,
        z: Array = None,
        out: Array = None,
        scale: Array = None,
    ) -> Array:
        """Run the layer.

        Args:
            x: input of shape ``problem.x_shape`` in the problem's dtype. For a problem in nhwc a PyTorch
                tensor may also be (N, C, H, W) in channels_last, and then so are z and the output. If its
                strides fit both layouts (one channel or pixel), its shape decides. On a CPU an input that is
                not contiguous is copied first; on a GPU it is refused.
            packed_w: what ``pack`` returned.
            bias: shape (K,) in ``problem.dtype_added``, if and only if the problem has a bias.
            z: residual of shape ``problem.z_shape`` in that dtype, if and only if the problem adds one.
            out: output of shape ``problem.y_shape`` in ``problem.dtype_out`` to write; None: a new one of
                x's library.
            scale: shape (K,) in float32, if and only if the problem is requantised.

        Returns:
            ``out``, or the new array. On CUDA it is computed on the caller's current stream.

        Raises:
            ArrayError: wrong dtype, shape, device, strides; bias, z or scale missing or superfluous; out
                overlaps an input.
            CompileError, OutOfMemory: the first call on a stream may need a workspace, and the first with
                arrays that are not 16-byte aligned a kernel of its own. Or there is no room for the output.
            RunError: the device failed.
            DeviceError: this process was forked from the one that opened the device.
        """
        given = {"x": look("x", x), **look_at(bias=bias, z=z, out=out, scale=scale)}
        return self.run(given, self._memory_of(packed_w, given))

    def _memory_of(self, packed_w: Packed, given: Given) -> Memory:
        """Return the memory of a packed filter, which may be the caller's: an output must not overlap it."""
        memory = packed_memory(packed_w, self.problem, self.config, self._where)
        if "out" in given:
            low, high = given["out"].span
            if low < memory.address + memory.nbytes and memory.address < high:
                raise ArrayError("out: overlaps the packed filter in memory; must be an array of its own")
        return memory

    def run(self, given: Given, packed_w: Memory | None = None, layout: str = "nchw") -> Array:
        """Run on arrays that were looked at; a filter among them is packed first.

        ``layout``: in which the caller sees shapes; only with nchw a channels_last tensor is (N, C, H, W). If
        memory runs out, cached plans of other layers are evicted and it runs once more.
        """
        return with_room(self.plan.runtime, self.plan, self._run, given, packed_w, layout)

    def _run(self, given: Given, packed_w: Memory | None, layout: str) -> Array:
        arrays, result = self._binding.bind(given, layout)
        if self.problem.n:
            self._launch(arrays, packed_w or given["w"], current_stream(given["x"]))
        if "out" in given:
            tell_written(given["out"])
        return result

    @untraced
    def bind(
        self,
        x: Array,
        packed_w: Packed,
        bias: Array = None,
        z: Array = None,
        out: Array = None,
        scale: Array = None,
    ) -> BoundCall:
        """Return a function that runs the layer on these arrays each time, at less cost for the host.

        Write the next input into ``x``. An array that a call would copy first (on a CPU one that is not
        contiguous; on OpenCL devices other than CPUs any) is copied in each call here, too.

        Args:
            x, packed_w, bias, z, scale: as in a call.
            out: as in a call; None: one new array, which all calls write.

        Raises:
            ArrayError, OutOfMemory, DeviceError: as in a call.

        Example:
            >>> import numpy as np, tilewright as tw
            >>> plan = tw.plan("n1c8h6w6k16r3s3p1-f32", device="cpu")
            >>> x, w = np.zeros((1, 8, 6, 6), np.float32), np.ones((16, 8, 3, 3), np.float32)
            >>> run = plan.bind(x, plan.pack(w))
            >>> x[:] = 1
            >>> float(run()[0, 0, 3, 3]), float(run.out[0, 0, 0, 0])
            (72.0, 32.0)
        """
        given: dict[str, ArrayView] = {"x": look("x", x), **look_at(bias=bias, z=z, out=out, scale=scale)}
        memory = self._memory_of(packed_w, given)
        self._refuse_forked()
        runtime = self.plan.runtime
        arrays, result = with_room(runtime, self.plan, self._binding.bind, given, "nchw")
        given["out"] = look("out", result)
        memories = {name: runtime.wrap(array) for name, array in arrays.items()}
        there = {**given, "y": given["out"]}
        in_place = runtime.unified or not self._host_arrays
        if not in_place or any(there[name].address != one.address for name, one in memories.items()):
            return BoundCall(result, self.problem, partial(self.run, given, memory))
        memories["w"] = memory
        if self._host_arrays:
            prepared = with_room(runtime, self.plan, self._prepared, memories)
            run = partial(with_room, runtime, self.plan, self._run_on_cpu, prepared, given["out"])
        else:
            launches = BoundLaunches(memories)
            run = partial(with_room, runtime, self.plan, self._run_bound, launches, given["x"], given["out"])
        return BoundCall(result, self.problem, run)

    def _run_bound(self, launches: BoundLaunches, x: ArrayView, out: ArrayView) -> None:
        stream = current_stream(x)
        self._in_turn(stream, partial(launches.enqueue, stream))
        tell_written(out)

    def _prepared(self, memories: Mapping[str, Memory]) -> Run:
        """Return the launches of a bound call on a CPU; for unaligned arrays their kernels are made now."""
        steps: list[Step] = []
        self._in_turn(None, lambda own: steps.extend(own.plan.steps(memories)))
        return self.plan.runtime.prepared(steps)

    def _run_on_cpu(self, prepared: Run, out: ArrayView) -> None:
        self._refuse_forked()
        with Inside(), self._lock:
            prepared()
        tell_written(out)

    def _launch(self, arrays: Mapping[str, Array], w: ArrayView | Memory, stream: int | None) -> None:
        """Run the kernel on callers' arrays."""
        runtime = self.plan.runtime

        def enqueue(own: StreamPlan) -> None:
            memories = {name: runtime.wrap(array) for name, array in arrays.items()}
            packed = own.pack(runtime.wrap(contiguous(w)), stream) if isinstance(w, ArrayView) else w
            memories["w"] = packed
            own.plan.run(memories, stream)
            if self._host_arrays and not runtime.unified:
                runtime.download(memories["y"], arrays["y"])

        self._in_turn(stream, enqueue)

    def _in_turn(self, stream: int | None, enqueue: Callable[[StreamPlan], None]) -> None:
        """Enqueue with a stream's resources.

        A call with arrays of the host waits, however it ends: they are the caller's again.
        """
        runtime = self.plan.runtime
        self._refuse_forked()
        with Inside(), self._lock:
            own = self._streams.of(stream)
            try:
                enqueue(own)
                if self._host_arrays:
                    runtime.synchronize()
            except BaseException:
                if self._host_arrays:
                    settle(runtime)
                raise
            grown = own.has_grown()
        if grown and not runtime.is_recording(stream):  # a graph may use what is evicted
            evict_oldest(runtime, self.plan)

    def _refuse_forked(self) -> None:
        """Refuse a forked child before it waits for a lock: the thread that held it is in the parent only."""
        if self._has_driver:
            forked.refuse()


def _again(
    backend: str, index: int, problem: Problem, config: Config, why: Provenance, device_key: str
) -> LayerPlan | forked.Refused:
    """Plan a layer that was pickled; on another device its config counts as chosen by hand."""
    if backend != "numpy":
        try:
            forked.refuse()
        except DeviceError as error:
            return forked.Refused(error)
    runtime = open_runtime(backend, index)
    if runtime.device.key != device_key:
        why = Provenance(Basis.BY_HAND, verified=False)
    return LayerPlan(Plan.make(runtime, problem, config, why))
