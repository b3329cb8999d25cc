"""cuDNN's engines for one layer: every plan that its front end lists, with its numerical notes.

Nothing here touches a GPU: a graph may belong to a handle or, on a machine with no GPU, to a
description of a device.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.peers.base import one_line
from tilewright.problem import Problem

UIDS = {"x": 1, "w": 2, "bias": 3, "y": 4}  # what the graph calls its tensors

# A strict contestant multiplies and adds in f32: an engine with one of these notes does not.
LOOSE = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION")
MARKED = ("WINOGRAD", "FFT", "NONDETERMINISTIC")

_MOST_KNOBS = 64  # most knob settings tried of one engine, beyond those that cuDNN recommends
_NOTES: dict[tuple[str, bool], dict[int, frozenset[str]]] = {}  # of engines seen, by (layout, fused)


@dataclass(frozen=True)
class Plan:
    """One engine with one setting of its knobs, built and ready to run on ``graph``."""

    graph: Any
    index: int
    name: str
    notes: frozenset[str]
    workspace_bytes: int

    @property
    def tags(self) -> tuple[str, ...]:
        """Column labels: winograd, fft, nondeterministic; gemm for what is neither of the first two."""
        marks = tuple(note.lower() for note in MARKED if note in self.notes)
        return marks if {"winograd", "fft"} & set(marks) else ("gemm", *marks)


def strides(layout: str, c: int, h: int, w: int) -> list[int]:
    """Strides of a tensor of axes n, c, h, w, in elements."""
    return [c * h * w, h * w, w, 1] if layout == "nchw" else [c * h * w, 1, c * w, c]


def graph_of(cudnn: Any, problem: Problem, layout: str, fused: bool, owner: Mapping[str, Any]) -> Any:
    """Describe the layer to cuDNN; ``fused`` puts bias and relu into the graph.

    Args:
        cudnn: the front end.
        problem: the layer.
        layout: layout of x, w and y.
        fused: whether the epilogue is part of the graph.
        owner: ``handle=…``, or ``device_property=…`` where there is no GPU.
    """
    f32, p = cudnn.data_type.FLOAT, problem
    graph = cudnn.pygraph(io_data_type=f32, intermediate_data_type=f32, compute_data_type=f32, **owner)

    def tensor(name: str, n: int, c: int, h: int, w: int) -> Any:
        return graph.tensor(name=name, dim=[n, c, h, w], stride=strides(layout, c, h, w), uid=UIDS[name])

    top, bottom, left, right = p.pad
    y = graph.conv_fprop(
        tensor("x", p.n, p.c, p.h, p.w), tensor("w", p.k, p.cg, p.r, p.s),
        pre_padding=[top, left], post_padding=[bottom, right],
        stride=list(p.stride), dilation=list(p.dilation), compute_data_type=f32,
    )  # fmt: skip
    if fused and p.epilogue.bias:
        y = graph.add(y, tensor("bias", 1, p.k, 1, 1))
    if fused and p.epilogue.act == "relu":
        y = graph.relu(y)
    y.set_output(True)
    y.set_data_type(f32)
    y.set_dim([p.n, p.k, p.p, p.q])
    y.set_stride(strides(layout, p.k, p.p, p.q))
    y.set_uid(UIDS["y"])
    graph.validate()
    graph.build_operation_graph()
    return graph


def strict_plans(
    cudnn: Any, make: Callable[[], Any], key: tuple[str, bool]
) -> tuple[list[Plan], dict[str, str]]:
    """Build every strict f32 plan of a layer.

    Args:
        cudnn: the front end.
        make: makes the layer's graph anew.
        key: what the notes of engines depend on: (layout, fused).

    Returns:
        The plans, and the reason for each that could not be built.
    """
    graph, unsupported = _listed(cudnn, make())
    names = _names(graph)
    engines = {engine for engine in map(_engine, names) if engine is not None}
    notes = _NOTES.setdefault(key, {})
    if engines - set(notes):
        notes |= _notes(cudnn, make)

    def strict(engine: int | None) -> bool:
        return engine in notes and not notes[engine] & set(LOOSE)

    for each in filter(strict, engines):
        _sweep(graph, each)
    plans, skipped = [], dict([unsupported] if unsupported else [])
    for name, index in _names(graph).items():
        engine = _engine(name)
        if engine is None or not strict(engine):
            continue
        try:
            graph.build_plan_at_index(index)
            nbytes = int(graph.get_workspace_size_plan_at_index(index))
        except Exception as error:  # the front end raises RuntimeError and classes of its own
            skipped[name] = one_line(error)
        else:
            plans.append(Plan(graph, index, name, notes[engine], max(nbytes, 0)))
    return plans, skipped


def _listed(cudnn: Any, graph: Any) -> tuple[Any, tuple[str, str] | None]:
    """List cuDNN's recommendations and fallbacks, then every other engine with its default knobs."""
    modes = cudnn.heur_mode
    graph.create_execution_plans([modes.A, modes.B, modes.FALLBACK])
    refused: dict[str, int] = {}
    for engine in range(_engine_count(graph)):
        try:
            graph.create_execution_plan(engine, {})
        except Exception as error:  # not for this layer or this device
            code = re.search(r"CUDNN_STATUS_\w+", str(error))
            reason = code[0] if code else one_line(error, 60)
            refused[reason] = refused.get(reason, 0) + 1
    if not refused:
        return graph, None
    reasons = ", ".join(f"{count} {reason}" for reason, count in refused.items())
    return graph, (f"{sum(refused.values())} other engines", reasons)


