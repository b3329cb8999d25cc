"""Layers too large for numbers of 32 bits: counted in 64, or refused by name."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from every_family import taken
from test_direct_cpu import CORES

from tilewright.device import Device, for_architecture
from tilewright.errors import CompileError
from tilewright.kernels import FAMILIES, family_of
from tilewright.kernels.family import MOST_LAYER_PIXELS, Config, too_many
from tilewright.kernels.tile import LAST, NONE, TWO_PASS
from tilewright.problem import Problem
from tilewright.search.ranking import rank
from tilewright.search.space import Space, sample, usable

H100 = for_architecture("sm_90")
# Families that take a layer but for its size: of that many images, or filters of the whole image. Of every
# family, test_every_family.py has its own examples.
LARGE = {
    "n{}c64h128w128k64r3s3p1-f32": ("direct", "winograd", "winograd4", "gemm", "im2col", "textbook"),
    "n{}c64h128w128k64r1s1-f32": ("gemm",),
    "n{}c1024h128w128k1024r1s1-f32": ("strassen", "strassen2"),
    "n{}c64h128w128k64r3s3p1g64-f32": ("grouped",),
    "n{}c64h128w128k64r3s3p1g64-f16-nhwc": ("toeplitz", "grouped_mma"),
    "n{}c3h128w128k8r3s3p1-f32": ("small",),
    "n{}c3h128w128k8r3s3p1-tf32-nhwc": ("stem",),
    "n{}c64h128w128k3r3s3p1-f16-nhwc": ("kn2row",),
    "n{}c3h128w128k8r5s5p2-f32": ("winograd_rows",),
    "n{}c64h128w128k3r3s3p1-f32": ("narrow",),
    "n{}c64h128w128k64r5s5p2-f32": ("winograd8",),
    "n{}c64h128w128k64r3s3p1-f16-nhwc": ("mma", "hopper"),
    "n{}c64h128w128k64r3s3p1-tf32-nhwc": ("mma", "hopper"),
    "n{}c64h128w128k64r3s3p1-f8": ("direct",),
    "n1c1h{0}w{0}k1r{0}s{0}-f32": ("gemv",),
}


@pytest.mark.parametrize("text", LARGE)
def test_more_than_2_to_the_30_pixels_are_left_to_the_reference(text: str) -> None:
    sizes = (33, 40_000) if "{0}" in text else (1, 65_537)
    small, large = (Problem.parse(text.format(size)) for size in sizes)
    for name in LARGE[text]:
        assert family_of(name).refuses(small, H100) is None, name
        assert "more than 1,073,741,824 pixels" in (family_of(name).refuses(large, H100) or ""), name
    for device in (H100, CORES):
        assert [f.name for f in FAMILIES if f.refuses(large, device) is None] == ["reference"]


def test_hopper_takes_no_more_of_an_input_than_its_table_counts() -> None:
    """Of 32 GiB there are 2^31 pieces of 16 bytes."""
    most, more = (Problem.parse(f"n{n}c4096h64w64k8r3s3p1-f16-nhwc") for n in (1023, 1024))
    assert family_of("hopper").refuses(most, H100) is None
    assert "more than 2,147,483,647 pieces" in (family_of("hopper").refuses(more, H100) or "")


@pytest.mark.parametrize(
    ("name", "text", "small", "large"),
    (
        ("shifted", "n1c64h{0}w{0}k16r3s3p1-f16", 5792, 5800),
        ("shifted", "n1c32h{0}w{0}k16r3s3p1-tf32", 8188, 8192),
        ("pointwise", "n1c8h{0}w{0}k8r1s1-f16", 11001, 12001),
    ),
)
def test_planes_beyond_32_bits_are_left_to_others(name: str, text: str, small: int, large: int) -> None:
    taken, refused = (Problem.parse(text.format(side)) for side in (small, large))
    assert family_of(name).refuses(taken, H100) is None
    assert "counted in 32 bits" in (family_of(name).refuses(refused, H100) or "")
    assert any(family_of(other).refuses(refused, H100) is None for other in ("direct", "hopper", "mma"))


# Images of 2^31 numbers and more, each by the families that count them in 64 bits.
HUGE = {
    "n2c64h6000w6000k64r3s3p1-f32": ("direct", "winograd", "winograd4", "gemm", "im2col"),
    "n2c64h6000w6000k64r1s1-f32": ("gemm",),
    "n2c64h6000w6000k64r1s1-f32-nhwc": ("gemm",),
    "n2c64h6000w6000k64r3s3p1g64-f32": ("grouped",),
    "n2c64h6000w6000k64r3s3p1g8-f16-nhwc": ("grouped_mma", "mma", "hopper"),
    "n2c64h6000w6000k64r3s3p1g8-f16": ("mma", "hopper"),
    "n2c64h6000w6000k64r3s3p1g64-f16": ("toeplitz",),
    "n2c64h6000w6000k16r3s3p1-f16": ("stem", "mma", "hopper"),
    "n2c64h6000w6000k16r3s3p1-i8-nhwc": ("stem", "mma", "hopper"),
    "n2c64h6000w6000k3r3s3p1-f16": ("kn2row",),
    "n2c64h6000w6000k3r3s3p1-f32": ("narrow",),
    "n60000c1024h7w7k64r1s1-f16+bias+add": ("planar",),
    "n60000c1024h8w8k64r1s1-f16+bias+add": ("pointwise",),
    "n70000c32h32w32k32r3s3p1-f16+bias+add": ("shifted",),
}


def _huge() -> list[tuple[str, str]]:
    """Those, and of a family that none is of its first example that can be as large."""
    found = [(text, name) for text, names in HUGE.items() for name in names]
    for kind in FAMILIES:
        if kind.name not in {name for _, name in found}:
            larger = [_larger(problem) for problem in taken(kind, H100)]
            found += [(str(one), kind.name) for one in larger if one and kind.refuses(one, H100) is None][:1]
    return found


def _larger(problem: Problem) -> Problem | None:
    """The layer with so many images that an array has 2^31 numbers; None if these are too many pixels."""
    read, written = problem.h * problem.w, problem.p * problem.q
    images = (1 << 31) // max(read * problem.c, written * problem.k) + 1
    return replace(problem, n=images) if images * max(read, written) <= MOST_LAYER_PIXELS else None


@pytest.mark.parametrize(("text", "name"), _huge())
def test_no_kernel_counts_an_image_of_2_to_the_31_numbers_in_32_bits(
    text: str, name: str, own_cache: None
) -> None:
    """Of products of constants the compiler says so, and what it says is an error."""
    from tilewright.runtime.nvrtc import compile_cuda

    problem, kind = Problem.parse(text), family_of(name)
    config = sample(kind, problem, H100, random.Random(1))
    for aligned in (True, False):
        assert compile_cuda(kind.blueprint(problem, H100, config, aligned), "sm_90", spills=True).registers


# Pools with padding that make up to four numbers of one, by families that pool in a second kernel.
GROWING = {
    "n1048576c16h1w1k1024r1s1-f32+maxpool2u1p1": ("direct", "gemm"),
    "n1048576c16h3w3k1024r3s3-f32+maxpool2u1p1": ("direct", "gemm", "winograd"),
    "n16777216c3h3w3k32r3s3-f32+maxpool2u1p1": ("small",),
}


@pytest.mark.parametrize(
    ("text", "name"), [(text, name) for text, names in GROWING.items() for name in names]
)
def test_pooled_outputs_are_counted_in_64_bits_where_the_sums_need_32(text: str, name: str) -> None:
    problem, kind = Problem.parse(text), family_of(name)
    assert problem.z_elements < 1 << 31 <= problem.y_elements and kind.refuses(problem, H100) is None
    for device in (H100, CORES) if kind.refuses(problem, CORES) is None else (H100,):
        programs = kind.blueprint(problem, device, sample(kind, problem, device, random.Random(1))).programs
        pooled = [dict(one.defines) for one in programs if "Y_FLOATS" in dict(one.defines)]
        assert pooled and all(defines["OFFSET64"] for defines in pooled)


# A sum of so many steps that a share's number times them is 2^31 or more.
MANY_STEPS = (
    ("gemm", "n1c16777216h5w5k4r4s4-f32-nhwc", dict(cs=4, lk=1, sg=32, stream=0), "STEPS"),
    ("mma", "n1c16777216h5w5k64r4s4-f16-nhwc", dict(chunks=2, sc=8, sg=16), "STEPS"),
    ("hopper", "n1c16777216h5w5k8r4s4-f16-nhwc", dict(x=0, chunks=2, batch=1, sc=8, sg=32), "STEPS"),
)


@pytest.mark.parametrize(("name", "text", "pins", "steps"), MANY_STEPS)
def test_the_last_share_of_a_very_long_sum_ends_with_it(
    name: str, text: str, pins: dict[str, int], steps: str, own_cache: None
) -> None:
    from tilewright.runtime.nvrtc import compile_cuda

    problem, kind = Problem.parse(text), family_of(name)
    config = Space(kind, problem, H100, pins).sample(random.Random(1))
    recipe = kind.blueprint(problem, H100, config)
    defines = dict(recipe.defines)
    assert defines["SC"] * defines["SG"] * defines[steps] >= 1 << 31
    claim = f'static_assert(FIRST_OF_SHARE(SPLITS, {steps}) == {steps}, "a share begins elsewhere");'
    claims = replace(recipe, source=f'#include "{recipe.source}"\n{claim}\n')
    assert compile_cuda(claims, "sm_90", spills=True).resources


def test_a_constant_that_wraps_round_is_a_compile_error(own_cache: None) -> None:
    from tilewright.runtime.nvrtc import compile_cuda

    kind, problem = family_of("reference"), Problem.parse("n1c1h4w4k1r1s1-f32")
    blueprint = kind.blueprint(problem, H100, Config.make("reference", {}))
    defines = (*blueprint.defines, ("SIZE_P", 1 << 20), ("SIZE_Q", 1 << 20))
    with pytest.raises(CompileError, match="wrap round"):
        compile_cuda(replace(blueprint, defines=tuple(dict(defines).items())), "sm_90")


@pytest.mark.parametrize(("name", "kind"), (("grouped", "f16"), ("toeplitz", "f16"), ("grouped_mma", "f16")))
def test_a_filter_too_large_for_32_bits_is_left_to_others(name: str, kind: str) -> None:
    small, large = (Problem.parse(f"n1c{c}h1w1k{c}r15s15p7g{c}-{kind}-nhwc") for c in (1 << 12, 1 << 21))
    assert "268,435,456 numbers" not in (family_of(name).refuses(small, H100) or "")
    assert "its filter has more than 268,435,456 numbers" in (family_of(name).refuses(large, H100) or "")
    assert family_of("direct").refuses(large, H100) is None


@pytest.mark.parametrize("device", (CORES, H100), ids=("cpu", "h100"))
@pytest.mark.parametrize("text", ("n1c500000h4w4k16r3s3p1-f32", "n1c1h5000w5000k1r5000s5000-f32"))
def test_what_hands_the_work_on_makes_no_layer_of_too_many_channels(text: str, device: Device) -> None:
    problem = Problem.parse(text)
    families = [one.name for one in usable(FAMILIES, problem, device)[0]]
    assert {"direct", "gemv"} & {*families} and "winograd4" not in families


@pytest.mark.parametrize(
    "text",
    ("n1c1400000h32w32k1024r1s1-f32", "n1024c1024h1w1k1400000r1s1-f32", "n8192c1024h128w128k1024r1s1-f32"),
)
def test_strassens_algorithm_makes_no_layer_of_too_many_channels_or_pixels(text: str) -> None:
    problem = Problem.parse(text)
    families = [one.name for one in usable(FAMILIES, problem, H100)[0]]
    assert "gemm" in families and not {"strassen", "strassen2"} & {*families}
    assert "16,777,216 channels" in (family_of("strassen2").refuses(problem, H100) or "")


def test_the_pixels_of_the_output_count_too() -> None:
    assert Problem.parse("n65536c1h128w128k1r1s1-f32").n * 128 * 128 == MOST_LAYER_PIXELS
    assert too_many(Problem.parse("n65536c1h128w128k1r1s1-f32")) is None
    assert too_many(Problem.parse("n65536c1h128w128k1r2s2p1-f32"))


@pytest.mark.parametrize("device", (H100, CORES), ids=("gpu", "cpu"))
@pytest.mark.parametrize(("images", "wide"), ((511, 0), (512, 1)))
def test_grouped_counts_in_64_bits_before_an_item_and_a_step_overflow(
    device: Device, images: int, wide: int
) -> None:
    kind, problem = family_of("grouped"), Problem.parse(f"n{images}c64h128w128k64r1s1g64-f32")
    config = rank(problem, device, kind, 1)[0][0]
    for aligned in (True, False):
        assert dict(kind.blueprint(problem, device, config, aligned).defines)["OFFSET64"] == wide


# Tiles of 64 outputs by 64 pixels.
TILES = Config.parse(
    "gemm:combine=0.cs=8.cv=1.fd=1.lk=8.mb=4.sb=1.sg=1.stages=2.stream=0.tk=1.tp=4.v=4.wk=2.wp=1"
).values
LARGEST = {  # what is largest: the problem, a size just below 2^33 bytes and the next, the config
    "x": ("n{}c64h128w128k32r1s1-f32", 2047, 2048, {}),
    "y": ("n{}c32h128w128k64r1s1-f32", 2047, 2048, {}),
    "shares of y": ("n{}c32h128w128k64r1s1-f32", 1023, 1024, dict(sg=2, combine=TWO_PASS)),
    "tiles of shares": ("n{}c32h128w128k32r1s1-f32", 1023, 1024, dict(sg=2, combine=LAST)),
    "filter": ("n1c{}h1w1k32768r1s1-f32", 65_528, 65_536, {}),
    "columns": ("n{}c64h128w128k32r3s3p1-f32", 227, 228, {}),
    "taps that lie apart": ("n1c512h4w64k32r{}s1p90000x0d25000x1-f32-nhwc", 2, 3, {}),
}


@pytest.mark.parametrize("what", LARGEST)
def test_gemm_counts_in_64_bits_from_2_to_the_31_numbers_on(what: str) -> None:
    text, below, limit, changed = LARGEST[what]
    config, name = {**TILES, "combine": NONE, **changed}, "im2col" if what == "columns" else "gemm"
    for size, wide in ((below, 0), (limit, 1)):
        problem = Problem.parse(text.format(size))
        for aligned in (True, False):
            found = family_of(name).blueprint(problem, H100, Config.make(name, config), aligned)
            (product,) = (one for one in found.programs if one.source == "gemm.cu")
            assert dict(product.defines)["OFFSET64"] == wide
