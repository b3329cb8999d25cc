"""The cuDNN peer against a stand-in of its front end on host memory: which engines, and what they write."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from every_activation import WORDS
from fake_cudnn import Cudnn, Engine, Graph
from test_peers import H100, PEER, agrees, prepared, torch_for_gpu

from tilewright.checking.inputs import normal_inputs
from tilewright.errors import PeerError
from tilewright.kernels.untuned.reference import numpy_conv
from tilewright.peers import Setting, cudnn_plans
from tilewright.peers.cudnn_layout import _HANDLES
from tilewright.problem import Problem
from tilewright.problem.epilogue import Epilogue

__all__ = ["torch_for_gpu"]

ENGINES = {
    0: Engine(),
    1: Engine(notes=("TENSOR_CORE", "DOWN_CONVERT_INPUTS")),
    2: Engine(notes=("WINOGRAD",), workspace=4096),
    4: Engine(refuses="CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH"),
    5: Engine(fails="build"),
    6: Engine(fails="run", notes=("NONDETERMINISTIC",)),
    7: Engine(notes=("REDUCED_PRECISION_REDUCTION",)),
    9: Engine(tiles=3, workspace=64),
}


def conv(graph: Graph, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The plain convolution that a graph describes."""
    (n, c, h, width), (k, cg, r, s) = x.shape, w.shape
    (top, left), (bottom, right) = graph.shape["pre_padding"], graph.shape["post_padding"]
    problem = Problem(
        c, h, width, k, r, s, n, (top, bottom, left, right), tuple(graph.shape["stride"]),
        tuple(graph.shape["dilation"]), c // cg,
    )  # fmt: skip
    return numpy_conv(problem, x, w)[0]


@pytest.fixture
def fake(torch_for_gpu: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cudnn]:
    made = Cudnn(ENGINES, conv)
    monkeypatch.setitem(sys.modules, "cudnn", made)
    monkeypatch.setattr("tilewright.peers.cudnn.SLOW", math.inf)  # all settings: times on a CPU say nothing
    cudnn_plans._NOTES.clear()
    _HANDLES.clear()
    yield made
    cudnn_plans._NOTES.clear()
    _HANDLES.clear()


def offer_of(problem: Problem, engines: int = 99):  # type: ignore[no-untyped-def]
    """An offer on stream 5."""
    inputs = normal_inputs(problem, 7)
    setting = Setting(H100, stream=lambda: 5, engines=engines)
    return PEER["cudnn"].prepare(problem, inputs, setting), inputs


LAYERS = [
    "n2c3h7w5k11r3s2p1-f32",
    "n1c4h5w5k4r3s3p1-f32-nhwc+bias+relu",
    "n1c4h5w6k8r3s1p1.0.2.1u2-f32-nchw2nhwc+relu",
    "n2c6h9w11k9r3s3p1u2d1x2g3-f32+bias",
    "n1c4h5w6k8r3s3p1-f32+alpha0.5+bias+add0.25+relu+maxpool2",
    "n1c4h5w6k8r3s3p1-f32-nhwc+alpha-1.5+add+silu+avgpool2",
    "n1c4h5w6k8r3s3p1-f32+leaky0.1+maxpool3u2p1",
    "n2c4h5w6k8r3s3p1-f64+bias+clamp-1:2",
    "n1c4h5w6k8r3s3p1-f16+alpha0.5",
    *(f"n1c4h5w4k8r3s3p1-f32{word}" for word in WORDS),
    "n1c4h5w6k8r3s3p1-bf16-nhwc+bias+add+relu",
    "n1c16h5w6k8r3s3p1-i8-nhwc+bias+add+relu",
    "n1c16h5w6k8r3s3p1-i8-nhwc+bias+relu+maxpool2+requant",
    "n1c16h5w6k8r3s3p1-i8-nhwc+bias+relu+requant",
    "n1c16h5w6k8r3s3p1-i8+requant",
    "n1c4h5w6k8r3s3p1-accurate+bias",
    "n1c4h5w6k8r3s3p1-f8-nhwc+bias+add+relu",
]


