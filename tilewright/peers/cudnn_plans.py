"""cuDNN's engines for one layer: every plan that its front end lists, with its numerical notes.

Nothing here uses a GPU: a graph may belong to a handle or, on a machine without a GPU, to a description of a
device.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.peers.base import one_line
from tilewright.peers.eager import words
from tilewright.problem import Problem
from tilewright.problem.epilogue import Epilogue

# Names of the graph's tensors.
UIDS = {"x": 1, "w": 2, "bias": 3, "y": 4, "z": 5, "beta": 6, "scale": 7}
REQUANT = "requant"  # the step after the whole epilogue: sums of i8 become i8

# A strict contestant multiplies in the dtype and adds in f32 or wider. An engine with one of these notes does
# not, nor one with tensor cores in f32. In tf32, factors may be rounded to tf32.
LOOSE = ("DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION")
TENSOR_CORE = "TENSOR_CORE"
BARRED = dict.fromkeys(("f32", "accurate"), (*LOOSE, TENSOR_CORE)) | {"tf32": LOOSE[1:]}  # of others: LOOSE
MARKED = ("WINOGRAD", "FFT", "NONDETERMINISTIC")

_MOST_KNOBS = 64  # most knob settings of one engine that are tried, beyond those that cuDNN recommends
_NOTES: dict[tuple[str, str, str], dict[int, frozenset[str]]] = {}  # by ``strict_plans``'s key and engine

# cuDNN's names of our dtypes; and the dtypes in which products are summed and the epilogue is computed.
_TYPES = dict(f64="DOUBLE", f32="FLOAT", f16="HALF", bf16="BFLOAT16", i8="INT8", i32="INT32")
_TYPES |= dict(f8="FP8_E4M3")
_SUMS = dict(f64="DOUBLE", i8="INT32", q8="INT32")


# Activations with a node in the graph; others run separately.
NODES: dict[str, Callable[[Any, Any, Epilogue], Any]] = {
    "": lambda graph, y, e: y,
    "relu": lambda graph, y, e: graph.relu(y),
    "leaky": lambda graph, y, e: graph.leaky_relu(y, negative_slope=e.low),
    "silu": lambda graph, y, e: graph.swish(y),
    "clamp": lambda graph, y, e: graph.relu(y, lower_clip=e.low, upper_clip=e.high),
}


@dataclass(frozen=True)
class Way:
    """The part of the epilogue in a graph: ``steps`` of it (see ``eager.words``), and maybe REQUANT.

    Alpha is folded into the filter.

    cuDNN's own engines fuse a residual and ReLU only with a bias: ``zero_bias`` adds one of zeros.
    """

    steps: tuple[str, ...] = ()
    zero_bias: bool = False

    def tensors(self, epilogue: Epilogue) -> set[str]:
        """Return the names of the tensors that the graph reads."""
        names = {"x", "w"} | ({"bias"} if "bias" in self.steps or self.zero_bias else set())
        if "add" in self.steps:
            names |= {"z", "beta"} if epilogue.beta != 1.0 else {"z"}
        return names | ({"scale"} if REQUANT in self.steps else set())

    def __str__(self) -> str:
        return "+".join((*self.steps, *["bias=0"] * self.zero_bias))


def ways(problem: Problem) -> list[Way]:
    """Return the graphs to try: bare convolution, all that may be fused, what cuDNN's own engines fuse."""
    epilogue = problem.epilogue
    apart = ("alpha", "pool") if epilogue.act in NODES else ("alpha", "pool", "act")
    inside = tuple(step for step in words(epilogue) if step not in apart)
    known = tuple(step for step in inside if step != "act" or epilogue.act == "relu")
    if problem.requantised and epilogue.pool is None and epilogue.act in NODES:
        inside = (*inside, REQUANT)
    found = [Way(), *([Way(inside)] if inside else []), *([Way(known, "bias" not in known)] if known else [])]
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class ExecutionPlan:
    """One engine with one setting of its knobs.

    Attributes:
        graph: the front end's graph, which runs it once it is built.
        index: its index among the graph's plans.
        name: cuDNN's name, e.g. ``eng28_k2=4_k3=0``.
        engine: the number of its engine.
        notes: cuDNN's numerical and behaviour notes of the engine.
    """

    graph: Any
    index: int
    name: str
    engine: int
    notes: frozenset[str]

    def build(self) -> None:
        """Build it, which compiles if the engine does; errors are the front end's."""
        self.graph.build_plan_at_index(self.index)

    @property
    def workspace_bytes(self) -> int:
        """Bytes of workspace that the built plan needs."""
        return max(int(self.graph.get_workspace_size_plan_at_index(self.index)), 0)

    @property
    def tags(self) -> tuple[str, ...]:
        """Its properties: winograd, fft, nondeterministic; gemm if neither of the first two."""
        marks = tuple(note.lower() for note in MARKED if note in self.notes)
        return marks if {"winograd", "fft"} & set(marks) else ("gemm", *marks)


