"""A Plan for callers' arrays: checks them, finds their stream, allocates the output in their library."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn, Self

from tilewright.arrays.look import look, look_at
from tilewright.arrays.use import current_stream, in_place, tell_written
from tilewright.arrays.view import Array, ArrayView
from tilewright.device import Device
from tilewright.errors import ArrayError, DeviceError, RunError, TilewrightError, a_kind
from tilewright.kernels.config import Config
from tilewright.plans.binding import Binding
from tilewright.plans.execution import Plan
from tilewright.plans.plan_cache import let_go_oldest, with_room
from tilewright.plans.provenance import Origin, Provenance
from tilewright.plans.streams import DEFAULT, PER_THREAD, StreamKey, stream_key, tell_of_end
from tilewright.problem import Problem
from tilewright.runtime import forked, open_runtime
from tilewright.runtime.base import Memory
from tilewright.runtime.pending import settle


@dataclass(frozen=True, eq=False)
class Packed:
    """A filter as one kernel reads it; made by ``LayerPlan.pack``.

    Attributes:
        memory: the packed filter, on its device.
        problem: the layer that it belongs to.
        config: the kernel that it was packed for; no other can read it.
        device: where it is, e.g. cuda:1.
    """

    memory: Memory
    problem: Problem
    config: Config
    device: str

    def __repr__(self) -> str:
        return f"<filter of {self.memory.nbytes} bytes packed for {self.problem} by {self.config}>"

    def __deepcopy__(self, memo: object) -> Self:
        return self  # nobody writes to it

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            f"a packed filter is memory of {self.device} and cannot be pickled; pickle w, and pack it with "
            "plan.pack(w) where it arrives"
        )


@dataclass(eq=False)
class _Lane:
    """What one stream has of its own: a plan with its workspace, and room to pack a filter."""

    plan: Plan
    packed: Memory | None = None
    recorded: bool = False  # in a graph, which goes on to use it when the thread is no more
    counted_bytes: int = 0  # when it was last looked whether all plans together hold too much

    @property
    def allocated_bytes(self) -> int:
        return self.plan.allocated_bytes + (self.packed.nbytes if self.packed else 0)


class LayerPlan:
    """One layer, ready to run on arrays. Made by ``tilewright.plan``.

    Attributes:
        plan: the kernel, which runs memory of the device rather than arrays.

    It may be called from several threads, whose calls are enqueued one after the other, and on several
    streams: each gets a workspace and constant memory of its own at its first call, and has them as long as
    the plan lives; a thread's own default stream (CUDA's per-thread one) as long as the thread. A CUDA call
    enqueues and returns; a CPU call waits for the answer. A CUDA graph that a call was recorded in uses the
    workspace of the stream that recorded it: keep the plan as long as the graph, and replay it on that
    stream, or in order with the calls there.

    Copied, or pickled and sent to another process, it is planned again there: by its problem, device and
    config.

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
        self._on_cpu = not plan.device.is_cuda
        self._where = f"{plan.device.backend}:{plan.device.index}"
        self._binding = Binding(plan.problem, "cpu" if self._on_cpu else f"cuda:{plan.device.index}")
        self._lanes: dict[StreamKey, _Lane] = {DEFAULT: _Lane(plan, counted_bytes=plan.allocated_bytes)}
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
        """What to know of the choice ("untuned: the model's choice ..."), or empty."""
        return self.plan.note

    @property
    def deterministic(self) -> bool:
        """Whether two runs give the same bits."""
        return self.plan.deterministic

    @property
    def workspace_bytes(self) -> int:
        """Bytes of device memory beside the arrays and the packed filter, for each stream.

        Arrays that are not 16-byte aligned may take more: a call with such allocates it.
        """
        return self.plan.workspace_bytes

    @property
    def allocated_bytes(self) -> int:
        """Bytes of device memory that it holds by now, of all streams that it ran on.

        Workspaces, filters that calls have packed, and what arrays that are not aligned have needed.
        """
        lanes = list(self._lanes.values())
        packed = sum(lane.packed.nbytes for lane in lanes if lane.packed)
        return packed + sum(plan.allocated_bytes for plan in {lane.plan for lane in lanes})

    def __repr__(self) -> str:
        return f"<plan of {self.problem} on {self.device.name}: {self.config}{self.note and '; '}{self.note}>"

    def __reduce__(self) -> tuple[Callable[..., LayerPlan | forked.Refused], tuple[Any, ...]]:
        device, why = self.device, self.plan.why
        return _again, (device.backend, device.index, self.problem, self.config, why, device.key)

    def pack(self, w: Array) -> Packed:
        """Bring a filter into the kernel's order, once.

        Args:
            w: filter of shape (K, C / groups, R, S) in the problem's dtype, where the plan runs.
                Contiguous on a GPU.

        Returns:
            The packed filter. Changing ``w`` in place later may or may not change it: pack again.

        Raises:
            ArrayError: wrong dtype, shape, device or strides.
            OutOfMemory: there is no room for the packed filter.
            DeviceError: this process was forked from the one that opened the device.
        """
        seen = look("w", w)
        array = self._binding.filter(seen)
        self._refuse_forked()
        with self._lock:
            given = self.plan.runtime.wrap(array), current_stream(seen)
            memory = with_room(self.plan.runtime, self.plan, self.plan.pack, *given)
        return Packed(memory, self.problem, self.config, self._where)

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
                tensor may also be (N, C, H, W) in channels_last, and so are z and the answer then. One that
                lies both ways, of one channel or pixel, is what its shape says. On a CPU an input with gaps
                is copied first; on a GPU it is refused.
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
        if not isinstance(packed_w, Packed):
            raise ArrayError(
                f"packed_w: {a_kind(packed_w)} was given; must be what plan.pack(w) returned"
            )
        if (packed_w.problem, packed_w.config) != (self.problem, self.config):
            here = f"pack again with this plan, of {self.problem} by {self.config}"
            raise ArrayError(f"packed_w: is {packed_w!r}; {here}")
        if packed_w.device != self._where:
            here = f"the plan runs on {self._where}; pack again with this plan"
            raise ArrayError(f"packed_w: is on {packed_w.device}, but {here}")
        beside = look_at(bias=bias, z=z, out=out, scale=scale)
        return self.run(look("x", x), packed_w.memory, beside)

    def run(
        self, x: ArrayView, w: ArrayView | Memory, beside: Mapping[str, ArrayView], layout: str = "nchw"
    ) -> Array:
        """Run on arrays that were looked at; a filter that is not packed yet is packed on the way.

        ``beside``: what is given of bias, z, out, scale. ``layout``: how the caller reads shapes; only by
        nchw a tensor in channels_last is (N, C, H, W). What has no room runs once more without the plans
        that other layers have kept.
        """
        return with_room(self.plan.runtime, self.plan, self._run, x, w, beside, layout)

    def _run(
        self, x: ArrayView, w: ArrayView | Memory, beside: Mapping[str, ArrayView], layout: str
    ) -> Array:
        filters = {"w": w} if isinstance(w, ArrayView) else {}
        arrays, result = self._binding.bind(x, {"x": x, **filters, **beside}, beside, layout)
        if self.problem.n:
            self._launch(arrays, w, current_stream(x))
        if "out" in beside:
            tell_written(beside["out"])
        return result

    def _launch(self, arrays: Mapping[str, Array], w: ArrayView | Memory, stream: int | None) -> None:
        """Run the kernel on a stream; on a CPU wait for it, however the call ends: it has callers' arrays."""
        runtime = self.plan.runtime
        self._refuse_forked()
        with self._lock:
            lane = self._lane(stream)
            if stream == PER_THREAD and not lane.recorded:
                lane.recorded = runtime.is_recording(stream)
            try:
                memories = {name: runtime.wrap(array) for name, array in arrays.items()}
                memories["w"] = self._repack(lane, w, stream) if isinstance(w, ArrayView) else w
                lane.plan.run(memories, stream)
                if self._on_cpu:
                    runtime.synchronize()
                    if not runtime.unified:
                        runtime.download(memories["y"], arrays["y"])
            except BaseException:
                if self._on_cpu:
                    settle(runtime)
                raise
            before, lane.counted_bytes = lane.counted_bytes, lane.allocated_bytes
        if lane.counted_bytes > before and not runtime.is_recording(stream):  # a graph may use what is let go
            let_go_oldest(runtime, self.plan)

    def _refuse_forked(self) -> None:
        """Refuse a forked child before it waits for a lock: the thread that held it is in the parent only."""
        if self.device.backend != "numpy":
            forked.refuse()

    def _lane(self, stream: int | None) -> _Lane:
        """Return what a stream has of its own; the default stream takes what was made with the plan.

        A plan that writes to nothing but the output is shared by all: it has no workspace, and fills no
        constant memory, of which a loaded program has one.
        """
        if not self.device.is_cuda or stream is None:
            return self._lanes[DEFAULT]
        key = stream_key(stream)
        if key not in self._lanes:
            plan = self.plan
            if plan.of_one_stream:
                plan = self._another(stream)
            self._lanes[key] = _Lane(plan)
            tell_of_end(self, key)
        return self._lanes[key]

    def _another(self, stream: int) -> Plan:
        """Make the plan once more, for a stream that may be recording a graph already."""
        runtime, plan = self.plan.runtime, self.plan
        try:
            return Plan.make(runtime, plan.problem, plan.config, plan.why)
        except RunError as error:
            if not runtime.is_recording(stream):
                raise
            what = f"nothing is ready for a stream that is recording a graph: {error}"
            todo = "call the plan once on that stream before, and name it to torch.cuda.graph(g, stream=s)"
            raise RunError(f"{what}; {todo}") from error

    def let_go(self, key: StreamKey) -> None:
        """Free what the own default stream of a thread had; called when that ends, on it."""
        lane = self._lanes.get(key)
        if lane is not None and not lane.recorded:
            with suppress(TilewrightError):  # a device that is broken runs nothing
                self.plan.runtime.finish(key[0])
            del self._lanes[key]
            lane.plan.let_go(key)

    def _repack(self, lane: _Lane, w: ArrayView, stream: int | None) -> Memory:
        """Pack a filter into the lane's own room, in order with what the stream did before."""
        plan, runtime = lane.plan, lane.plan.runtime
        given = runtime.wrap(in_place(w))
        if plan.blueprint.pack is None:
            return given
        if lane.packed is None:
            lane.packed = runtime.alloc(plan.blueprint.packed_bytes)
        plan.pack_into(given, lane.packed, stream)
        return lane.packed


def _again(
    backend: str, index: int, problem: Problem, config: Config, why: Provenance, device_key: str
) -> LayerPlan | forked.Refused:
    """Plan a layer that was pickled; on another device than there nothing is known of its config."""
    if backend != "numpy":
        try:
            forked.refuse()
        except DeviceError as error:
            return forked.Refused(error)
    runtime = open_runtime(backend, index)
    if runtime.device.key != device_key:
        why = Provenance(Origin.BY_HAND, verified=False)
    return LayerPlan(Plan.make(runtime, problem, config, why))
