"""The textbook family and the named configs: they compile everywhere, and never race."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.arguments.named import NAMED, find
from tilewright.device import ARCHITECTURES, for_architecture
from tilewright.errors import ConfigError
from tilewright.floor import floor
from tilewright.kernels import FAMILIES, family_of, pick
from tilewright.kernels.family import Config
from tilewright.kernels.textbook.spec import STEP_NAMES
from tilewright.problem import Problem
from tilewright.search.model import estimate
from tilewright.search.space import space

TOY = Problem.parse("n1c256h228w228k256r5s5-f32+relu+maxpool2")
GEMM = Problem.parse("n1c4096h64w64k4096r1s1-f32")
LAYERS = (
    str(TOY), str(GEMM), str(GEMM) + "-nhwc+add0.5", "n8c25088h1w1k4096r1s1-f32",
    "n1c512h7w7k512r3s3p1-f32-nhwc+bias+relu", "n10000c4h40w40k16r7s7-f32+silu",
    "n1c3h224w224k64r7s7p3u2-f32", "n1c128h28w28k256r3s3p1u2-f32+bias+relu+maxpool3u2p1",
    "n1c1024h14w14k256r1s1-f32-nhwc2nchw+relu",
    "n1c4096h64w64k4096r1s1-f16+alpha0.5+add0.5", "n1c4096h64w64k4096r1s1-bf16-nhwc+add",
)  # fmt: skip
H100 = for_architecture("sm_90")


TENSOR = [arch for arch in ARCHITECTURES if for_architecture(arch).tensor_macs]
CASES = [  # each layer for an architecture in turn, those of tensor cores for all that have them
    (text, arch)
    for row, text in enumerate(LAYERS)
    for turn, arch in enumerate(ARCHITECTURES)
    if (turn == row % len(ARCHITECTURES) if text.find("-f32") > 0 else arch in TENSOR)
]


def test_every_name_meets_every_architecture() -> None:
    for name, one in NAMED.items():
        wanted = TENSOR if name.startswith("gemm:tensor") else ARCHITECTURES
        assert {arch for text, arch in CASES if one.fits(Problem.parse(text))} == set(wanted), name


@pytest.mark.parametrize(("text", "arch"), CASES)
def test_every_named_config_compiles_without_a_spill(text: str, arch: str, kept_cache: None) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    problem, device = Problem.parse(text), for_architecture(arch)
    kind = family_of("textbook")
    for config in {one.config(problem) for one in NAMED.values() if one.fits(problem)}:
        kind.check(problem, device, config)
        built = compile_cuda(kind.blueprint(problem, device, config), arch)  # refuses what spills
        assert all(used.local_bytes == 0 for used in built.resources.values())
        assert estimate(kind, problem, device, config).total_us > floor(problem, device).arithmetic_us / 4


def test_it_runs_only_where_it_is_named() -> None:
    assert not {"textbook", "reference"} & {one.name for one in pick(FAMILIES, ())}
    assert [one.name for one in pick(FAMILIES, ("textbook",))] == ["textbook"]


def test_each_row_of_the_sources_tables_is_a_name() -> None:
    table2 = ["no-tiling", "shared-tile", "pool-unrolled", "const-helpers", "unroll-pragma"]
    table3 = ["block-16x16x4", "block-16x16x2", "block-16x16x1", "block-16x8x4"]
    assert [name for name in NAMED if name.startswith("toy:")] == [f"toy:{x}" for x in table2 + table3]
    known = set(space(family_of("textbook"), TOY, H100).every())
    assert {find(f"toy:{name}", TOY) for name in table2 + table3} <= known
    fitting = {one.config(GEMM) for one in NAMED.values() if one.fits(GEMM)}
    assert len(fitting) == 12 and fitting <= set(space(family_of("textbook"), GEMM, H100).every())
    half = GEMM.with_dtype("f16")
    ladder = [name for name in NAMED if NAMED[name].fits(half)]
    assert ladder == ["gemm:tensor-naive", "gemm:tensor-tiled"]
    assert {find(name, half) for name in ladder} <= set(space(family_of("textbook"), half, H100).every())


def test_a_transpose_is_a_launch_of_its_own() -> None:
    found = family_of("textbook").blueprint(GEMM, H100, find("gemm:tiled-coalesced", GEMM))
    first, second = found.launches
    assert (first.kernel, first.chained) == ("transpose", False)
    assert (second.kernel, second.chained) == ("textbook_gemm", True)
    assert [buffer.nbytes for buffer in found.workspace] == [4 * 4096 * 4096]
    assert family_of("textbook").blueprint(GEMM, H100, find("gemm:tiled-uncoalesced", GEMM)).workspace == ()


def test_a_pool_that_is_not_there_is_not_unrolled() -> None:
    plain = Problem.parse("n1c256h228w228k256r5s5-f32")
    assert find("toy:pool-unrolled", TOY)["pool"] == 1
    assert find("toy:pool-unrolled", plain) == find("toy:shared-tile", plain)


@pytest.mark.parametrize(
    ("text", "layer", "says"),
    [
        ("toy:pool-unroled", TOY, "or a name; names that fit .*: toy:no-tiling, .*toy:block-16x8x4$"),
        ("gemm:naive", TOY, "made for other layers; .*: toy:no-tiling"),
        ("toy:no-tiling", Problem.parse("n1c8h9w9k8r3s3g8-f32"), "made for other layers; .*: none$"),
        ("gemm", GEMM, "gemm:tile-32$"),
        ("toy:" + "x" * 500, TOY, r"xxx\.\.\.'"),
    ],
)
def test_a_name_that_does_not_fit_says_which_do(text: str, layer: Problem, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        find(text, layer)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    ("changed", "rule"),
    [
        (dict(step=5, bw=32, bh=16, bk=1), "square"),
        (dict(step=1, bw=32, bh=32, bk=2), "block"),
        (dict(step=4, bw=8, bh=8, bk=2), "square"),
        (dict(step=6, bw=32, bh=2, bk=1), "one_warp"),
        (dict(step=7, bw=16, bh=2, bk=2), "warp"),
        (dict(step=7, bw=32, bh=32, bk=1), "staging"),
        (dict(step=7, bw=32, bh=8, bk=4), "registers"),  # 32 warps: 64 registers each
        (dict(step=7, bw=32, bh=16, bk=1), "registers"),  # 16, and 17 words in flight
    ],
)
def test_rules_by_name(changed: dict[str, int], rule: str) -> None:
    layer = GEMM.with_dtype("f16") if changed["step"] > 5 else GEMM
    with pytest.raises(ConfigError, match=f"rule '{rule}'"):
        family_of("textbook").check(layer, H100, Config.make("textbook", dict(pool=0) | changed))


def test_large_windows_are_not_unrolled() -> None:
    layer = Problem.parse("n1c8h64w64k8r3s3-f32+maxpool5")
    with pytest.raises(ConfigError, match="rule 'window'"):
        family_of("textbook").check(layer, H100, find("toy:pool-unrolled", layer))
    family_of("textbook").check(layer, H100, find("toy:shared-tile", layer))


def test_a_family_says_why_it_refuses_a_given_config() -> None:
    groups = Problem.parse("n1c8h9w9k8r3s3g8-f32")
    with pytest.raises(ConfigError, match="textbook does not take .*: it computes one group, not 8"):
        family_of("textbook").check(groups, H100, find("toy:no-tiling", TOY))


@pytest.mark.parametrize(("layer", "names"), [
    (TOY, STEP_NAMES[:3]), (GEMM, STEP_NAMES[:6]), (GEMM.with_dtype("f16"), STEP_NAMES[6:]),
])  # fmt: skip
def test_a_step_has_its_own_name(layer: Problem, names: tuple[str, ...]) -> None:
    assert family_of("textbook").params(layer, H100)[0].names == names


def test_tensor_steps_need_a_matrix_product_and_its_unit() -> None:
    kind = family_of("textbook")
    assert "matrix products alone" in str(kind.refuses(TOY.with_dtype("f16"), H100))
    assert "no tensor cores" in str(kind.refuses(GEMM.with_dtype("f16"), replace(H100, tensor_macs=0)))


@pytest.mark.parametrize("name", ["gemm:tensor-naive", "gemm:tensor-tiled"])
def test_tensor_steps_multiply_on_tensor_cores(name: str, tmp_path: Path, own_cache: None) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from sass import instructions

    half = GEMM.with_dtype("f16")
    found = instructions(family_of("textbook").blueprint(half, H100, find(name, half)), "sm_90", tmp_path)
    assert sum("HMMA.16816.F32" in line for line in found) >= (2 if "naive" in name else 16)
    assert any("LDS" in line for line in found) == ("tiled" in name)
