"""The kernels that are made for the threads of a GPU, run by PoCL on the CPU: every family, awkward shapes.

The OpenCL device is given the facts of a GPU. A warp's shuffles and clusters are not there: rules leave out
what needs them. Memory is that of a CPU, whose cores see what others wrote, so shares of the grid may meet in
the last block. Built without optimisation: PoCL 3.0 optimises some of these kernels wrongly, and no user runs
them there. Nor is what a kernel calls put in its place, but where PoCL must do so: code is a third shorter.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import fsum

import pytest
from here import DEVICES, GPU, agrees, computed
from pairs import facts, fewest, pairs

from tilewright.arguments.named import NAMED
from tilewright.device import Device, DeviceType
from tilewright.kernels import FAMILIES, family_of
from tilewright.kernels.family import Config, Family
from tilewright.kernels.gemm.product import product, tiling_of
from tilewright.kernels.gemm.work import LAST_TURN, REST, stream_of
from tilewright.kernels.tile import TWO_PASS
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime import open_runtime
from tilewright.runtime.base import Runtime
from tilewright.runtime.opencl_programs import OPTIONS
from tilewright.search.ranking import rank
from tilewright.search.space import Space

__all__ = ["computed"]  # test_hopper_family.py has it from here, and this name:
_agrees = agrees

FACTS = dict(
    type=DeviceType.GPU, units=4, lanes=32, regs_per_unit=65536, regs_per_thread=255, threads_per_unit=2048,
    max_threads=1024, shared_per_block=160 << 10, shared_per_unit=164 << 10, l2_bytes=32 << 20,
    tensor_macs=1024,
)  # fmt: skip
EMULATED = (*OPTIONS, "-cl-opt-disable", "-Dalways_inline=noinline")
SHAPES = (
    "n2c7h13w11k17r3s3p1-f32",  # primes: tails in every dimension
    "n2c19h13w11k17r3s3p1-f32-nhwc+bias+add0.5+relu",
    "n1c32h7w9k20r3s3p2-f32-nchw2nhwc+alpha0.5+leaky0.5",
    "n1c16h9w12k24r3s3p1-f32+relu+maxpool2",
    "n1c16h9w13k24r3s3p1.0.0.2-f32-nhwc2nchw+add+avgpool2",
    "n1c37h5w5k41r1s1-f32+bias+clamp-3:6",
    "n1c24h12w13k41r1s1-f32-nhwc2nchw+bias+maxpool3u2p1",
    "n2c12h15w9k18r5s3p2x1u2x1g2-f32-nhwc+bias+relu+maxpool3u2",
    "n1c64h7w7k64r3s3p1-f32+add",
    "n2c24h7w9k33r1s1u2-f32-nhwc+add+relu",
    "n1c48h9w8k20r3s3p1-f32+silu",
    "n5c96h1w1k33r1s1-f32+bias",  # classifiers
    "n3c7h3w5k20r3s5-f32",
    "n4c130h1w1k9r1s1-f16+bias",
    "n2c64h1w1k24r1s1-bf16",
    "n2c8h9w7k8r3s3p1g8-f32+bias",  # depthwise and small groups
    "n1c24h11w12k24r3s3p1u2g24-f32-nhwc+relu",
    "n1c12h8w9k24r3s3p2d2g12-f32-nchw2nhwc",
    "n2c16h7w8k24r3s2p1.0.0.1g4-f32-nhwc",
    "n1c3h17w19k16r7s7p3u2-f32",  # first layers
    "n3c1h12w14k5r5s3-f32-nhwc+bias+relu+maxpool2",
    "n2c40h6w7k35r1s1-f32-nhwc2nchw+bias+add",
    "n5c1h20w22k4r7s7-f32",  # many images
    "n9c4h18w18k16r5s5-f32+bias+add",
    "n3c3h17w24k9r5s7p2x3u2x1-f32-nchw2nhwc+bias",  # wide filters
    "n5c2h15w18k10r6s6p2.1.3.0d2x1-f32-nhwc+add+relu+maxpool2",
    "n2c4h20w24k8r3s5p1.1.4.2-f32-nhwc2nchw+bias+leaky0.5",
    "n3c3h13w11k10r3s2p1.0.2.1u1x2d2-f32-nchw2nhwc+bias",
    "n1c16h9w7k24r3s3p1-f16-nhwc",  # tensor cores
    "n2c19h13w5k17r3s3p1-f16-nhwc2nchw+bias+add0.5+relu",
    "n1c3h12w13k20r7s7p3u2-f16+bias",
    "n2c16h6w7k40r3s2p1.0.0.1g2-bf16-nhwc+bias+maxpool2",
    "n1c24h9w8k33r3s3p2d2-bf16-nchw2nhwc+leaky0.5",
    "n1c48h7w7k50r3s3p1-i8-nhwc+bias+add+relu",
    "n2c3h11w9k36r3s3p1u2-i8-nhwc+maxpool2",
    "n1c40h8w8k20r1s1-i8",
    "n1c40h9w8k36r1s1-f16+alpha0.5+add0.5",  # matrix products
    "n2c33h7w5k130r1s1-f16-nhwc+bias+relu",
    "n1c70h12w13k20r1s1u2-bf16-nchw2nhwc+silu",
    "n1c24h9w8k33r3s3p1-tf32-nhwc",  # tensor cores on other numbers
    "n2c7h13w11k17r3s3p1-tf32+bias+add0.5+relu",
    "n1c3h12w13k20r7s7p3u2-tf32-nhwc+maxpool2",
    "n2c16h6w7k40r3s2p1.0.0.1g2-tf32-nchw2nhwc+leaky0.5",
    "n1c40h9w8k33r3s3p1-accurate-nhwc+add",
    "n2c29h13w5k17r3s3p1-accurate-nhwc2nchw+bias+relu",
    "n1c6h12w13k20r7s7p3u2-accurate",
    "n3c264h6w7k40r1s1u2-accurate-nhwc+bias+avgpool2",
    "n2c16h9w11k16r3s3p1g16-f16-nhwc+bias+relu",  # depthwise, on tensor cores too
    "n1c10h17w21k10r5s7p2.1.3.0u2x1g10-bf16+add0.5",
    "n1c24h19w18k24r7s7p3g24-f16-nhwc2nchw+maxpool2",
    "n1c8h24w20k8r13s9p6x8d1x2g8-bf16-nchw2nhwc+silu",
    "n1c48h9w8k33r3s3p1-f8-nhwc+bias",
    "n2c19h13w5k17r3s3p1-f8+add0.5+relu",
    "n1c3h12w13k20r7s7p3u2-f8-nhwc2nchw+maxpool2",
    "n2c32h6w7k40r3s2p1.0.0.1g2-f8-nhwc+leaky0.5",
    "n1c48h7w7k52r3s3p1-i8-nhwc+bias+add+relu+requant",
    "n2c3h11w9k36r3s3p1u2-i8-nhwc+maxpool2+requant",
    "n2c40h8w7k21r1s1-i8+bias+requant",
    "n1c64h7w7k50r3s3p1g2-i8-nhwc2nchw+maxpool3u2p1+requant",
    "n1c17h12w13k18r5s5p2-f32+bias+relu+maxpool2",  # tiles of 2x2 outputs, and of 4x2
    "n2c16h9w10k19r3s5p1-f32-nhwc2nchw+add",
    "n2c17h15w14k18r7s7p3-f32-nhwc+bias",  # and of 2x2, of 8x8 inputs
    "n2c16h12w16k19r7s7p3-f32+add",
    "n1c19h11w12k17r5s5p2-f32-nchw2nhwc+alpha0.5+silu",
    "n2c19h13w11k37r3s3p2x3d2x3-f32+bias+relu",  # the outputs of a tile lie apart
    "n1c16h5w12k18r3s3p6x1d6x1-f32-nhwc2nchw+add",  # further than there are rows
    "n1c17h14w13k18r5s5p4d2-f32-nhwc+alpha0.5+silu",
    "n2c17h9w15k18r1s7p0x3-f32+bias",  # filters of one row, or column
    "n1c16h15w6k17r7s1p3x0-f32-nhwc+relu",
    "n2c18h5w19k16r1s3p0x2d1x2-f32-nhwc2nchw+add",
    "n1c16h13w8k19r5s1p2x0-f32-nchw2nhwc+alpha0.5+silu",
    "n1c17h6w14k16r1s5p2x1d3x2-f32+bias",  # padded and dilated along the side of one tap, too
    "n2c16h17w5k18r3s1p1.1.0.2d2x3-f32-nhwc+add",
    "n1c42h9w8k38r1s1-f32+alpha0.5+leaky0.5",  # products whose blocks are not whole
    "n3c37h3w7k45r1s1-f32-nhwc+bias+silu",
    "n1c32h9w11k32r3s3p1g4-f16-nhwc+bias+relu",  # groups of 8 channels, of 4, and of 16
    "n2c16h7w10k32r3s5p1x2g4-bf16+add",
    "n1c48h11w9k48r3s3p1u2g3-f16-nhwc2nchw+silu",
    "n1c64h8w9k64r3s3p1g8-i8-nhwc+bias+relu+requant",
    "n1c40h9w13k3r3s3p1-f16-nhwc+bias+relu",  # last layers
    "n2c19h11w16k2r3s5p1x2-f16+add0.5",
    "n1c33h10w12k1r5s5p2-bf16-nhwc2nchw+maxpool2",
    "n2c72h9w12k3r3s3p2d2-i8-nhwc+bias+requant",
    "n1c20h9w8k4r3s2p1.0.0.1-tf32+silu",
    "n2c40h9w8k37r3s3p1u2-bf16+bias+add",  # filters over nchw
    "n1c21h8w10k24r5s3p2x1u1x2-tf32+bias",
    "n1c20h9w12k3r3s3p1-f32+bias+relu",
    "n2c17h11w13k2r3s5p1x2-f32+add0.5",
    "n1c12h10w12k1r5s5p2-f32-nchw2nhwc+maxpool2",
    "n2c9h12w19k4r3s2p1.0.0.1-f32+silu",
    "n3c136h5w7k40r1s1-f16+bias+relu",  # planes that begin anywhere
    "n2c132h3w6k36r1s1-bf16+add0.5",
    "n4c130h2w10k66r1s1-f16+silu",
    "n1c129h3w8k33r1s1-bf16+bias",
    "n5c70h4w6k40r1s1-f16+bias+relu",  # planes of multiples of 16 bytes
    "n3c33h6w6k36r1s1-tf32+add0.5",
)
# What they are chosen for. A new family need not be here: it computes those that it takes, and those of its
# own (test_every_family_runs.py).
SHAPED = [
    "direct",
    "winograd",
    "winograd4",
    "winograd8",
    "winograd_rows",
    "gemm",
    "im2col",
    "strassen",
    "strassen2",
    "gemv",
    "grouped",
    "small",
    "narrow",
    "mma",
    "hopper",
    "toeplitz",
    "stem",
    "kn2row",
    "grouped_mma",
    "planar",
    "pointwise",
    "shifted",
    "textbook",
    "reference",
]
COUNT, SAMPLES = 2, 60  # configs of a family on a shape, chosen of so many
MANY = 20  # shapes of a family: fewer will do, those without a pool with one config each


LEAST = ("tilewright.kernels.strassen.spec.FEWEST", 16)


@pytest.fixture(autouse=True)
def small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Strassen's algorithm take products that it does not pay for."""
    monkeypatch.setattr(*LEAST)


