"""Plan: a compiled, bound, runnable kernel for one problem. Tuner, bench, tests and users run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.dtypes import FULL, name_of, numpy_dtype
from tilewright.errors import ArrayError
from tilewright.kernels import family, tools
from tilewright.kernels.family import NO_KERNELS, Blueprint, Buffer, Config, Family, Launch
from tilewright.problem import Problem
from tilewright.runtime.base import Built, Loaded, Memory, Runtime


@dataclass(frozen=True, eq=False)
class _Variant:
    """One Blueprint on the device with its workspace; ``loaded`` goes by the name of a kernel."""

    blueprint: Blueprint
    built: tuple[Built, ...]
    loaded: Mapping[str, Loaded]
    workspace: Mapping[str, Memory]


class Plan:
    """A kernel ready to run.

    Attributes:
        runtime: where it runs.
        problem: the layer.
        family: the family of the kernel.
        config: its parameters.
        note: what a user should know of the choice ("untuned: the model's choice"), or empty.
        built: the compiled programs.

    A Plan has one workspace: run it on one stream at a time.

    Example:
        >>> import numpy as np
        >>> from tilewright.kernels import family
        >>> from tilewright.kernels.family import Config
        >>> from tilewright.problem import Problem
        >>> from tilewright.runtime import open_runtime
        >>> layer = Problem.parse("n1c2h4w4k3r1s1-f32")
        >>> plan = Plan.make(open_runtime("numpy"), layer, Config.parse("reference:v=1"))
        >>> x, w = np.ones(layer.x_shape, "f"), np.ones(layer.w_shape, "f")
        >>> float(plan(x, plan.pack(w)).max())
        2.0
    """

    def __init__(
        self, runtime: Runtime, problem: Problem, family: Family, config: Config, note: str = ""
    ) -> None:
        """Compile, load and allocate the workspace; see ``make``."""
        self.runtime, self.problem, self.family, self.config = runtime, problem, family, config
        self.note = note or str(getattr(runtime, "note", ""))
        self.blueprint = family.blueprint(problem, runtime.device, config)
        self._lent: dict[Buffer, Memory] = {}  # what the variant for other arrays need not allocate
        self._aligned = self._variant(self.blueprint)
        self._lent = {buffer: self._aligned.workspace[buffer.name] for buffer in self.blueprint.workspace}
        self._recipe: Blueprint | None = None
        self._unaligned: dict[int | None, _Variant] = {}
        self._nothing: Memory | None = None
        self._packer: tuple[Loaded, Launch] | None = None
        self._names: dict[Any, str] = {}  # of the libraries' dtypes; to look it up is quicker than to ask
        self.built = self._aligned.built

    @classmethod
    def make(cls, runtime: Runtime, problem: Problem, config: Config, note: str = "") -> Plan:
        """Check a config against its rules, compile it, and allocate its workspace once.

        Raises:
            ConfigError: the config breaks a rule, or its family does not take the problem.
            CompileError: the compiler refused it, or it spilled registers.
            OutOfMemory: says how much workspace was needed.
        """
        kind = family(config.family)
        kind.check(problem, runtime.device, config)
        return cls(runtime, problem, kind, config, note)

    @property
    def device(self) -> Any:
        """Facts of the device."""
        return self.runtime.device

    @property
    def deterministic(self) -> bool:
        """Whether two runs give the same bits."""
        return self.family.deterministic(self.config)

    @property
    def registers(self) -> int:
        """Most registers that a thread of any kernel takes; 0 where the compiler does not say."""
        return max(built.registers for built in self.built)

    @property
    def compile_s(self) -> float:
        """Seconds that the compiler took; 0 where all came from the cache."""
        return sum(built.compile_s for built in self.built)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of device memory beside the arrays and the packed filter.

        Arrays that are not 16-byte aligned may take more: a run on such allocates it.
        """
        return sum(buffer.nbytes for buffer in self.blueprint.workspace)

    @property
    def of_one_stream(self) -> bool:
        """Whether a run writes to a workspace or to constant memory; else streams may share the plan.

        What arrays need that are not aligned, each stream has for itself in any case.
        """
        fills = any(launch.kernel == "constant" for launch in self.blueprint.launches)
        return fills or self.workspace_bytes > 0

    def pack(self, w: Any, stream: int | None = None) -> Memory:
        """Pack a kcrs filter for this plan, on the device, once.

        Args:
            w: array or Memory of shape ``problem.w_shape`` in the problem's dtype, contiguous.
            stream: caller's stream handle (CUDA); None: the runtime's.

        Raises:
            ArrayError: wrong dtype, shape, layout or device.
        """
        given = w if isinstance(w, Memory) else self._wrap("w", w, self.problem.w_shape)
        if self.blueprint.pack is None:
            return given
        packed = self.runtime.alloc(self.blueprint.packed_bytes)
        self.pack_into(given, packed, stream)
        if stream is None:
            self.runtime.synchronize()
        return packed

    def pack_into(self, w: Memory, packed: Memory, stream: int | None = None) -> None:
        """Enqueue packing a kcrs filter into memory of ``blueprint.packed_bytes``; does not wait."""
        loaded, launch = self._packer or self._load_packer()
        self.runtime.launch(loaded, launch, [w, packed], stream)

    def _load_packer(self) -> tuple[Loaded, Launch]:
        assert self.blueprint.pack is not None
        recipe = tools.pack(self.problem, self.device, self.blueprint)
        self._packer = self.runtime.load(self.runtime.compile(recipe)), recipe.launches[0]
        return self._packer

    def run(
        self,
        x: Memory,
        packed_w: Memory,
        y: Memory,
        bias: Memory | None = None,
        z: Memory | None = None,
        stream: int | None = None,
        scale: Memory | None = None,
    ) -> None:
        """Enqueue the launches on bound memory; does not wait.

        Args:
            x: input of ``problem.x_shape`` in the problem's dtype.
            packed_w: what ``pack`` returned.
            y: output of ``problem.y_shape`` in ``problem.dtype_out``.
            bias: K numbers of ``problem.dtype_added``, if and only if the problem has a bias.
            z: residual of ``problem.z_shape`` in that dtype, if and only if the problem adds one.
            stream: caller's stream handle (CUDA); None: the runtime's.
            scale: K f32, if and only if the problem is requantised.

        Raises:
            ArrayError: bias, z or scale is missing or superfluous.
            RunError: the device refused a launch.
        """
        given = dict(bias=bias, z=z, scale=scale)
        if any((given[name] is None) == want for name, want in wanted(self.problem).items()):
            raise _unwanted(self.problem, given)
        if self.problem.n == 0:
            return
        bound = {"x": x, "w": packed_w, "y": y}
        bound |= {name: memory or self._unused() for name, memory in given.items()}
        variant = self._variant_for(bound, stream)
        for launch in variant.blueprint.launches:
            memories = [bound.get(name) or variant.workspace[name] for name in launch.args]
            self.runtime.launch(variant.loaded[launch.kernel], launch, memories, stream)

    def __call__(
        self,
        x: Any,
        packed_w: Memory,
        bias: Any = None,
        z: Any = None,
        out: Any = None,
        stream: int | None = None,
        scale: Any = None,
    ) -> Any:
        """Run on arrays: NumPy on a CPU (waits for the answer), CUDA arrays on a GPU (does not).

        Args:
            x: array of ``problem.x_shape`` in the problem's dtype, contiguous.
            packed_w: what ``pack`` returned.
            bias: array of K numbers in ``problem.dtype_added``, if the problem has a bias.
            z: array of ``problem.z_shape`` in that dtype, if the problem adds a residual.
            out: array of ``problem.y_shape`` in ``problem.dtype_out`` to write; None: a new one.
            stream: caller's stream handle (CUDA); None: the runtime's.
            scale: array of K float32, if the problem is requantised.

        Returns:
            The output array.

        Raises:
            ArrayError: wrong dtype, shape, layout or device; or bias or z missing or superfluous.
        """
        pr = self.problem
        x_memory = self._wrap("x", x, pr.x_shape)
        y = _new_like(x, pr.y_shape, pr.dtype_out) if out is None else out
        y_memory = self._wrap("out", y, pr.y_shape)
        b_memory = None if bias is None else self._wrap("bias", bias, (pr.k,))
        z_memory = None if z is None else self._wrap("z", z, pr.z_shape)
        s_memory = None if scale is None else self._wrap("scale", scale, (pr.k,))
        self.run(x_memory, packed_w, y_memory, b_memory, z_memory, stream, s_memory)
        if self.device.backend != "cuda":
            self.runtime.synchronize()
            if not self.runtime.unified:
                self.runtime.download(y_memory, y)
        return y

    def _wrap(self, name: str, array: Any, shape: tuple[int, ...]) -> Memory:
        given = tuple(getattr(array, "shape", ()))
        dtype = getattr(array, "dtype", type(array).__name__)
        text = self._names.get(dtype) or self._names.setdefault(dtype, name_of(dtype))
        want = FULL[dtype_of(self.problem, name)]
        if text != want:
            raise ArrayError(f"{name}: dtype {text} was given; must be {want}")
        if given != shape:
            raise ArrayError(f"{name}: shape {given} was given; must be {shape} for {self.problem}")
        if name == "out":
            flags = getattr(array, "flags", None)
            if getattr(flags, "writeable", True) is False:
                raise ArrayError("out: is read-only; must be writable")
        try:
            return self.runtime.wrap(array)
        except ArrayError as error:
            raise ArrayError(f"{name}: {error}") from error

    def _unused(self) -> Memory:
        """Return something to bind where the problem has no bias or no z."""
        if self._nothing is None:
            self._nothing = self.runtime.alloc(64)
        return self._nothing

    def _variant_for(self, bound: Mapping[str, Memory], stream: int | None) -> _Variant:
        if all(memory.aligned for memory in bound.values()):
            return self._aligned
        if self._recipe is None:
            self._recipe = self.family.blueprint(self.problem, self.device, self.config, aligned=False)
        if self._recipe == self.blueprint:
            return self._aligned
        whose = stream if self._recipe.workspace else None
        if whose not in self._unaligned:
            # Nobody has tuned this one: it may spill, where the aligned one must not.
            self._unaligned[whose] = self._variant(self._recipe, spills=True)
        return self._unaligned[whose]

    def _variant(self, blueprint: Blueprint, spills: bool = False) -> _Variant:
        runtime = self.runtime
        built = tuple(runtime.compile(program, spills) for program in blueprint.programs)
        # Variants share buffers that are alike: a plan that has some is of one stream, its runs come in turn.
        workspace = {
            buffer.name: self._lent[buffer] if buffer in self._lent else self._alloc(buffer)
            for buffer in blueprint.workspace
        }
        runtime.synchronize()
        loaded = {name: kernels for kernels in map(runtime.load, built) for name in kernels.kernels}
        main = next(iter(loaded.values()))
        loaded |= dict.fromkeys(NO_KERNELS, main)
        return _Variant(blueprint, built, loaded, workspace)

    def _alloc(self, buffer: Buffer) -> Memory:
        memory = self.runtime.alloc(buffer.nbytes)
        if buffer.zeroed:
            self.runtime.fill(memory, 0)
        return memory


