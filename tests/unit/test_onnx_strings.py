"""What docs/problems.md says of ONNX: the strings that its attributes become, by ONNX's own evaluator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.cli import main
from tilewright.kernels.requant import numpy_requantised
from tilewright.kernels.untuned.reference import numpy_conv
from tilewright.problem import Problem

X, W = (2, 4, 9, 11), (6, 2, 3, 2)
SIZES = "n2c4h9w11k6r3s2"


def answer(**attributes: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run a Conv of two groups in ONNX."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.DOUBLE
    node = helper.make_node("Conv", ["x", "w"], ["y"], group=2, **attributes)
    given = [helper.make_tensor_value_info(name, kind, shape) for name, shape in (("x", X), ("w", W))]
    graph = helper.make_graph([node], "one", given, [helper.make_tensor_value_info("y", kind, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(X), rng.standard_normal(W)
    from onnx.reference import ReferenceEvaluator

    return x, w, ReferenceEvaluator(model).run(None, {"x": x, "w": w})[0]


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        (dict(pads=[0, 1, 2, 3], kernel_shape=[3, 2]), "p0.2.1.3"),
        (dict(pads=[1, 0, 0, 2], strides=[2, 3]), "p1.0.0.2u2x3"),
        (dict(pads=[1, 2, 1, 2], dilations=[2, 3]), "p1x2d2x3"),
        (dict(auto_pad="VALID"), ""),
    ],
)
def test_attributes_become_a_string(attributes: dict[str, Any], text: str) -> None:
    x, w, y = answer(**attributes)
    problem = Problem.parse(f"{SIZES}{text}g2-f64")
    found = numpy_conv(problem, x, w, None, None)[0]
    assert found.shape == y.shape and np.allclose(found, y)


@pytest.mark.parametrize(("stride", "dilation"), [((1, 1), (1, 1)), ((2, 3), (1, 1)), ((1, 1), (2, 3))])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_auto_pad_has_the_formula_of_the_page(
    auto_pad: str, stride: tuple[int, int], dilation: tuple[int, int]
) -> None:
    x, w, y = answer(auto_pad=auto_pad, strides=stride, dilations=dilation)
    pads: list[int] = []
    for size, taps, u, d in zip(X[2:], W[2:], stride, dilation, strict=True):
        outputs = -(-size // u)
        t = max((outputs - 1) * u + d * (taps - 1) + 1 - size, 0)
        pads += [t // 2, t - t // 2] if auto_pad == "SAME_UPPER" else [t - t // 2, t // 2]
    steps = f"u{stride[0]}x{stride[1]}d{dilation[0]}x{dilation[1]}"
    problem = Problem.parse(f"{SIZES}p{'.'.join(map(str, pads))}{steps}g2-f64")
    found = numpy_conv(problem, x, w, None, None)[0]
    assert found.shape == y.shape and np.allclose(found, y)


@pytest.mark.parametrize(("zero", "pad"), [(np.int8(0), 1), (np.uint8(128), 1), (np.int8(5), 0)])
def test_a_quantised_layer_has_the_scale_and_bias_of_the_page(zero: Any, pad: int) -> None:
    onnx = pytest.importorskip("onnx")
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (2, 4, 9, 11)).astype(np.int8)
    w = rng.integers(-128, 128, (6, 4, 3, 2)).astype(np.int8)
    bias = rng.integers(-9000, 9000, 6).astype(np.int32)
    w_scale = rng.uniform(0.001, 0.01, 6).astype(np.float32)
    x_scale, y_scale = np.float32(0.02), np.float32(0.05)
    if zero.dtype == np.uint8:
        x = x.view(np.uint8)
    given = dict(
        x=x, xs=x_scale, xz=zero, w=w, ws=w_scale, wz=np.zeros(6, np.int8), ys=y_scale, yz=np.int8(0), b=bias,
    )  # fmt: skip
    helper, known = onnx.helper, onnx.numpy_helper
    node = helper.make_node("QLinearConv", list(given), ["y"], pads=[pad] * 4)
    values = [known.from_array(np.asarray(value), name) for name, value in given.items()]
    out = helper.make_tensor_value_info("y", onnx.TensorProto.INT8, None)
    graph = helper.make_graph([node], "one", [], [out], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    from onnx.reference import ReferenceEvaluator

    want = ReferenceEvaluator(model).run(None, {})[0]
    if zero.dtype == np.uint8:
        x = (x ^ 0x80).view(np.int8)
    elif zero:
        bias = bias - zero * w.sum((1, 2, 3), np.int32)
    problem = Problem.parse(f"n2c4h9w11k6r3s2p{pad}-i8+bias+requant")
    sums = numpy_conv(problem, x, w, bias, None)[0]
    found = numpy_requantised(problem, sums, x_scale * w_scale / y_scale)
    assert want.min() == -128 and want.max() == 127
    assert np.array_equal(found, want)


@pytest.mark.parametrize("name", ["model.onnx", "nets/Model.ONNX", "model.pt"])
def test_a_network_is_sent_to_the_page(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nets").mkdir()
    for there in (False, True):
        if there:
            Path(name).write_bytes(b"\x08\x07\x12\x07pytorch")
        assert main(["bench", name]) == 2
        told = capsys.readouterr().err
        assert f"layer '{name}': networks are not read" in told and told.count("\n") == 1
        assert "docs/problems.md" in told and "'From ONNX and PyTorch'" in told
    page = Path(__file__).parents[2] / "docs" / "problems.md"
    assert "\n## From ONNX and PyTorch\n" in page.read_text(encoding="utf-8")