def _fitting(texts: Sequence[str]) -> pytest.MarkDecorator:
    """Layers with every family that takes them on the CPU, taken for a GPU.

    Of a family that takes many as many as show all that two facts of them do, of others all.
    By family: processes that share the tests choose configs for few families each, all shapes at once.
    """
    cases = list[tuple[str, str]]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(*LEAST)
        for device in [replace(DEVICES["cpu"], **FACTS)] if "cpu" in DEVICES else []:
            layers = {text: Problem.parse(text) for text in texts}
            for one in sorted(FAMILIES, key=lambda one: one.name):
                taken = {t: p for t, p in layers.items() if one.tunable and one.refuses(p, device) is None}
                few = fewest({t: facts(p) for t, p in taken.items()}) if len(taken) >= MANY else taken
                cases += [(text, one.name) for text in few]
    return pytest.mark.parametrize(("text", "name"), cases)


@pytest.fixture
def runtime(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """The CPU, taken for a GPU; or a GPU, where a test's ``device`` is cuda."""
    if "device" in request.fixturenames and request.getfixturevalue("device") == "cuda":
        yield open_runtime("cuda")
        return
    found: Runtime = request.getfixturevalue("cpu")
    monkeypatch.setattr("tilewright.runtime.opencl_programs.OPTIONS", EMULATED)
    before = found.device
    found.device = replace(before, **FACTS)
    monkeypatch.setattr(Device, "orders_blocks", True)  # they are a CPU's cores
    yield found
    found.device = before


def _configs(family: Family, problem: Problem, runtime: Runtime) -> list[Config]:
    """Sample configs, of each way to combine shares in turn: of rare values, each of others than the last."""
    space, rng = Space(family, problem, runtime.device), random.Random(str(problem))
    ways: dict[int, list[Config]] = {}
    for _ in range(SAMPLES):
        config = space.sample(rng)
        ways.setdefault(config.values.get("combine", 0), []).append(config)
    often = Counter(value for way in ways.values() for config in way for value in config.items)
    order, found, seen = [*ways], list[Config](), set[tuple[str, int]]()
    rng.shuffle(order)
    for way in (order * COUNT)[:COUNT]:
        left = [config for config in ways[way] if config not in found]
        if left:
            found.append(max(left, key=lambda c: fsum(often[v] ** -0.5 for v in c.items if v not in seen)))
            seen.update(found[-1].items)
    return found


AWKWARD = _fitting(SHAPES)


@lru_cache
def _chosen(name: str, device: Device) -> dict[str, list[Config]]:
    """Configs of a family for its shapes, of a way to combine shares in turn; where there is a pool, of two.

    Each shows most pairs, of values and facts, that none before did.
    """
    texts, seen = [text for text, other in AWKWARD.args[1] if other == name], set[Hashable]()
    found, taken = dict[str, list[Config]](), Counter[tuple[int, bool]]()
    for text in texts:
        problem, rng, ways = Problem.parse(text), random.Random(text), dict[int, list[Config]]()
        space, pool = Space(family_of(name), problem, device), problem.epilogue.pool is not None
        for config in (space.sample(rng) for _ in range(SAMPLES)):
            ways.setdefault(config.values.get("combine", 0), []).append(config)
        about, found[text] = facts(problem), []
        turn = sorted(ways, key=lambda way: taken[way, pool]) * COUNT
        for way in turn[: 1 if len(texts) >= MANY and not pool else COUNT]:
            shown = {config: pairs([*about, *config.items]) for config in ways[way]}
            found[text].append(max(shown, key=lambda config: len(shown[config] - seen)))
            taken[way, pool] += 1
            seen |= shown[found[text][-1]]
    return {text: [*dict.fromkeys(configs)] for text, configs in found.items()}


@AWKWARD
def test_awkward_shapes(name: str, text: str, runtime: Runtime) -> None:
    for config in _chosen(name, runtime.device)[text]:
        agrees(Plan.make(runtime, Problem.parse(text), config))


@pytest.mark.parametrize(
    "text",
    (
        "n3c16h22w21k16r3s3p1-f32",
        "n1c17h12w13k18r5s5p2-f32-nhwc2nchw+bias+relu+maxpool2",
        "n3c16h30w33k17r1s3p0x1-f32-nchw2nhwc+add",
        "n3c16h33w28k17r5s1p2x0d2x1-f32-nhwc+bias",
    ),
)
def test_slabs_that_do_not_divide_the_tiles(
    text: str, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, kind = Problem.parse(text), family_of("winograd4")
    with monkeypatch.context() as patched:
        patched.setattr("tilewright.kernels.winograd.chained.SLAB_BYTES", 120_000)
        config = _configs(kind, problem, runtime)[0]  # legal for less than all tiles
        plan = Plan.make(runtime, problem, config)
    whole = Plan.make(runtime, problem, config)
    assert plan.workspace_bytes < whole.workspace_bytes
    slabs = [[run.kernel for run in p.blueprint.launches].count("transform_input") for p in (whole, plan)]
    assert slabs[0] == 1 < slabs[1]
    agrees(plan)


@pytest.mark.parametrize("device", ["cpu", *GPU])
@pytest.mark.parametrize("name", ("strassen", "strassen2"))
@pytest.mark.parametrize(
    "text",
    (
        "n3c37h4w4k41r1s1-f32-nchw2nhwc+bias",
        "n1c64h4w8k32r1s1-f32-nhwc2nchw+add",
        "n2c129h9w13k70r1s1-f32+relu",
        "n70c36h1w1k44r1s1-f32+bias+relu",
        "n70c37h1w1k44r1s1-f32-nchw2nhwc+add+silu",
        "n7c16h2w6k19r1s1-f32-nhwc2nchw+bias",
    ),
)
def test_strassens_algorithm(device: str, name: str, text: str, runtime: Runtime) -> None:
    """Blocks that do not divide the product, runs of four neighbours and single numbers, in every layout."""
    problem, kind = Problem.parse(text), family_of(name)
    configs = [rank(problem, runtime.device, kind, 1)[0][0]] if runtime.device.is_cuda else []
    for config in configs or _configs(kind, problem, runtime):
        plan = Plan.make(runtime, problem, config)
        for shift in (0, 4):
            agrees(plan, shift)


@pytest.mark.parametrize("text", ("n1c40h9w8k36r1s1-f32-nhwc+bias", "n2c64h7w5k70r1s1-f32+add"))
def test_shares_of_a_block_that_do_not_divide_its_outputs(text: str, runtime: Runtime) -> None:
    problem, gemm = Problem.parse(text), family_of("gemm")
    space, rng = Space(gemm, problem, runtime.device), random.Random(5)
    sampled = [space.sample(rng) for _ in range(400)]
    runs = {c: 4 * c["tk"] * c["tp"] // (1 if problem.layout_out == "nchw" else 4) for c in sampled}
    odd = [c for c, outputs in runs.items() if outputs % c["sb"]]
    assert len(odd) >= 3
    for config in odd[:3]:
        agrees(Plan.make(runtime, problem, config))


@pytest.mark.parametrize(
    ("text", "pins", "stored"),
    (
        ("n1c16h8w8k16r3s3p1-f32-nhwc+bias+add", {"v": 4}, "Y_VECTOR"),
        ("n1c16h8w8k16r3s3p1-f32+bias+add", {"tw": 4}, "Y_ROWS"),
    ),
)
def test_runs_of_sums_are_stored_in_the_part_of_their_share(
    text: str, pins: dict[str, int], stored: str, runtime: Runtime
) -> None:
    """direct, from registers, for a second kernel: channels of a pixel, or columns of a row."""
    problem = Problem.parse(text)
    shares = {"sg": 2, "sb": 1, "sc": 1, "combine": TWO_PASS, "out": 0}
    space = Space(family_of("direct"), problem, runtime.device, shares | pins)
    plan = Plan.make(runtime, problem, space.sample(random.Random(1)))
    assert dict(plan.blueprint.defines)[stored]
    agrees(plan)


@pytest.mark.parametrize("text", ("n1c40h9w8k36r1s1-f32-nhwc+bias+relu", "n2c64h11w9k140r1s1g2-f32+add"))
@pytest.mark.parametrize("stream", (LAST_TURN, REST))
def test_streams_of_tiles(stream: int, text: str, runtime: Runtime) -> None:
    problem, gemm = Problem.parse(text), family_of("gemm")
    runtime.device = replace(runtime.device, units=2)  # small layers take many turns
    space, rng = Space(gemm, problem, runtime.device, {"stream": stream}), random.Random(7)
    sampled = {space.sample(rng) for _ in range(60)}
    assert len(sampled) >= 20

    def full_tiles(config: Config) -> int:
        stream = stream_of(runtime.device, tiling_of(product(problem), config.values), config.values)
        assert stream
        return stream.full_tiles

    ordered = sorted(sampled, key=lambda config: (full_tiles(config), str(config)))
    assert full_tiles(ordered[-1]) > 0
    for config in ordered[:: len(ordered) // 3] + ordered[-1:]:
        plan = Plan.make(runtime, problem, config)
        agrees(plan)
        agrees(plan)  # arrivals are counted from 0 again


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gemm", "n3c24h1w1k20r1s1-f32+bias+maxpool2u1p1"),
        ("im2col", "n3c8h3w2k20r3s2-f32+add+maxpool2u1p1"),
        ("mma", "n3c24h1w1k20r1s1-f16+maxpool4u1p2"),
    ],
)
def test_a_padded_pool_makes_several_pixels_of_one(name: str, text: str, runtime: Runtime) -> None:
    """Then nchw is no longer nhwc, as it is where images are one pixel."""
    problem = Problem.parse(text)
    for config in _configs(family_of(name), problem, runtime):
        agrees(Plan.make(runtime, problem, config))


@_fitting(SHAPES[1:13:3])
def test_unaligned_base_pointers(name: str, text: str, runtime: Runtime) -> None:
    problem = Problem.parse(text)
    agrees(Plan.make(runtime, problem, _configs(family_of(name), problem, runtime)[0]), shift=4)


def _named() -> Iterator[tuple[str, str]]:
    """Names and shapes that they fit; of many such every fourth, and the next names have the others."""
    for turn, (name, one) in enumerate(NAMED.items()):
        fitting = [text for text in SHAPES if one.fits(Problem.parse(text))]
        for text in fitting[turn % 4 :: 4] if len(fitting) > MANY else fitting:
            yield name, text


@pytest.mark.parametrize(("name", "text"), [*_named()])
def test_named_configs(name: str, text: str, runtime: Runtime) -> None:
    problem = Problem.parse(text)
    plan = Plan.make(runtime, problem, NAMED[name].config(problem))
    agrees(plan)
    if plan.blueprint != plan.family.blueprint(problem, runtime.device, plan.config, aligned=False):
        agrees(plan, shift=4 if problem.dtype == "f32" else 2)


def test_every_family_for_a_gpu_is_tried() -> None:
    """Else the tests above would say nothing of it."""
    device = replace(open_runtime("cpu").device, **FACTS, backend="opencl")
    for family in FAMILIES:
        fitting = [t for t in SHAPES if family.refuses(Problem.parse(t), device) is None]
        assert len(fitting) >= 4 or family.name not in SHAPED, family.name
    named = list(_named())
    for name in NAMED:
        assert sum(one == name for one, _ in named) >= 4, name
    for text in SHAPES:
        fits = any(one.fits(Problem.parse(text)) for one in NAMED.values())
        assert fits == any(other == text for _, other in named), text
