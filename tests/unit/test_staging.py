"""How the direct and winograd kernels stage their inputs, and how shares come to zeros: with no device."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tilewright.device import Device, for_architecture
from tilewright.errors import ConfigError
from tilewright.kernels import family_of
from tilewright.kernels.direct.gpu_tile import shared_bytes, staging, tiling_of
from tilewright.kernels.family import Config
from tilewright.kernels.limits import DECLARED_SHARED
from tilewright.kernels.tile import quad_pitch, row_runs
from tilewright.kernels.winograd import fused as winograd
from tilewright.problem import Problem
from tilewright.search.space import space

HOPPER, AMPERE = for_architecture("sm_90"), for_architecture("sm_80")
OPENCL = replace(HOPPER, backend="opencl", arch="gpu", max_cluster=1)
R4 = "n1c64h56w56k128r3s3p1u2-f32"
DIRECT = dict(
    v=4, tk=1, tw=4, th=1, bk=8, bw=7, bh=1, sw=1, sb=4, cv=1, mb=1, cs=16, x=1, f=1, stages=3, sc=1, sg=1,
    combine=0, out=1, pad=0, wfast=1,
)  # fmt: skip


@pytest.mark.parametrize(
    ("width", "step", "first", "runs"),
    [
        (56, 56, -1, (4, 3, 64)),  # padding of one: three more columns are staged, no copy is cut by the edge
        (28, 8, 0, (4, 0, 12)),
        (14, 14, -1, (2, 1, 20)),
        (28, 6, -1, (2, 1, 12)),  # tiles that begin at every second number
        (7, 7, -1, (1, 0, 12)),
        (28, 28, -3, (4, 1, 32)),
    ],
)
def test_runs_of_a_row(width: int, step: int, first: int, runs: tuple[int, int, int]) -> None:
    layer, row = Problem.parse(R4), (width, step, first, step + 2)
    single = (1, 0, -(-(step + 2) // 4) * 4)
    assert row_runs(layer, *row, aligned=True) == runs
    assert row_runs(layer, *row, aligned=False) == single
    assert row_runs(layer, *row, True, most=2)[0] == min(2, runs[0])
    lead = first % 8
    whole = (4, lead, -(-(lead + step + 2) // 8) * 8) if width % 8 == step % 8 == 0 else runs
    assert row_runs(layer, *row, True, sectors=True) == whole  # where all rows have whole sectors
    assert row_runs(Problem.parse("n1c64h56w56k128r3s3p1u2-i8"), *row, True) == single


def test_where_whole_sectors_would_be_too_many_copies_runs_are_kept() -> None:
    layer = Problem.parse("n1c64h56w56k64r3s3p1-f32")
    cf = DIRECT | dict(bh=1, bk=2, bw=6, f=2, mb=3, out=1, sb=8, stages=1, th=8, tk=2, tw=4, v=1)
    staged = staging(layer, cf, tiling_of(layer, cf))
    assert (staged.run, staged.copies) == (4, 14)


@pytest.mark.parametrize(
    ("text", "change"),
    [
        (R4, {}),
        ("n1c512h14w14k512r3s3p1u2-f32", dict(tw=7, bw=1, bh=4)),
        ("n1c3h40w44k32r5s5p2-f32-nhwc", dict(cs=3, sb=1, bh=4, stages=2)),
        ("n1c3h24w32k32r3s3p1-f16-nhwc+relu+maxpool2", dict(cs=3, sb=1, tw=2, th=2, bw=8, bh=4, stages=2)),
        ("n1c64h28w28k64r3s3p1-f32+relu+maxpool2", dict(tw=4, th=2, bw=4, bh=2)),
    ],
)
def test_no_run_crosses_the_edge_and_all_that_is_read_is_staged(text: str, change: dict[str, int]) -> None:
    problem, cf = Problem.parse(text), DIRECT | change
    tiling = tiling_of(problem, cf)
    how = staging(problem, cf, tiling)
    many = 1 if problem.layout_in == "nchw" else problem.c
    assert how.run > 1 and how.xw % how.run == 0
    assert how.lead + tiling.xw * many <= how.xw  # what threads read, behind what is only copied
    assert how.copies * tiling.threads * how.run <= how.size
    assert how.copies * tiling.threads >= how.items == tiling.xh * how.xw * cf["cs"] // (many * how.run)
    pool = problem.epilogue.pool
    forward, start = (tiling.wb, 0) if pool is None else (tiling.wb // pool.stride * pool.stride, -pool.pad)
    for tile in range(tiling.q_tiles):
        first = ((tile * forward + start) * problem.stride[1] - problem.pad[2]) * many - how.lead
        for column in range(first, first + how.xw, how.run):
            inside = [0 <= column + i < problem.w * many for i in range(how.run)]
            assert column % how.run == 0 and len(set(inside)) == 1


def test_the_room_is_enough_for_unaligned_arrays_too() -> None:
    problem = Problem.parse(R4)
    tiling = tiling_of(problem, DIRECT)
    sizes = {staging(problem, DIRECT, tiling, aligned).size for aligned in (True, False)}
    assert len(sizes) == 2
    assert shared_bytes(problem, DIRECT, tiling) >= 4 * DIRECT["stages"] * (max(sizes) + tiling.f_floats)


def test_winograd_takes_two_columns_at_once() -> None:
    cf = dict(v=2, tk=2, bk=8, tt=4, bt=2, ht=1, eg=16, cs=16, cv=1, mb=1, stages=2, sg=1, combine=0)
    wide, narrow = (Problem.parse(f"n1c128h{w}w{w}k128r3s3p1-f32") for w in (28, 7))
    assert (winograd.tiling_of(wide, cf).x.run, winograd.tiling_of(wide, cf).x.lead) == (2, 1)
    assert winograd.tiling_of(narrow, cf).x.run == winograd.tiling_of(wide, cf, aligned=False).x.run == 1


@pytest.mark.parametrize(
    ("name", "text", "config"),
    [
        ("direct", R4, DIRECT | dict(sg=2, combine=1)),
        ("winograd", "n1c256h14w14k256r3s3p1-f32",
         dict(bk=8, bt=2, combine=1, cs=8, cv=1, eg=16, ht=2, mb=2, sg=8, stages=3, tk=2, tt=8, v=2)),
    ],
)  # fmt: skip
def test_blocks_write_the_zeros_that_shares_are_added_to(
    name: str, text: str, config: dict[str, int]
) -> None:
    problem, made = Problem.parse(text), Config.make(name, config)
    blocks = family_of(name).blueprint(problem, HOPPER, made)
    (launch,) = blocks.launches
    (arrived,) = (buffer for buffer in blocks.workspace if buffer.name == "arrived")
    assert arrived.zeroed and arrived.nbytes == 4 * launch.grid[0] // config["sg"]  # a counter for each tile
    elsewhere = family_of(name).blueprint(problem, OPENCL, made).launches
    assert [one.kernel for one in elsewhere] == ["zero", name]  # blocks start in any order there


def test_only_hopper_has_a_copy_engine(own_cache: None) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    direct, problem = family_of("direct"), Problem.parse(R4)
    config = Config.make("direct", DIRECT | dict(f=2))
    for device in (AMPERE, OPENCL):
        with pytest.raises(ConfigError, match="f_engine"):
            direct.check(problem, device, config)
    direct.check(problem, HOPPER, config)
    built = compile_cuda(direct.blueprint(problem, HOPPER, config), "sm_90")
    resources = built.resources["direct"]
    assert resources.shared_bytes >= 8 * DIRECT["stages"] and not resources.local_bytes  # its barriers


@pytest.mark.parametrize(
    ("device", "text", "change", "fits"),
    [
        # A second launch pools: the tile begins elsewhere and takes more room than one that pools itself.
        (HOPPER, "n1c16h48w48k64r3s3p1-f16+relu+maxpool3u2p1",
         dict(v=2, tk=2, tw=2, th=2, bw=4, bh=8, sw=2, sb=1, stages=6, combine=2, out=0, wfast=0), False),
        (AMPERE, "n1c64h112w112k64r3s3p1-f16+relu+maxpool3u1p1",
         dict(v=1, tk=2, tw=4, th=4, bk=4, bw=1, bh=3, sw=8, sb=1, cs=32, stages=6, combine=2, out=0,
              wfast=0), False),
        (HOPPER, "n1c16h48w48k64r3s3p1-f16+relu+maxpool3u2p1",
         dict(v=2, tk=2, tw=2, th=2, bw=4, bh=8, sw=2, sb=1, stages=4, combine=2, out=0, wfast=0), True),
    ],
)  # fmt: skip
def test_the_rules_know_who_pools(device: Device, text: str, change: dict[str, int], fits: bool) -> None:
    direct, problem, config = family_of("direct"), Problem.parse(text), Config.make("direct", DIRECT | change)
    if not fits:
        with pytest.raises(ConfigError, match="more shared memory than a block may have"):
            direct.check(problem, device, config)
        return
    direct.check(problem, device, config)
    (main, _) = direct.blueprint(problem, device, config).launches
    assert main.shared_bytes + DECLARED_SHARED <= device.shared_per_block


@pytest.mark.parametrize(
    "layer",
    [
        "direct n1c64h56w56k64r3s3p1u2-f32",
        "direct n1c64h56w56k64r3s3p1-f32-nhwc",
        "winograd n1c64h56w56k64r3s3p1-f32-nhwc",
        "gemm n1c64h56w56k64r1s1-f32-nhwc",
    ],
)
def test_staged_tiles_begin_at_whole_lines(layer: str) -> None:
    """A copy of 16 bytes that cuts a sector of 32 fetches it twice; the copy engine wants lines of 128."""
    name, _, text = layer.partition(" ")
    kind, problem, rng = family_of(name), Problem.parse(text), random.Random(0)
    sampled = [space(kind, problem, HOPPER).sample(rng) for _ in range(60)]
    for config in sampled:
        defines = dict(kind.blueprint(problem, HOPPER, config).defines)
        assert defines["X_FLOATS"] % 32 == 0, config
        assert defines.get("F_FLOATS", 0) % 32 == 0, config
    assert any(config["cv"] == 4 for config in sampled) == text.endswith("nhwc")


@pytest.mark.parametrize("channels", [4, 8, 16, 32, 64])
def test_pixels_staged_by_four_channels_lie_in_other_banks(channels: int) -> None:
    pitch = quad_pitch(channels)
    assert pitch >= channels + 4 and pitch % 4 == 0 and pitch % 16 != 0
    assert pitch % 8 == 0 or channels < 16  # sectors of 32 bytes stay whole
