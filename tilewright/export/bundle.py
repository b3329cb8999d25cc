"""What an export of a kernel consists of: its programs, buffers and launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from tilewright import __version__
from tilewright.checking.inputs import stays_exact
from tilewright.device import Device
from tilewright.export import FORMAT
from tilewright.kernels import family_of
from tilewright.kernels.blueprint import CONSTANT, EXTRAS, NO_KERNELS, UNUSED_BYTES, Blueprint, Launch
from tilewright.kernels.config import Config
from tilewright.kernels.error_bound import ErrorBound, error_bound
from tilewright.kernels.family import Family
from tilewright.kernels.source import full_source
from tilewright.kernels.tensor_map import TensorMap
from tilewright.kernels.untuned import pack
from tilewright.problem import Problem
from tilewright.runtime.base import Built

PACKED = "packed"
_SIDES = ("top", "bottom", "left", "right")  # of Problem.pad
_OPERANDS = {
    "x": "input", "w": "filter", "bias": "bias", "z": "residual", "scale": "of the requantised output",
    "y": "output",
}  # fmt: skip


@dataclass(frozen=True)
class Program:
    """One source file, compiled separately.

    Attributes:
        name: of its files, without a suffix.
        arch: the compiler's target, e.g. sm_90a; for OpenCL C its own target.
        source: the whole text, with includes and defines expanded.
        defines: the tunables in it.
        built: the compiler's output.
    """

    name: str
    arch: str
    source: str
    defines: dict[str, int]
    built: Built


@dataclass(frozen=True)
class ExportedBuffer:
    """Device memory that the caller provides, 16-byte aligned.

    Attributes:
        name: its name in launches.
        nbytes: its size.
        zeroed: whether it must be 0 before the very first run.
        what: its contents, for the header: role, shape, layout, dtype.
    """

    name: str
    nbytes: int
    zeroed: bool
    what: str


@dataclass(frozen=True)
class Bundle:
    """One kernel for one device.

    Attributes:
        note: why this config.
        programs: the programs, including the one that packs the filter.
        buffers: all buffers of the launches; ``packed`` is the filter as the kernel reads it.
        pack: the launch that packs a kcrs filter, once; None: the kernel reads kcrs.
        pack_geometry: sizes of the packed filter, and the DTYPE (types.h) as which it is read.
        packing: the layout of the packed filter, for the header; empty: only the packing source shows it.
        bound: the largest error of y for inputs that are -1, 0 or 1.
        run: the launches of a run, in order; one with ``zero`` is a memset, one with ``constant`` fills the
            constant memory of its program (see ``Launch``).
    """

    problem: Problem
    device: Device
    config: Config
    note: str
    programs: tuple[Program, ...]
    buffers: tuple[ExportedBuffer, ...]
    pack: Launch | None
    pack_geometry: dict[str, int]
    packing: str
    bound: ErrorBound
    run: tuple[Launch, ...]

    @property
    def cuda(self) -> bool:
        """Whether it is CUDA C++; else it is OpenCL C."""
        return self.device.is_cuda

    @property
    def tensor_maps(self) -> tuple[TensorMap, ...]:
        """Images that launches take as tensor maps, each once; none in OpenCL, which takes addresses only."""
        found = [one.tensor_map for one in self.run if one.tensor_map is not None]
        return tuple(dict.fromkeys(found)) if self.cuda else ()

    def program_of(self, kernel: str) -> str:
        """Return the name of the program that contains a kernel; empty for a memset.

        ``constant`` fills the constant memory of the first program, as a ``Plan`` does.
        """
        if kernel in NO_KERNELS:
            return self.programs[0].name if kernel == CONSTANT else ""
        return next(p.name for p in self.programs if kernel in p.built.resources)

    def document(self) -> dict[str, Any]:
        """Return everything but the sources, for ``layer.json``."""
        problem = self.problem
        programs = [
            {
                "name": p.name,
                "arch": p.arch,
                "defines": p.defines,
                "kernels": {name: asdict(used) for name, used in p.built.resources.items()},
            }
            for p in self.programs
        ]
        launches = [{**asdict(one), "program": self.program_of(one.kernel)} for one in self.run]
        return {
            "format": FORMAT, "schema": 1, "tilewright": __version__,
            "problem": str(problem), "flops": problem.flops, "bytes": problem.bytes,
            "shapes": {name: getattr(problem, f"{name}_shape") for name in "xwzy"},
            "stride": problem.stride, "padding": dict(zip(_SIDES, problem.pad, strict=True)),
            "dilation": problem.dilation, "groups": problem.groups,
            "layout_in": problem.layout_in, "layout_out": problem.layout_out, "layout_w": "kcrs",
            "dtype": problem.stored, "math": problem.math, "dtype_added": problem.dtype_added,
            "dtype_out": problem.dtype_out,
            "epilogue": asdict(problem.epilogue),
            "device": {"name": self.device.name, "backend": self.device.backend, "arch": self.device.arch},
            "config": {"family": self.config.family, **self.config.values}, "config_text": str(self.config),
            "note": self.note, "deterministic": family_of(self.config.family).deterministic(self.config),
            "programs": programs, "buffers": [asdict(buffer) for buffer in self.buffers],
            "pack": asdict(self.pack) if self.pack else None, "pack_geometry": self.pack_geometry,
            "launches": launches,
        }  # fmt: skip


def bundle(
    problem: Problem, device: Device, config: Config, note: str, compiled: Callable[[Blueprint], Built]
) -> Bundle:
    """Lay out and compile a config for export.

    Args:
        problem: the layer.
        device: the target; may be absent.
        config: a legal config.
        note: why this config.
        compiled: compiles a blueprint: ``Runtime.compile``, or NVRTC for an architecture.

    Raises:
        ConfigError: the config breaks a rule.
        CompileError: the compiler rejected it, or it spilled registers.
    """
    family = family_of(config.family)
    family.check(problem, device, config)
    blueprint = family.blueprint(problem, device, config)
    packer = pack(problem, device, blueprint) if blueprint.pack is not None else None
    programs = [*blueprint.programs, *([packer] if packer else [])]
    # In OpenCL constant memory is a kernel argument: there is nothing to fill.
    launches = [one for one in blueprint.launches if device.is_cuda or one.kernel != CONSTANT]
    return Bundle(
        problem=problem, device=device, config=config, note=note,
        programs=tuple(_programs(programs, compiled, device)),
        buffers=_buffers(problem, blueprint), pack=packer.launches[0] if packer else None,
        pack_geometry=dict(blueprint.pack or ()), packing=blueprint.packing,
        bound=_bound(problem, family, device, config),
        run=tuple(_reads_packed(one) if packer else one for one in launches),
    )  # fmt: skip


def _bound(problem: Problem, family: Family, device: Device, config: Config) -> ErrorBound:
    """Return the verifier's bound; if sums of integers are exact, the rounding error of y."""
    found = error_bound(problem, family.chain(problem, device, config))
    return replace(found, slope=0.0) if family.exact and stays_exact(problem) else found


