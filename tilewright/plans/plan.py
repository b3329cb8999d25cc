"""Plan: a compiled, bound, runnable kernel for one problem. Tuner, bench, tests and users run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from tilewright.device import Device
from tilewright.errors import ArrayError
from tilewright.kernels import family_of
from tilewright.kernels.blueprint import CONSTANT, EXTRAS, NO_KERNELS, UNUSED_BYTES, Blueprint, Buffer, Launch
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.kernels.untuned import pack
from tilewright.plans.provenance import UNSAID, Provenance
from tilewright.plans.streams import StreamKey, stream_key
from tilewright.problem import Problem
from tilewright.runtime.base import Bound, Built, Loaded, Memory, Runtime, Step
from tilewright.runtime.capacity import require_arrays
from tilewright.runtime.pending import settle


@dataclass(frozen=True, eq=False)
class _Variant:
    """One Blueprint on the device with its workspace.

    Attributes:
        blueprint: what was compiled.
        built: the compiled programs.
        launches: each with the program of its kernel.
        chained: the same for callers' streams: the first may begin while what runs before it ends, too.
        workspace: the memory of each buffer, by its name.
        operands: the same, and what stands for operands that the problem has not.
        own_bytes: of the workspace, but for what another variant lends.
    """

    blueprint: Blueprint
    built: tuple[Built, ...]
    launches: Sequence[tuple[Loaded, Launch]]
    chained: Sequence[tuple[Loaded, Launch]]
    workspace: Mapping[str, Memory]
    operands: Mapping[str, Memory]
    own_bytes: int


class Plan:
    """A kernel ready to run.

    Attributes:
        runtime: where it runs.
        problem: the layer.
        family: the family of the kernel.
        config: its parameters.
        why: why it is this config.
        built: the compiled programs.

    It works on memory of its device; ``layer.LayerPlan`` takes arrays. A Plan has one workspace: run it on
    one stream at a time.
    """

    def __init__(
        self, runtime: Runtime, problem: Problem, family: Family, config: Config, why: Provenance
    ) -> None:
        """Compile, load and allocate the workspace; see ``make``."""
        self.runtime, self.problem, self.family, self.config = runtime, problem, family, config
        slow = "" if why.note(problem) else runtime.note
        self.why = replace(why, remark=slow) if slow else why
        self.blueprint = family.blueprint(problem, runtime.device, config)
        self._operands = problem.operands.keys()
        self._unused = dict.fromkeys(set(EXTRAS) - self._operands, runtime.alloc(UNUSED_BYTES))
        self._lent: dict[Buffer, Memory] = {}  # what the variant for other arrays need not allocate
        self._aligned = self._variant(self.blueprint)
        self._lent = {buffer: self._aligned.workspace[buffer.name] for buffer in self.blueprint.workspace}
        self._recipe: Blueprint | None = None
        self._unaligned: dict[StreamKey | None, _Variant] = {}
        self._packer: tuple[Loaded, Launch] | None = None
        self.built = self._aligned.built

    @classmethod
    def make(cls, runtime: Runtime, problem: Problem, config: Config, why: Provenance = UNSAID) -> Plan:
        """Check a config against its rules, compile it, and allocate its workspace once.

        Raises:
            ProblemError: an array of the problem is larger than the device takes.
            ConfigError: the config breaks a rule, or its family does not take the problem.
            CompileError: the compiler refused it, or it spilled registers.
            OutOfMemory: says how much workspace was needed.
        """
        require_arrays(problem, runtime)
        chosen = family_of(config.family)
        chosen.check(problem, runtime.device, config)
        return cls(runtime, problem, chosen, config, why)

    @property
    def note(self) -> str:
        """What a user should know of the choice ("untuned: the model's choice ..."), or empty."""
        return self.why.note(self.problem)

    @property
    def device(self) -> Device:
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
        """Bytes of device memory in addition to the arrays and the packed filter.

        Arrays that are not 16-byte aligned may need more, which a run on such arrays allocates.
        """
        return sum(buffer.nbytes for buffer in self.blueprint.workspace)

    @property
    def of_one_stream(self) -> bool:
        """Whether a run writes to a workspace or to constant memory; else streams may share the plan.

        Each stream has its own workspace for unaligned arrays in any case.
        """
        fills = any(launch.kernel == CONSTANT for launch in self.blueprint.launches)
        return fills or self.workspace_bytes > 0

    def pack(self, w: Memory, stream: int | None = None) -> Memory:
        """Pack a kcrs filter for this plan, on the device, once.

        Args:
            w: filter of shape ``problem.w_shape`` in the problem's dtype.
            stream: caller's stream handle (CUDA); None: the runtime's, which is waited for.
        """
        if self.blueprint.pack is None:
            return w
        packed = self.runtime.alloc(self.blueprint.packed_bytes)
        try:
            self.pack_into(w, packed, stream)
            if stream is None:
                self.runtime.synchronize()
        except BaseException:
            if stream is None:
                settle(self.runtime)
            raise
        return packed

    def pack_into(self, w: Memory, packed: Memory, stream: int | None = None) -> None:
        """Enqueue packing a kcrs filter into memory of ``blueprint.packed_bytes``; does not wait."""
        loaded, launch = self._packer or self._load_packer()
        self.runtime.launch(loaded, launch, [w, packed], stream)

    def _load_packer(self) -> tuple[Loaded, Launch]:
        assert self.blueprint.pack is not None
        recipe = pack(self.problem, self.device, self.blueprint)
        self._packer = self.runtime.load(self.runtime.compile(recipe)), recipe.launches[0]
        return self._packer

    def run(self, memories: Mapping[str, Memory], stream: int | None = None) -> None:
        """Enqueue the launches on bound memory; does not wait.

        Args:
            memories: by name, one for each of ``problem.operands``; w is what ``pack`` returned.
            stream: caller's stream handle (CUDA), where the first launch overlaps the end of what runs before
                it; None: the runtime's, where it does not, so that it can be timed.

        Raises:
            ArrayError: an operand is missing or superfluous.
            RunError: the device refused a launch.
        """
        for loaded, launch, given in self._steps(memories, stream):
            self.runtime.launch(loaded, launch, given, stream)

    def steps(self, memories: Mapping[str, Memory], stream: int | None = None) -> list[Step]:
        """Return the launches of ``run``, each with its memories: for repeated runs on the same memory.

        Raises:
            ArrayError: an operand is missing or superfluous.
        """
        return [(loaded, launch, Bound(given)) for loaded, launch, given in self._steps(memories, stream)]

    def _steps(
        self, memories: Mapping[str, Memory], stream: int | None
    ) -> list[tuple[Loaded, Launch, list[Memory]]]:
        if memories.keys() != self._operands:
            raise unlike(self.problem, memories.keys())
        if self.problem.n == 0:
            return []
        aligned = all([memory.aligned for memory in memories.values()])
        variant = self._aligned if aligned else self._unaligned_for(stream)
        bound = {**variant.operands, **memories}
        launches = variant.launches if stream is None else variant.chained
        return [(code, one, [bound[name] for name in one.args]) for code, one in launches]

    def make_unaligned(self) -> bool:
        """Compile the variant for unaligned arrays now; return whether there is one.

        Raises:
            CompileError, OutOfMemory: there is one, and it cannot be made.
        """
        return self._unaligned_for(None) is not self._aligned

    def _unaligned_for(self, stream: int | None) -> _Variant:
        """Return the variant for unaligned arrays; the aligned one if that does for both."""
        if self._recipe is None:
            self._recipe = self.family.blueprint(self.problem, self.device, self.config, aligned=False)
        if self._recipe == self.blueprint:
            return self._aligned
        whose = stream_key(stream) if self._recipe.workspace else None
        if whose not in self._unaligned:
            # Nobody has tuned this one: it may spill, where the aligned one must not.
            self._unaligned[whose] = self._variant(self._recipe, spills=True)
        return self._unaligned[whose]

    def let_go(self, key: StreamKey) -> None:
        """Free the variant for unaligned arrays of a stream that has ended."""
        self._unaligned.pop(key, None)

    def let_go_unaligned(self) -> None:
        """Free all variants for unaligned arrays."""
        self._unaligned.clear()

    @property
    def allocated_bytes(self) -> int:
        """Device memory that it holds now: the workspaces of all its variants."""
        others = sum([one.own_bytes for one in list(self._unaligned.values())]) if self._unaligned else 0
        return self._aligned.own_bytes + others

    def _variant(self, blueprint: Blueprint, spills: bool = False) -> _Variant:
        runtime = self.runtime
        built = tuple(runtime.compile(program, spills) for program in blueprint.programs)
        # Variants share buffers that are alike: a plan that has some is of one stream, its runs come in turn.
        workspace = {
            buffer.name: self._lent[buffer] if buffer in self._lent else self._alloc(buffer)
            for buffer in blueprint.workspace
        }
        loaded = {name: kernels for kernels in map(runtime.load, built) for name in kernels.kernels}
        main = next(iter(loaded.values()))
        loaded |= dict.fromkeys(NO_KERNELS, main)
        launches = [(loaded[launch.kernel], launch) for launch in blueprint.launches]
        (code, first), *behind = launches
        chained = [(code, replace(first, chained=True)), *behind]
        own_bytes = sum(buffer.nbytes for buffer in blueprint.workspace if buffer not in self._lent)
        operands = workspace | self._unused
        return _Variant(blueprint, built, launches, chained, workspace, operands, own_bytes)

    def _alloc(self, buffer: Buffer) -> Memory:
        memory = self.runtime.alloc(buffer.nbytes)
        if buffer.zeroed:
            self.runtime.zero(memory)
        return memory


def unlike(problem: Problem, given: Set[str]) -> ArrayError:
    """Return the error for an operand that is missing or superfluous among the given names."""
    name = next(iter(problem.operands.keys() ^ given))
    what = "given, but the problem has none" if name in given else "missing"
    return ArrayError(f"{name}: is {what} ({problem})")