def strides(layout: str, c: int, h: int, w: int) -> list[int]:
    """Strides of a tensor of axes n, c, h, w, in elements."""
    return [c * h * w, h * w, w, 1] if layout == "nchw" else [c * h * w, 1, c * w, c]


def scalar_dtype(problem: Problem) -> str:
    """Dtype of beta: that of the epilogue's arithmetic."""
    return {"f64": "f64", "i8": "i32", "q8": "i32"}.get(problem.dtype, "f32")


def graph_of(cudnn: Any, problem: Problem, layout: str, way: Way, owner: Mapping[str, Any]) -> Any:
    """Describe the layer to cuDNN.

    Args:
        cudnn: the front end.
        problem: the layer.
        layout: layout of x, w, z and y.
        way: which steps of the epilogue are part of the graph.
        owner: ``handle=…``, or ``device_property=…`` without a GPU.
    """
    p = problem
    types = {name: getattr(cudnn.data_type, theirs, None) for name, theirs in _TYPES.items()}
    sums = getattr(cudnn.data_type, _SUMS.get(p.dtype, "FLOAT"))
    graph = cudnn.pygraph(
        io_data_type=types[p.stored], intermediate_data_type=sums, compute_data_type=sums, **owner
    )

    def tensor(name: str, dtype: str, n: int, c: int, h: int, w: int) -> Any:
        dim, stride = [n, c, h, w], strides(layout, c, h, w)
        return graph.tensor(name=name, dim=dim, stride=stride, uid=UIDS[name], data_type=types[dtype])

    top, bottom, left, right = p.pad
    y = graph.conv_fprop(
        tensor("x", p.stored, p.n, p.c, p.h, p.w), tensor("w", p.stored, p.k, p.cg, p.r, p.s),
        pre_padding=[top, left], post_padding=[bottom, right],
        stride=list(p.stride), dilation=list(p.dilation), compute_data_type=sums,
    )  # fmt: skip
    y = _fused(graph, y, p, way, tensor, types["f32"])
    y.set_output(True)
    y.set_data_type(types[p.dtype_out if REQUANT in way.steps else p.dtype_added])
    y.set_dim([p.n, p.k, p.p, p.q])
    y.set_stride(strides(layout, p.k, p.p, p.q))
    y.set_uid(UIDS["y"])
    graph.validate()
    graph.build_operation_graph()
    return graph