def _programs(
    blueprints: list[Blueprint], compiled: Callable[[Blueprint], Built], device: Device
) -> list[Program]:
    """Compile each program; the text of an OpenCL one is what its runtime builds, including the prelude."""
    found: list[Program] = []
    for number, blueprint in enumerate(blueprints):
        stem = blueprint.source.partition(".")[0] if "\n" not in blueprint.source else "kernel"
        name = stem if all(stem != p.name for p in found) else f"{stem}{number}"
        built = compiled(blueprint)
        text = full_source(blueprint) if device.is_cuda else built.binary.decode()
        found.append(Program(name, blueprint.target(device.arch), text, dict(blueprint.defines), built))
    return found


def _reads_packed(launch: Launch) -> Launch:
    return replace(launch, args=tuple(PACKED if name == "w" else name for name in launch.args))


def _buffers(problem: Problem, blueprint: Blueprint) -> tuple[ExportedBuffer, ...]:
    found = []
    for name, what in _OPERANDS.items():
        if operand := problem.operands.get(name):
            layout = {"x": problem.layout_in, "w": "kcrs"}.get(name, problem.layout_out)
            layout = f" {layout}" if len(operand.shape) == 4 else ""
            about = f"{what}, {'x'.join(map(str, operand.shape))}{layout}, {operand.dtype}"
            found.append(ExportedBuffer(name, operand.nbytes, False, about))
        elif name in EXTRAS:
            found.append(ExportedBuffer(name, UNUSED_BYTES, False, "bound, never read"))
    if blueprint.pack is not None:
        found.append(ExportedBuffer(PACKED, blueprint.packed_bytes, False, "filter as the kernel reads it"))
    for b in blueprint.workspace:
        what = "workspace" if b.nbytes else "bound, never touched"
        found.append(ExportedBuffer(b.name, b.nbytes or UNUSED_BYTES, b.zeroed, what))
    return tuple(found)
