"""ONNX Runtime's CPU execution provider, with bound inputs and outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.device import Device
from tilewright.peers.base import (
    Contestant,
    Offer,
    Peer,
    Setting,
    as_nchw,
    as_output,
    bias_of,
    foreign,
    load,
    needs,
)
from tilewright.problem import Problem
from tilewright.runtime.base import Blocking
from tilewright.tuning.inputs import Inputs

_OPSET, _IR = 17, 8  # old enough for every ONNX Runtime since 1.12


class OnnxRuntime(Peer):
    """One Conv node; ONNX Runtime knows nchw only, and may reorder to its own blocks inside."""

    name = "onnxruntime"
    backends = ("opencl", "numpy")

    def absent(self, device: Device) -> str | None:
        return needs(self.name, ("onnxruntime", "onnxruntime onnx"), ("onnx", "onnx"))

    def offer(self, problem: Problem, inputs: Inputs, setting: Setting) -> Offer:
        offer = Offer()
        for level, what in (("ALL", "own blocks"), ("EXTENDED", "plain nchw")):
            make = lambda at=level, how=what: _contestant(problem, inputs, setting, at, how)  # noqa: E731
            offer.attempt(f"onnxruntime {what}", make)
        return offer


def _contestant(problem: Problem, inputs: Inputs, setting: Setting, level: str, what: str) -> Contestant:
    ort = load("onnxruntime")
    session = _session(_conv_model(problem, inputs), setting.threads, level)
    x = np.ascontiguousarray(as_nchw(inputs.x, problem.layout_in))
    y = np.full((problem.n, problem.k, problem.p, problem.q), np.nan, np.float32)
    binding, result = _bind(session, x, y)

    def run() -> None:
        session.run_with_iobinding(binding)

    def output() -> Any:
        return as_output(result.numpy(), problem)

    detail = f"ONNX Runtime {ort.__version__}, {what}, {setting.threads} threads"
    convert_us = _convert_us(problem, setting, x, y)
    return Contestant(
        "onnxruntime", f"onnxruntime {what}", detail, "nchw", Blocking(run), output, convert_us=convert_us
    )


def _conv_model(problem: Problem, inputs: Inputs) -> bytes:
    """Build the model: Conv with its bias, then Relu; the filter is a constant of it."""
    helper, numpy_helper = load("onnx.helper"), load("onnx.numpy_helper")
    top, bottom, left, right = problem.pad
    bias = bias_of(problem, inputs)
    constants = {"w": inputs.w} | ({} if bias is None else {"b": bias})
    relu = problem.epilogue.act == "relu"
    conv = helper.make_node(
        "Conv", ["x", *constants], ["conv" if relu else "y"], kernel_shape=[problem.r, problem.s],
        pads=[top, left, bottom, right], strides=list(problem.stride),
        dilations=list(problem.dilation), group=problem.groups,
    )  # fmt: skip
    nodes = [conv]
    if relu:
        nodes.append(helper.make_node("Relu", ["conv"], ["y"]))
    shapes: dict[str, tuple[int, ...]] = {
        "x": (problem.n, problem.c, problem.h, problem.w),
        "y": (problem.n, problem.k, problem.p, problem.q),
    }
    return _model(nodes, shapes, [numpy_helper.from_array(a, name) for name, a in constants.items()])


def _model(nodes: list[Any], shapes: dict[str, tuple[int, ...]], constants: list[Any]) -> bytes:
    helper, kinds = load("onnx.helper"), load("onnx").TensorProto
    x, y = (helper.make_tensor_value_info(name, kinds.FLOAT, shapes[name]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "layer", [x], [y], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)])
    model.ir_version = _IR
    serialized: bytes = model.SerializeToString()
    return serialized


def _session(model: bytes, threads: int, level: str) -> Any:
    """Open a session whose threads spin during a run and sleep as soon as it is over."""
    ort = load("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.force_spinning_stop", "1")
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _bind(session: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Bind x and y; return the binding and the value that y is written to."""
    value = load("onnxruntime").OrtValue.ortvalue_from_numpy
    result, binding = value(y), session.io_binding()
    binding.bind_ortvalue_input("x", value(x))
    binding.bind_ortvalue_output("y", result)
    return binding, result


def _convert_us(problem: Problem, setting: Setting, x: Any, y: Any) -> float:
    """Time ONNX Runtime's own Transpose of x and y where the problem is nhwc."""
    x_too, y_too = foreign(problem, "nchw")
    total = 0.0
    for wanted, array, perm in ((x_too, x, (0, 3, 1, 2)), (y_too, y, (0, 2, 3, 1))):
        if not wanted:
            continue
        to_nchw = perm == (0, 3, 1, 2)
        source = np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if to_nchw else array
        target = array if to_nchw else np.ascontiguousarray(array.transpose(perm))
        node = load("onnx.helper").make_node("Transpose", ["x"], ["y"], perm=list(perm))
        session = _session(_model([node], {"x": source.shape, "y": target.shape}, []), setting.threads, "ALL")
        binding, _ = _bind(session, source, np.empty_like(target))
        total += setting.quick_us(lambda s=session, b=binding: s.run_with_iobinding(b))  # type: ignore[misc]
    return total