def _fused(graph: Any, y: Any, p: Problem, way: Way, tensor: Callable[..., Any], scaled: Any) -> Any:
    """Add the steps of a way, in the order that cuDNN's own engines match; scales are ``scaled``: f32."""
    e = p.epilogue
    if "add" in way.steps:
        z = tensor("z", p.dtype_added, p.n, p.k, p.p, p.q)
        y = graph.add(y, z if e.beta == 1.0 else graph.mul(z, tensor("beta", scalar_dtype(p), 1, 1, 1, 1)))
    if "bias" in way.steps or way.zero_bias:
        y = graph.add(y, tensor("bias", p.dtype_added, 1, p.k, 1, 1))
    if "act" in way.steps:
        y = NODES[e.act](graph, y, e)
    if REQUANT in way.steps:  # in f32; storing as i8 rounds to nearest even, and clamps
        y = graph.mul(y, tensor("scale", "f32", 1, p.k, 1, 1), compute_data_type=scaled)
    return y


def strict_plans(
    cudnn: Any, make: Callable[[], Any], key: tuple[str, str, str]
) -> tuple[list[ExecutionPlan], dict[str, str]]:
    """List every strict plan of a layer, not built; the first of an engine is the one that cuDNN recommends.

    Args:
        cudnn: the front end.
        make: makes the layer's graph anew.
        key: what engines' notes depend on: (precision of the problem, layout, text of the way).

    Returns:
        The plans, and the reasons why others are missing.
    """
    graph, unsupported = _listed(cudnn, make())
    names = _names(graph)
    engines = {engine for engine in map(_engine, names) if engine is not None}
    notes = _NOTES.setdefault(key, {})
    loose = set(BARRED.get(key[0], LOOSE))
    if engines - set(notes):
        notes |= _notes(cudnn, make)

    def strict(engine: int | None) -> bool:
        return engine in notes and not notes[engine] & loose

    for each in filter(strict, engines):
        _sweep(graph, each)
    listed = [(name, index, _engine(name)) for name, index in _names(graph).items()]
    plans = [
        ExecutionPlan(graph, index, name, engine, notes[engine])
        for name, index, engine in listed
        if engine is not None and strict(engine)
    ]
    return plans, dict([unsupported] if unsupported else [])


def _listed(cudnn: Any, graph: Any) -> tuple[Any, tuple[str, str] | None]:
    """List cuDNN's recommendations and fallbacks, then every other engine with its default knobs."""
    modes = cudnn.heur_mode
    graph.create_execution_plans([modes.A, modes.B, modes.FALLBACK])
    refused: dict[str, int] = {}
    by_number = hasattr(graph, "create_execution_plan")  # not of an old front end
    for engine in range(int(graph.get_engine_count()) if by_number else 0):
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


def _names(graph: Any) -> dict[str, int]:
    """Return the names of plans, and the first index of each."""
    names: dict[str, int] = {}
    for index in range(graph.get_execution_plan_count()):
        names.setdefault(graph.get_plan_name_at_index(index), index)
    return names


def _engine(name: str) -> int | None:
    """Parse the engine's number from a plan's name, such as ``eng28_k2=4_k3=0``."""
    match = re.match(r"eng(\d+)", name)
    return int(match[1]) if match else None


def _sweep(graph: Any, engine: int) -> None:
    """Add plans for all settings of an engine's named knobs, if they are not too many."""
    try:
        knobs = [k for k in graph.get_knobs_for_engine(engine) if not str(k.type).endswith("NOT_SET")]
    except Exception:  # some engines do not list knobs; their recommended and default settings remain
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
    """Find the numerical notes of every engine that supports the layer."""
    found: dict[int, set[str]] = {}
    for note in (*LOOSE, TENSOR_CORE, *MARKED):
        for engine, has in _having(cudnn, make(), note):
            found.setdefault(engine, set()).update({note} if has else ())
    return {engine: frozenset(notes) for engine, notes in found.items()}


def _having(cudnn: Any, graph: Any, note: str) -> Iterator[tuple[int, bool]]:
    """Yield for each engine whether it has a note.

    The front end reveals notes only by filtering on them. So: bar all plans that lack the note, allow no
    workspace at all (not even 0 bytes), and build. Nothing is ever built: a plan with the note is refused for
    its workspace, one without it as deselected.
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