def wanted(problem: Problem) -> dict[str, bool]:
    """Say which inputs beside x and w a problem has."""
    return dict(bias=problem.epilogue.bias, z=problem.epilogue.add, scale=problem.requantised)


def dtype_of(problem: Problem, name: str) -> str:
    """Return the dtype of an argument: x, w, bias, z, scale; or of y."""
    stored, added = problem.stored, problem.dtype_added
    return dict(x=stored, w=stored, bias=added, z=added, scale="f32").get(name, problem.dtype_out)


def _unwanted(problem: Problem, given: Mapping[str, Memory | None]) -> ArrayError:
    """Return the error of an input that is missing or superfluous."""
    name = next(name for name, want in wanted(problem).items() if (given[name] is None) == want)
    what = "missing" if given[name] is None else "given, but the problem has none"
    return ArrayError(f"{name}: is {what} ({problem})")


def _new_like(x: Any, shape: tuple[int, ...], dtype: str) -> Any:
    """Return a new array of the same library and device."""
    import sys

    if hasattr(x, "new_empty"):  # torch
        return x.new_empty(shape, dtype=getattr(sys.modules["torch"], FULL[dtype]))
    return sys.modules[type(x).__module__.partition(".")[0]].empty(shape, dtype=numpy_dtype(dtype))
