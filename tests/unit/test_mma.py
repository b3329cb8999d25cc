"""The mma family: what it refuses and why, what its kernels compile to, what the model makes of it."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright import shapes
from tilewright.device import for_architecture, tensor_macs
from tilewright.errors import ConfigError
from tilewright.kernels import family
from tilewright.kernels.family import Config
from tilewright.problem import Problem
from tilewright.tuning import model
from tilewright.tuning.search import rank

H100 = for_architecture("sm_90")
MMA = family("mma")
Y12 = Problem.parse("n1c256h34w34k512r3s3p1-f16-nhwc")
BASE = dict(x=0, l1=1, mt=4, nt=4, wm=2, wn=2, sb=1, mb=1, fd=2, chunks=8, stages=4, sc=1, sg=1, combine=0)
LAYERS = shapes.load(["resnet"], layout="nhwc")
LAYERS += [layer for layer in shapes.load(["yolo9000"], layout="nhwc") if layer.name in ("Y0", "Y12")]


def _config(**change: int) -> Config:
    return Config.make("mma", BASE | change)


def _us(problem: Problem, **change: int) -> float:
    MMA.check(problem, H100, _config(**change))
    return model.estimate(MMA, problem, H100, _config(**change)).total_us


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n1c64h8w8k64r3s3p1-f32", "not f32"),
        ("n1c64h40w40k64r17s3-f16", "more than 15 rows"),
        ("n1c64h8w8k64r3s3p1g64-f16", "fewer than 8 channels"),
    ],
)
def test_refusals_say_why(text: str, why: str) -> None:
    assert why in str(MMA.refuses(Problem.parse(text), H100))


def test_a_device_without_tensor_cores_is_refused() -> None:
    assert "no tensor cores" in str(MMA.refuses(Y12, replace(H100, tensor_macs=0)))
    assert tensor_macs("sm_75") == 0 < tensor_macs("sm_120") < tensor_macs("sm_80") < tensor_macs("sm_90")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (dict(mt=8, nt=6), "sums"),
        (dict(stages=8), "shared"),
        (dict(sb=4), "fragments"),
        (dict(combine=3, sg=1), "combine_none"),
        (dict(chunks=2, fd=1, wm=1, wn=1, sc=8, mb=4, mt=3, nt=3), "cluster_meets"),
    ],
)
def test_rules_are_named(change: dict[str, int], rule: str) -> None:
    with pytest.raises(ConfigError, match=f"rule '{rule}'"):
        MMA.check(Y12, H100, _config(**change))


def test_the_input_is_read_as_its_layout_allows() -> None:
    ways = {text: MMA.params(Problem.parse(text), H100)[0].values for text in (
        "n1c64h9w9k64r3s3p1-f16-nhwc", "n1c64h9w9k64r3s3p1-f16", "n1c12h9w9k64r3s3p1-f16-nhwc",
        "n1c3h9w9k64r3s3p1-i8-nhwc", "n1c128h9w9k64r3s3p1-bf16",
    )}  # fmt: skip
    assert list(ways.values()) == [(0,), (1,), (1, 2), (1, 2), (1,)]  # as it is, copied, gathered


def test_the_model_knows_pipelines_tiles_and_tensor_cores() -> None:
    assert _us(Y12) < _us(Y12, stages=2)  # fewer bytes in flight
    assert _us(Y12, mt=4, nt=2, wm=2, wn=2) < _us(Y12, mt=1, nt=1, wm=1, wn=4, fd=1)  # loads for each product
    large = Problem.parse("n32c256h34w34k512r3s3p1-f16-nhwc")
    slow = replace(H100, tensor_macs=128)
    times = [model.estimate(MMA, large, device, _config()) for device in (H100, slow)]
    assert times[0].total_us < times[1].total_us
    assert times[1].facts["tensor_us"] > 0.8 * times[1].terms_us["main_loop_us"]


@pytest.mark.parametrize("dtype", MMA.dtypes)
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_the_first_choice_compiles_everywhere(layer: shapes.Layer, dtype: str, cache: None) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from test_winners_compile import compiles_everywhere

    problem = replace(layer.problem, dtype=dtype)
    compiles_everywhere(problem, rank(problem, H100, MMA, 1)[0][0])


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))


@pytest.mark.parametrize(("dtype", "product"), [("f16", "HMMA"), ("bf16", "HMMA"), ("i8", "IMMA")])
def test_the_main_loop_is_products(dtype: str, product: str, cache: None, tmp_path: Path) -> None:
    """64 x 64 outputs a warp: half of the loop is products, and 4 products a fragment read."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    tools = [*Path(sysconfig.get_paths()["purelib"]).glob("nvidia/*/bin/cuobjdump")]
    if not tools:
        pytest.skip("no cuobjdump")
    built = compile_cuda(MMA.blueprint(replace(Y12, dtype=dtype), H100, _config()), "sm_90")
    (tmp_path / "mma.cubin").write_bytes(built.binary)
    text = subprocess.run([tools[0], "-sass", tmp_path / "mma.cubin"], capture_output=True, text=True).stdout
    lines = re.findall(r"/\*([0-9a-f]{4,5})\*/\s+(.*?);", text)
    at = [(int(place, 16), line) for place, line in lines]
    back = [(int(m[1], 16), place) for place, line in at if (m := re.search(r"BRA.* 0x([0-9a-f]+)", line))]
    bodies = [[line for place, line in at if start <= place <= end] for start, end in back if start < end]
    body = max(bodies, key=lambda lines: sum(product in line for line in lines))
    count = {name: sum(name in line for line in body) for name in (product, "LDSM", "LDGSTS", "BAR.SYNC")}
    assert count == {product: 128, "LDSM": 32, "LDGSTS": 16, "BAR.SYNC": 1}
    assert len(body) < 2.3 * count[product]
