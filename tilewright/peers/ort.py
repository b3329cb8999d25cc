"""ONNX Runtime's CPU execution provider, with bound inputs and outputs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tilewright.checking.inputs import Inputs
from tilewright.device import Device
from tilewright.errors import count
from tilewright.peers.base import (
    Array,
    Contestant,
    Offer,
    Peer,
    Setting,
    as_nchw,
    as_output,
    foreign,
    load,
    needs,
    unknown,
    unwritten,
)
from tilewright.problem import Problem
from tilewright.runtime.base import Blocking

_OPSET, _IR = 17, 8  # old enough for every ONNX Runtime since 1.12


class OnnxRuntime(Peer):
    """One Conv node and one for each step of the epilogue, which ONNX Runtime fuses as far as it can.

    It supports nchw only, and may reorder to its own blocks internally. It computes f16 as f32 if the CPU has
    no arithmetic for it.
    """

    name = "onnxruntime"
    backends = ("opencl", "numpy")
    dtypes = ("f32", "f16", "i8")  # it has no convolution in f64 and bf16 on a CPU

    def absent(self, device: Device) -> str | None:
        return needs(self.name, ("onnxruntime", "onnxruntime onnx"), ("onnx", "onnx"))

    def offer(self, problem: Problem, inputs: Inputs, setting: Setting) -> Offer:
        offer = Offer()
        for level, what in (("ALL", "own blocks"), ("EXTENDED", "plain nchw")):
            make = partial(_contestant, problem, inputs, setting, level, what)
            offer.attempt(f"onnxruntime {what}", make)
        return offer


def _contestant(problem: Problem, inputs: Inputs, setting: Setting, level: str, what: str) -> Contestant:
    ort = load("onnxruntime")
    session = _session(_layer_model(problem, inputs), setting.threads, level)
    arrays = {"x": np.ascontiguousarray(as_nchw(inputs.x, problem.layout_in))}
    if inputs.z is not None:
        arrays["z"] = np.ascontiguousarray(as_nchw(inputs.z, problem.layout_out))
    y = unwritten(problem)
    binding, result = _bind(session, arrays, y)

    def run() -> None:
        session.run_with_iobinding(binding)

    def output() -> Array:
        return as_output(result.numpy(), problem)

    words = str(problem.epilogue).replace("+", " ").strip()
    nodes = f", with {words} in its graph" if words else ""
    detail = f"ONNX Runtime {ort.__version__}, {what}{nodes}, {count(setting.threads, 'thread')}"
    convert_us = _convert_us(problem, setting, arrays, y)
    return Contestant(
        "onnxruntime", f"onnxruntime {what}", detail, "nchw", Blocking(run), output, convert_us=convert_us
    )


class _Graph:
    """A chain of nodes: each reads the previous one's result."""

    def __init__(self, last: str) -> None:
        self.helper, self.numpy_helper = load("onnx.helper"), load("onnx.numpy_helper")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.last = last

    def constant(self, name: str, array: Array) -> str:
        """Add a constant; return its name."""
        self.constants.append(self.numpy_helper.from_array(array, name))
        return name

    def add(self, op: str, *more: str, first: str = "", **attributes: Any) -> str:
        """Add a node that reads the last result, or ``first``, and ``more``; return its result's name."""
        made = f"v{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(op, [first or self.last, *more], [made], **attributes))
        self.last = made
        return made


def _layer_model(problem: Problem, inputs: Inputs) -> bytes:
    """Build the model of a layer; filter and bias are constants."""
    graph, e = _Graph("x"), problem.epilogue
    top, bottom, left, right = problem.pad
    dtype = inputs.bias.dtype
    op = "ConvInteger" if problem.dtype == "i8" else "Conv"
    with_bias = e.bias and e.alpha == 1.0 and op == "Conv"
    at_once = [graph.constant("b", inputs.bias)] if with_bias else []
    graph.add(
        op, graph.constant("w", inputs.w), *at_once,
        kernel_shape=[problem.r, problem.s], pads=[top, left, bottom, right], strides=list(problem.stride),
        dilations=list(problem.dilation), group=problem.groups,
    )  # fmt: skip
    if e.alpha != 1.0:
        graph.add("Mul", graph.constant("alpha", np.array(e.alpha, dtype)))
    if e.bias and not at_once:
        graph.add("Add", graph.constant("b", inputs.bias.reshape(1, -1, 1, 1)))
    if e.add:
        sums, z = graph.last, "z"
        if e.beta != 1.0:
            z = graph.add("Mul", graph.constant("beta", np.array(e.beta, dtype)), first="z")
        graph.add("Add", z, first=sums)
    _finish(graph, problem, dtype)
    graph.nodes[-1].output[0] = "y"
    shapes: dict[str, tuple[int, ...]] = {"x": (problem.n, problem.c, problem.h, problem.w)}
    shapes |= {"z": (problem.n, problem.k, problem.p, problem.q)} if e.add else {}
    shapes["y"] = (problem.n, problem.k, problem.y_p, problem.y_q)
    dtypes = {name: inputs.x.dtype if name == "x" else dtype for name in shapes}
    return _model(graph.nodes, shapes, dtypes, graph.constants)