@pytest.mark.parametrize("text", LAYERS)
def test_every_strict_engine_in_both_layouts(text: str, fake: Cudnn) -> None:
    problem = Problem.parse(text)
    offer, inputs = offer_of(problem)
    agrees(offer, problem, inputs)
    plans = {"eng0_k2=1", "eng0", "eng2_k2=1", "eng2", "eng9_k2=1", "eng9", "eng9_k2=0", "eng9_k2=2"}
    firsts = {"eng0_k2=1", "eng2_k2=1", "eng9_k2=1"}
    tried = firsts if problem.dtype == "f64" else plans
    ways = [f" {way}" if way.steps else "" for way in cudnn_plans.ways(problem)]
    wanted = {f"cudnn {at}{way} {plan}" for at in ("nchw", "nhwc") for way in ways for plan in tried}
    assert {c.name for c in offer.contestants} == wanted


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_odd_channels_of_whole_numbers_are_padded_too(layout: str, fake: Cudnn) -> None:
    problem = Problem.parse(f"n2c3h5w6k8r3s3p1-i8-{layout}+bias")
    fake.engines = {0: Engine()}
    offer, inputs = offer_of(problem)
    agrees(offer, problem, inputs)
    found = {c.name: c for c in offer.contestants}
    channels = ("", " C=4", " C=16")
    ways = [f"{c}{way}" for c in channels for way in ("", " bias")]
    wanted = {f"cudnn {at}{way} eng0" for at in ("nchw", "nhwc") for way in ways}
    assert wanted <= set(found)
    padded = found[f"cudnn {layout} C=4 eng0"]
    assert padded.detail.endswith("C padded to 4") and padded.convert_us > 0
    assert found[f"cudnn {layout} eng0"].convert_us == 0