def _engine_count(graph: Any) -> int:
    """How many engines there are; 0 where the front end is too old to add one by its number."""
    return int(graph.get_engine_count()) if hasattr(graph, "create_execution_plan") else 0


def _names(graph: Any) -> dict[str, int]:
    """Plan names and the first index of each."""
    names: dict[str, int] = {}
    for index in range(graph.get_execution_plan_count()):
        names.setdefault(graph.get_plan_name_at_index(index), index)
    return names


def _engine(name: str) -> int | None:
    """Read the engine's number from a plan's name, as in ``eng28_k2=4_k3=0``."""
    match = re.match(r"eng(\d+)", name)
    return int(match[1]) if match else None


def _sweep(graph: Any, engine: int) -> None:
    """Add plans for all settings of an engine's knobs that have a name, if they are not too many."""
    try:
        knobs = [k for k in graph.get_knobs_for_engine(engine) if not str(k.type).endswith("NOT_SET")]
    except Exception:  # some engines do not say; their recommended and default settings are listed
        return
    ranges = [range(k.min_value, k.max_value + 1, max(1, k.stride)) for k in knobs]
    if not knobs or math.prod(map(len, ranges)) > _MOST_KNOBS:
        return
    for values in itertools.product(*ranges):
        try:
            graph.create_execution_plan(engine, {k.type: v for k, v in zip(knobs, values, strict=True)})
        except Exception:  # an illegal combination
            continue


def _notes(cudnn: Any, make: Callable[[], Any]) -> dict[int, frozenset[str]]:
    """Find the numerical notes of every engine that takes the layer."""
    found: dict[int, set[str]] = {}
    for note in (*LOOSE, *MARKED):
        for engine, has in _having(cudnn, make(), note):
            found.setdefault(engine, set()).update({note} if has else ())
    return {engine: frozenset(notes) for engine, notes in found.items()}


def _having(cudnn: Any, graph: Any, note: str) -> Iterator[tuple[int, bool]]:
    """Say of each engine whether it has a note.

    The front end tells notes only by filtering on them. So: bar all plans that lack the note, allow no
    workspace at all (not even 0 bytes), and build. Nothing is ever built; a plan is refused for its
    workspace if it has the note, and as deselected if it lacks it.
    """
    _listed(cudnn, graph)
    graph.select_numeric_notes([getattr(cudnn.numerical_note, note)])
    graph.deselect_workspace_greater_than(-1)
    for name, index in _names(graph).items():
        engine = _engine(name)
        if engine is None:
            continue
        try:
            graph.build_plan_at_index(index)
        except Exception as error:
            yield engine, "Deselecting" not in str(error)
        else:
            yield engine, True