def _finish(graph: _Graph, problem: Problem, dtype: Any) -> None:
    """Add the activation and the pool."""
    e = problem.epilogue
    if e.act == "relu":
        graph.add("Relu")
    elif e.act == "leaky":
        graph.add("LeakyRelu", alpha=e.low)
    elif e.act == "silu":
        sums = graph.last
        graph.add("Sigmoid")
        graph.add("Mul", sums)
    elif e.act == "clamp":
        ends = dict(low=e.low, high=e.high)
        graph.add("Clip", *(graph.constant(name, np.array(value, dtype)) for name, value in ends.items()))
    elif e.act:
        raise unknown(e, "ONNX Runtime")
    if e.pool:
        integers, tensor = problem.dtype == "i8", load("onnx").TensorProto
        if integers:  # there is no MaxPool of i32; f64 represents i32 exactly
            graph.add("Cast", to=tensor.DOUBLE)
        op = {"max": "MaxPool", "avg": "AveragePool"}[e.pool.mode]
        size, stride = [e.pool.size] * 2, [e.pool.stride] * 2
        graph.add(op, kernel_shape=size, strides=stride, pads=[e.pool.pad] * 4)
        if integers:
            graph.add("Cast", to=tensor.INT32)


def _model(
    nodes: list[Any], shapes: dict[str, tuple[int, ...]], dtypes: dict[str, Any], constants: list[Any]
) -> bytes:
    """Serialise a model of nodes that read all named arrays but y, which they write."""
    helper = load("onnx.helper")
    code = helper.np_dtype_to_tensor_dtype
    *given, y = [helper.make_tensor_value_info(name, code(dtypes[name]), shapes[name]) for name in shapes]
    graph = helper.make_graph(nodes, "layer", given, [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
    model.ir_version = _IR
    serialized: bytes = model.SerializeToString()
    return serialized


def _session(model: bytes, threads: int, level: str) -> Any:
    """Open a session whose threads spin during a run and sleep after it."""
    ort = load("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _bind(session: Any, arrays: dict[str, Array], y: Array) -> tuple[Any, Any]:
    """Bind the inputs and y; return the binding and the value of y."""
    value = load("onnxruntime").OrtValue.ortvalue_from_numpy
    result, binding = value(y), session.io_binding()
    for name, array in arrays.items():
        binding.bind_ortvalue_input(name, value(array))
    binding.bind_ortvalue_output("y", result)
    return binding, result


def _convert_us(problem: Problem, setting: Setting, arrays: dict[str, Array], y: Array) -> float:
    """Time ONNX Runtime's own Transpose of x, z and y where the problem is nhwc."""
    x_too, y_too = foreign(problem, "nchw")
    to_nchw = ([arrays["x"]] if x_too else []) + ([arrays["z"]] if y_too and "z" in arrays else [])
    total = sum(_transpose_us(setting, array.transpose(0, 2, 3, 1), (0, 3, 1, 2)) for array in to_nchw)
    return total + (_transpose_us(setting, y, (0, 2, 3, 1)) if y_too else 0.0)


def _transpose_us(setting: Setting, array: Array, perm: tuple[int, ...]) -> float:
    """Time a Transpose of an array, which is made contiguous before."""
    source, target = np.ascontiguousarray(array), np.ascontiguousarray(array.transpose(perm))
    node = load("onnx.helper").make_node("Transpose", ["x"], ["y"], perm=list(perm))
    shapes = {"x": source.shape, "y": target.shape}
    model = _model([node], shapes, dict.fromkeys(shapes, source.dtype), [])
    session = _session(model, setting.threads, "ALL")
    binding, _ = _bind(session, {"x": source}, target)
    return setting.quick_us(Blocking(lambda: session.run_with_iobinding(binding)))