def test_each_array_of_another_layout_or_number_of_channels_is_converted(
    fake: Cudnn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here each takes 1 us: x, y, and the copy of x beside zeros."""
    monkeypatch.setattr(Setting, "quick_us", lambda self, run: (run(), 1.0)[1])
    fake.engines = {0: Engine()}
    found = {c.name: c.convert_us for c in offer_of(Problem.parse("n2c3h5w6k8r3s3p1-i8"))[0].contestants}
    wanted = {"nchw": 0, "nchw C=4": 1, "nchw C=16": 1, "nhwc": 2, "nhwc C=4": 3, "nhwc C=16": 3}
    assert {name: found[f"cudnn {name} eng0"] for name in wanted} == wanted


def test_channels_of_groups_are_not_padded(fake: Cudnn) -> None:
    """Those of each would have to be."""
    fake.engines = {0: Engine()}
    offer, _ = offer_of(Problem.parse("n2c6h5w6k8r3s3p1g2-i8"))
    assert offer.contestants and not any("C=" in c.name for c in offer.contestants)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", [""]),
        ("requant", ["", "requant"]),
        ("bias+relu+requant", ["", "bias+act+requant", "bias+act"]),
        ("relu+maxpool2+requant", ["", "act", "act+bias=0"]),
        ("maxpool2", [""]),
        ("bias+relu", ["", "bias+act"]),
        ("relu", ["", "act", "act+bias=0"]),
        ("add0.5+silu+avgpool2", ["", "add+act", "add+bias=0"]),
        ("alpha2+bias+add+clamp0:6", ["", "bias+add+act", "bias+add"]),
        ("leaky0.1", ["", "act"]),
        ("alpha0.5", [""]),
    ],
)
def test_which_graphs_are_tried(words: str, found: list[str]) -> None:
    kind = "i8" if "requant" in words else "f32"
    problem = Problem.parse(f"n1c4h5w6k8r3s3p1-{kind}{'+' * bool(words)}{words}")
    assert [str(way) for way in cudnn_plans.ways(problem)] == found


@pytest.mark.parametrize(
    ("kind", "stored", "sums"),
    [
        ("f64", "f64", "f64"), ("f32", "f32", "f32"), ("tf32", "f32", "f32"), ("f16", "f16", "f32"),
        ("bf16", "bf16", "f32"), ("f8", "f8", "f32"), ("i8", "i8", "i32"), ("q8", "i8", "i32"),
    ],
)  # fmt: skip
def test_products_are_summed_in_f32_or_wider(
    kind: str, stored: str, sums: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cudnn, asked = Cudnn({}, conv), list[dict[str, object]]()

    def made(**how: object) -> Graph:
        asked.append(how)
        return Graph(cudnn, **how)

    monkeypatch.setattr(cudnn, "pygraph", made)
    problem = Problem.parse("n1c16h5w4k8r3s3p1-f32+bias").with_dtype(kind)
    graph = cudnn_plans.graph_of(cudnn, problem, "nhwc", cudnn_plans.Way(("bias",)), {"handle": 7})
    wanted = dict(io_data_type=stored, intermediate_data_type=sums, compute_data_type=sums, handle=7)
    assert asked == [wanted] and graph.shape["compute_data_type"] == sums
    if kind == "q8":  # but the last scale is not a whole number
        way = cudnn_plans.Way(("bias", cudnn_plans.REQUANT))
        assert cudnn_plans.graph_of(cudnn, problem, "nhwc", way, {"handle": 7}).scaled == "f32"


def test_what_no_graph_can_fuse_runs_apart(fake: Cudnn) -> None:
    fake.refuses = {"swish", "mul"}
    problem = Problem.parse("n1c4h5w6k8r3s3p1-f32+bias+add+silu+maxpool2")
    offer, inputs = offer_of(problem)
    agrees(offer, problem, inputs)
    details = {c.name: c.detail for c in offer.contestants}
    assert details["cudnn nhwc bias+add eng0"].endswith("nhwc, bias add fused, silu maxpool2 apart")
    assert details["cudnn nhwc eng0"].endswith("nhwc, bias add silu maxpool2 apart")
    assert offer.skipped["cudnn nhwc bias+add+act"] == "No valid engine configs for this graph"


def test_an_activation_that_cudnn_has_no_node_for_runs_apart(
    fake: Cudnn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(cudnn_plans.NODES, "silu")
    problem = Problem.parse("n1c4h5w6k8r3s3p1-f32+bias+silu")
    assert [str(way) for way in cudnn_plans.ways(problem)] == ["", "bias"]
    offer, inputs = offer_of(problem)
    agrees(offer, problem, inputs)
    assert all(one.detail.endswith("silu apart") for one in offer.contestants)
    monkeypatch.delitem(cudnn_plans.NODES, "relu")
    whole = Problem.parse("n1c16h5w6k8r3s3p1-i8+bias+relu+requant")
    assert [str(way) for way in cudnn_plans.ways(whole)] == ["", "bias"]  # what is requantised comes last


def test_an_activation_that_nothing_knows_is_no_relu(fake: Cudnn, unknown: Epilogue) -> None:
    with pytest.raises(PeerError, match=r"unheard: has no operation of .* yet"):
        offer_of(replace(Problem.parse("n1c4h5w6k8r3s3p1-f32"), epilogue=unknown))


def test_a_detail_tells_where_alpha_and_the_last_scale_are(fake: Cudnn) -> None:
    offer, _ = offer_of(Problem.parse("n1c16h5w6k8r3s3p1-i8-nhwc+bias+relu+requant"))
    details = {c.name: c.detail for c in offer.contestants}
    whole = details["cudnn nhwc bias+act+requant eng0"]
    assert whole.endswith("nhwc, bias relu fused, requant fused")
    assert details["cudnn nhwc eng0"].endswith("nhwc, bias relu apart, requant apart")
    offer, _ = offer_of(Problem.parse("n1c4h5w6k8r3s3p1-f32+alpha0.5+bias"))
    details = {c.name: c.detail for c in offer.contestants}
    assert details["cudnn nchw bias eng0"].endswith("nchw, alpha in the filter, bias fused")


def test_a_bias_of_zeros_is_told(fake: Cudnn) -> None:
    offer, _ = offer_of(Problem.parse("n1c4h5w6k8r3s3p1-f32+relu"))
    details = {c.name: c.detail for c in offer.contestants}
    assert details["cudnn nchw act+bias=0 eng0"].endswith("nchw, relu fused, with a bias of zeros")


def test_no_room_for_a_workspace_leaves_the_other_plans(
    fake: Cudnn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.peers.gpu import TorchArrays

    allocate = TorchArrays.bytes

    def limited(self: TorchArrays, count: int):  # type: ignore[no-untyped-def]
        if count > 1 << 20:
            raise MemoryError("out of memory")
        return allocate(self, count)

    monkeypatch.setattr(TorchArrays, "bytes", limited)
    fake.engines = {0: Engine(workspace=1 << 40), 2: Engine(), 9: Engine(workspace=64)}
    offer, inputs = offer_of(Problem.parse(LAYERS[0]))
    agrees(offer, Problem.parse(LAYERS[0]), inputs)
    assert {c.name for c in offer.contestants} == {
        f"cudnn {at} {plan}" for at in ("nchw", "nhwc") for plan in ("eng2", "eng2_k2=1", "eng9", "eng9_k2=1")
    }
    assert offer.skipped["cudnn nchw eng0"] == "out of memory"


def test_notes_become_tags_and_workspace_is_told(fake: Cudnn) -> None:
    offer, _ = offer_of(Problem.parse(LAYERS[0]))
    found = {c.name: c for c in offer.contestants}
    assert found["cudnn nchw eng2"].tags == ("winograd",)
    assert found["cudnn nchw eng2"].workspace_bytes == 4096
    assert "WINOGRAD" in found["cudnn nchw eng2"].detail
    assert found["cudnn nhwc eng9_k2=2"].tags == ("gemm",)
    assert found["cudnn nhwc eng9_k2=2"].layout == "nhwc"


def test_failures_keep_their_reasons(fake: Cudnn) -> None:
    offer, _ = offer_of(Problem.parse(LAYERS[0]))
    assert offer.skipped["cudnn nchw eng5"] == "nvrtc: no luck"
    assert offer.skipped["cudnn nhwc eng6"] == "CUDNN_STATUS_EXECUTION_FAILED"
    others = offer.skipped["cudnn nchw 4 other engines"]
    assert others == "3 CUDNN_STATUS_NOT_SUPPORTED, 1 CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH"


def test_loose_engines_are_not_even_built(fake: Cudnn) -> None:
    fake.engines = {**ENGINES, 3: Engine(notes=("TENSOR_CORE",))}
    offer_of(Problem.parse(LAYERS[0]))
    assert not any(name.startswith(("eng1", "eng3", "eng7")) for name in fake.built)
    offer_of(Problem.parse(LAYERS[0].replace("f32", "f16")))  # f16 on tensor cores is summed in f32
    assert any(name.startswith("eng3") for name in fake.built)
    assert not any(name.startswith(("eng1", "eng7")) for name in fake.built)


def test_tf32_lets_tensor_cores_in(fake: Cudnn) -> None:
    problem = Problem.parse(LAYERS[0]).with_dtype("tf32")
    offer, inputs = offer_of(problem)
    agrees(offer, problem, inputs)
    assert "cudnn nhwc eng1" in {c.name for c in offer.contestants}
    assert not any(name.startswith("eng7") for name in fake.built)  # sums of less than f32
    offer_of(problem.with_dtype("accurate"))  # beside strict f32
    assert any("eng0" in name for name in fake.built)


def test_only_the_best_few_and_one_gemm_are_kept(fake: Cudnn, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = iter(range(1000))  # the order in which plans are timed is their rank
    monkeypatch.setattr(Setting, "quick_us", lambda self, run: (run(), float(next(quick)))[1])
    fake.engines = {0: Engine(notes=("WINOGRAD",)), 2: Engine(notes=("FFT",)), 9: Engine()}
    offer, _ = offer_of(Problem.parse(LAYERS[0]), engines=2)
    assert [c.name for c in offer.contestants] == [f"cudnn nchw eng{n}_k2=1" for n in (0, 2, 9)]
    assert offer.skipped["cudnn nhwc eng9"].startswith("slower: ")
    name, make = offer.slower[0]
    assert name == "cudnn nhwc eng0_k2=1" == make().name
    quick = iter(range(1000))
    offer, _ = offer_of(Problem.parse(LAYERS[0]), engines=1)
    assert [c.name for c in offer.contestants] == [f"cudnn nchw eng{n}_k2=1" for n in (0, 9)]
    quick = iter(range(1000))
    offer, _ = offer_of(Problem.parse(LAYERS[0]), engines=3)  # one of which is a GEMM already
    assert [c.name for c in offer.contestants] == [f"cudnn nchw eng{n}_k2=1" for n in (0, 2, 9)]


def test_a_slow_engine_is_tried_in_one_setting(fake: Cudnn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.peers.cudnn.SLOW", 1.5)
    times = iter([10.0, 14.0, 31.0, 16.0, *[9.0] * 100])  # firsts: engines 1 and 9 in nchw, then in nhwc
    monkeypatch.setattr(Setting, "quick_us", lambda self, run: (run(), next(times))[1])
    fake.engines = {1: Engine(tiles=2), 9: Engine(tiles=2)}
    offer, _ = offer_of(Problem.parse(LAYERS[0]))
    names = {c.name.partition("_")[0] for c in offer.contestants}
    assert names == {"cudnn nchw eng1", "cudnn nchw eng9", "cudnn nhwc eng1", "cudnn nhwc eng9"}
    left = {name: why for name, why in offer.skipped.items() if "other settings" in name}
    assert {name.partition("_")[0] for name in left} == {"cudnn nhwc eng1", "cudnn nhwc eng9"}
    assert all(why.startswith("slower: the first took") for why in left.values())


def test_settings_that_end_the_process_are_not_tried(fake: Cudnn) -> None:
    """On an H100 a plan of cuDNN 9.19 in f64 was a segmentation fault; each engine's first setting runs."""
    fake.engines = {1: Engine(tiles=2), 5: Engine(fails="build"), 9: Engine(tiles=2)}
    problem = Problem.parse(LAYERS[0]).with_dtype("f64")
    offer, inputs = offer_of(problem)
    agrees(offer, problem, inputs)
    left = {name: why for name, why in offer.skipped.items() if "other settings" in name}
    assert not any("eng5" in name for name in left), "none of its settings works"
    fake.built = [name for name in fake.built if not name.startswith("eng5")]
    assert len(left) == len(fake.built) == len(offer.contestants) == 4
    assert all(why.startswith("not tried: ") for why in left.values())


@pytest.mark.parametrize(("tiles", "settings"), [(64, 64), (65, 0)])
def test_an_engine_of_too_many_settings_runs_in_those_that_cudnn_names(
    tiles: int, settings: int, fake: Cudnn
) -> None:
    fake.engines = {9: Engine(tiles=tiles)}
    offer, _ = offer_of(Problem.parse(LAYERS[0]), engines=999)
    named = {"eng9", "eng9_k2=1"}
    swept = {f"eng9_k2={n}" for n in range(settings)}
    assert {c.name.split()[-1] for c in offer.contestants} == named | swept


@pytest.mark.parametrize(("stride", "settings"), [(0, (0, 1, 2, 3, 4)), (2, (0, 2, 4))])
def test_settings_are_a_stride_apart(stride: int, settings: tuple[int, ...]) -> None:
    cudnn = Cudnn({9: Engine(tiles=5, stride=stride)}, conv)
    plans, skipped = cudnn_plans.strict_plans(cudnn, lambda: Graph(cudnn), ("f32", f"strides {stride}", ""))
    assert [plan.name for plan in plans][2:] == [f"eng9_k2={n}" for n in settings if n != 1]
    assert skipped == {"10 other engines": "10 CUDNN_STATUS_NOT_SUPPORTED"}


def test_an_old_front_end_has_the_plans_that_it_lists(
    fake: Cudnn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("create_execution_plan", "get_engine_count"):
        monkeypatch.delattr(Graph, name)
    offer, _ = offer_of(Problem.parse(LAYERS[0]))
    assert {c.name.split()[-1] for c in offer.contestants} == {"eng0_k2=1", "eng2_k2=1", "eng9_k2=1"}
    assert not any("other engines" in name for name in offer.skipped)


def test_what_has_no_room_in_one_layout_may_run_in_the_other(
    fake: Cudnn, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = importlib.import_module("tilewright.peers.gpu").GpuArrays.place

    def limited(self, problem: Problem, inputs: object, layout: str):  # type: ignore[no-untyped-def]
        if layout == "nchw":
            raise MemoryError("out of memory")
        return place(self, problem, inputs, layout)

    monkeypatch.setattr("tilewright.peers.gpu.GpuArrays.place", limited)
    offer, _ = offer_of(Problem.parse(LAYERS[0]))
    assert offer.skipped["cudnn nchw"] == "out of memory"
    assert {c.layout for c in offer.contestants} == {"nhwc"}


def test_no_library_for_arrays(fake: Cudnn, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(setting: Setting) -> None:
        raise PeerError("no arrays on the GPU (no torch; no cupy)")

    monkeypatch.setattr("tilewright.peers.cudnn.gpu_arrays", none)
    assert PEER["cudnn"].absent(H100) == "cudnn: no arrays on the GPU (no torch; no cupy)"


def test_no_libcudnn(fake: Cudnn, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: Cudnn) -> int:
        raise RuntimeError("Unable to find symbol cudnnGetVersion")

    monkeypatch.setattr(Cudnn, "backend_version", missing)
    reason = PEER["cudnn"].absent(H100)
    assert reason and "cudnnGetVersion" in reason and "pip install nvidia-cudnn" in reason


def test_the_real_front_end_without_a_gpu() -> None:
    """With the front end but no GPU, the peer is absent and says why; without it, too."""
    importlib.import_module("tilewright.peers.cudnn")
    reason = PEER["cudnn"].absent(H100)
    if reason is None:
        prepared(PEER["cudnn"], Problem.parse(LAYERS[0]), H100)
    else:
        assert reason.startswith("cudnn: ") and "\n" not in reason
