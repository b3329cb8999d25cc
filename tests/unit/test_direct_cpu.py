"""The direct family on CPU cores: its space, its blueprint and its model, with no device."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace

import pytest

from tilewright.device import Device, DeviceType, Rates
from tilewright.errors import ConfigError
from tilewright.floor import floor_us
from tilewright.kernels import family_of
from tilewright.kernels.direct import cpu_tile
from tilewright.kernels.direct.cpu_work import LINE_WAIT
from tilewright.kernels.family import Config
from tilewright.kernels.untuned import pack
from tilewright.kernels.work import CpuWork
from tilewright.problem import MAX_EXTENT, Problem
from tilewright.record import Check, Measurement, Record
from tilewright.search import model, ranking
from tilewright.search.space import space
from tilewright.store.exchange import export_text, import_text

CORES = Device(
    name="CPU", backend="opencl", type=DeviceType.CPU, index=0, arch="x86_64-v16", units=4, lanes=16,
    max_threads=4096, regs_per_thread=512, regs_per_unit=512, threads_per_unit=1, blocks_per_unit=1,
    shared_per_block=1 << 20, shared_per_unit=1 << 20, l2_bytes=32 << 20, clock_ghz=3.0, max_cluster=1,
    driver="none", rates=Rates(empty_us=20.0, read_gbs=20.0, f32_tflops=0.4),
)  # fmt: skip
AVX2 = replace(CORES, arch="x86_64-v8", lanes=8, regs_per_thread=128, regs_per_unit=128)
DIRECT = family_of("direct")
LAYERS = (
    "n1c64h56w56k64r3s3p1-f32", "n1c512h7w7k512r3s3p1-f32-nhwc", "n1c3h32w33k7r7s7p3u2-f32+bias+relu",
    "n1c4096h1w1k1000r1s1-f32", "n3c6h9w9k6r3s3p1g6-f32", "n1c9000h3w3k5r1s1-f32",
)  # fmt: skip


@pytest.mark.parametrize("text", LAYERS)
@pytest.mark.parametrize("device", (CORES, AVX2), ids=("avx512", "avx2"))
def test_sampled_configs_are_legal_and_fit_the_registers(text: str, device: Device) -> None:
    problem, rng = Problem.parse(text), random.Random(1)
    for _ in range(20):
        config = space(DIRECT, problem, device).sample(rng)
        DIRECT.check(problem, device, config)
        cf = config.values
        print_ = DIRECT.blueprint(problem, device, config)
        defines = dict(print_.defines)
        registers = cf["tk"] * cf["th"] * cf["tw"] + cf["tk"] - defines["REREAD"]
        assert registers <= (32 if device.lanes == 16 else 15)
        assert defines["SHARED_BYTES"] <= device.shared_per_block
        assert defines["AVX512"] == (device.lanes == 16)
        assert print_.packed_bytes >= problem.w_bytes
        assert DIRECT.chain(problem, device, config) >= problem.cg // cf["sg"] * problem.r * problem.s
        assert model.estimate(DIRECT, problem, device, config).total_us > 0


@pytest.mark.parametrize("pad", ("0", "1.0.0.0", "0.1.0.0", "0.0.1.0", "0.0.0.1"))
def test_an_input_with_padding_on_any_side_is_copied(pad: str) -> None:
    problem = Problem.parse(f"n1c64h20w23k64r3s3p{pad}-f32")
    sizes = dict(v=16, tk=2, tw=5, th=1, nk=2, nh=4, nw=2, sg=1, cs=64)
    config = Config.make("direct", sizes | dict(x=0, combine=0))
    with pytest.raises(ConfigError, match="rule 'in_place'") if pad != "0" else nullcontext():
        DIRECT.check(problem, CORES, config)


@pytest.mark.parametrize("device", (CORES, AVX2), ids=("avx512", "avx2"))
def test_a_far_dilation_leaves_configs_of_few_channels(device: Device) -> None:
    """Sixteen channels of all that lies between its taps are more than a core's local memory."""
    far = Problem.parse("n1c16h1w50000k16r1s3p0x10000d1x10000-f32")
    assert space(DIRECT, far, device).sample(random.Random(0)).values["cs"] in (1, 4)
    near = Problem.parse("n1c16h1w50000k16r1s3p0x1000d1x1000-f32")
    assert space(DIRECT, near, device).sample(random.Random(0)).values["cs"] == 16


def test_blocks_cover_the_outputs() -> None:
    problem = Problem.parse("n2c64h20w23k70r3s3p1g2-f32".replace("k70", "k140").replace("c64", "c128"))
    config = Config.make("direct", dict(v=8, tk=2, tw=5, th=1, nk=2, nh=4, nw=2, sg=2, x=1, cs=64, combine=3))
    DIRECT.check(problem, CORES, config)
    defines = dict(DIRECT.blueprint(problem, CORES, config).defines)
    assert defines["BLOCKS"] == 2 * 2 * 2 * -(-70 // 32) * -(-20 // 4) * -(-23 // 10)


def test_the_model_prefers_what_was_measured_to_be_faster() -> None:
    problem = Problem.parse("n1c64h56w56k64r3s3p1-f32")
    base = dict(v=16, tk=2, tw=14, th=1, nk=2, nh=4, nw=4, sg=1, x=1, cs=64, combine=0)

    def estimate(**change: int) -> float:
        config = Config.make("direct", base | change)
        DIRECT.check(problem, CORES, config)
        return model.estimate(DIRECT, problem, CORES, config).total_us

    assert estimate() < estimate(tk=1, tw=4)  # few accumulators: load ports, latency
    assert estimate(nw=1) < estimate(nw=1, tw=10)  # 56 columns are no multiple of 10
    assert estimate() < estimate(tw=7, th=2, nh=14, nw=8)  # two blocks: two cores


def test_with_few_registers_a_filter_vector_may_have_none() -> None:
    problem = Problem.parse("n1c512h14w14k512r3s3p1u2-f32")
    base = dict(v=8, tk=2, tw=7, th=1, nk=16, nh=7, nw=1, sg=16, x=1, cs=512, combine=3)

    def defines(device: Device, **change: int) -> tuple[int, ...]:
        config = Config.make("direct", base | change)
        DIRECT.check(problem, device, config)
        found = dict(DIRECT.blueprint(problem, device, config).defines)
        return found["REREAD"], found["FLAT_TAPS"], found["AHEAD"]

    assert defines(AVX2) == (1, 1, 1)  # 14 accumulators, an input, and one of two vectors of the filter
    assert defines(AVX2, tk=3, tw=4, nw=2) == (0, 1, 1)
    assert defines(CORES, v=16) == (0, 0, 0)
    with pytest.raises(ConfigError, match="registers"):
        defines(AVX2, tk=3, tw=5, nw=1, nk=8, th=2, nh=2)

    def loads(tw: int) -> float:
        config = Config.make("direct", base | dict(tw=tw))
        work = DIRECT.work(problem, AVX2, config)
        assert isinstance(work, CpuWork)
        return work.filter_loads / work.turns

    assert loads(7) == 1 + 7 and loads(6) == 2


def test_a_block_asks_for_an_input_that_is_read_in_place_from_memory() -> None:
    base = dict(v=16, tk=1, tw=16, th=1, nk=2, nh=1, nw=16, sg=1, x=0, combine=0)

    def asks(text: str, device: Device = CORES, **change: int) -> int:
        problem = Problem.parse(text)
        config = Config.make("direct", base | dict(cs=problem.c) | change)
        DIRECT.check(problem, device, config)
        return dict(DIRECT.blueprint(problem, device, config).defines)["ASK_INPUT"]

    far = "n1c128h136w136k64r1s1-f32"
    assert asks(far) == 1
    assert asks(far, x=1) == asks(far + "-nhwc") == 0
    assert asks("n1c512h68w68k64r1s1-f32") == 0  # a block's input would fill half of the cache
    assert asks("n1c128h28w28k64r1s1-f32") == 0  # near
    assert asks("n1c32h136w256k64r3s3-f32") == 0
    assert asks("n1c32h136w256k64r3s3-f32", AVX2, v=8, tw=4) == 1


def test_a_tile_asks_for_the_output_that_it_stores_itself() -> None:
    base = dict(v=16, tk=1, tw=14, th=2, nk=2, nh=1, nw=2, sg=1, x=1, cs=64, combine=0)

    def asks(text: str, device: Device = CORES, **change: int) -> int:
        problem, config = Problem.parse(text), Config.make("direct", base | change)
        DIRECT.check(problem, device, config)
        return dict(DIRECT.blueprint(problem, device, config).defines)["ASK_OUTPUT"]

    text = "n4c64h56w56k64r3s3p1-f32"
    assert asks(text) == asks(text + "-nhwc") == 1
    assert asks("n1c64h56w56k64r3s3p1-f32") == 1 and asks("n1c64h28w28k64r3s3p1-f32") == 0  # near
    assert asks(text, sg=2, combine=3) == asks(text + "+maxpool2") == asks(text, AVX2, v=8, tw=4) == 0


def test_with_few_registers_accumulators_wait_for_one_another() -> None:
    """Tiles of 7 and 12 accumulators took 5.2 and 6.4 cycles a turn; by their longest pipe it is 4 and 6."""
    problem = Problem.parse("n1c64h48w48k96r3s3p1-f32")
    base = dict(v=8, tk=1, tw=8, th=1, nk=4, nh=4, nw=2, sg=1, x=1, cs=64, combine=0)

    def loop_us(**change: int) -> float:
        config = Config.make("direct", base | change)
        DIRECT.check(problem, AVX2, config)
        return model.estimate(DIRECT, problem, AVX2, config).terms_us["main_loop_us"]

    assert loop_us(tk=2, tw=6) < 0.85 * loop_us(tk=1, tw=8)


def test_the_first_choice_keeps_the_cores_busy() -> None:
    problem = Problem.parse("n1c256h14w14k256r3s3p1-f32")
    (best, expected_us), *_ = ranking.rank(problem, CORES, DIRECT, 1)
    blocks = dict(DIRECT.blueprint(problem, CORES, best).defines)["BLOCKS"]
    assert blocks >= CORES.units
    assert expected_us < 2.0 * floor_us(problem, CORES)


def test_images_of_one_pixel_share_a_tile_and_with_it_the_filter() -> None:
    """A batch through a classifier lies in memory as pixels of nhwc do, whatever its layout says."""
    problem = Problem.parse("n64c4096h1w1k1024r1s1-f32+bias+add+relu")
    pixels = Problem.parse("n64c4096h1w1k1024r1s1-f32-nhwc+bias+add+relu")
    (config, took), *_ = ranking.rank(problem, CORES, DIRECT, 1)
    assert config["tw"] >= 4 and config["nk"] * config["nw"] > 1
    assert DIRECT.blueprint(problem, CORES, config) == DIRECT.blueprint(pixels, CORES, config)
    one_each = Config.make("direct", {**config.values, "tw": 1, "nw": 1})
    assert model.estimate(DIRECT, problem, CORES, one_each).total_us > 2 * took
    for other in ("n64c8h1w2k8r1s1", "n4c8h2w2k8r2s2-nhwc", "n4c8h2w2k8r2s2g2", "n4c8h2w2k8r2s2p1"):
        assert cpu_tile.one_row(Problem.parse(other)) == Problem.parse(other)


def test_a_filter_over_the_whole_image_is_a_row_of_channels() -> None:
    image, row = map(Problem.parse, ("n8c64h7w7k256r7s7+bias", "n8c3136h1w1k256r1s1-nhwc+bias"))
    assert cpu_tile.one_row(image) == row
    (config, took), *_ = ranking.rank(image, CORES, DIRECT, 1)
    assert ranking.rank(row, CORES, DIRECT, 1)[0] == (config, took) and config["tw"] > 1
    ours, plain = (DIRECT.blueprint(problem, CORES, config) for problem in (image, row))
    assert replace(ours, pack=plain.pack, packing=plain.packing) == plain
    assert dict(ours.pack or ()).items() >= dict(plain.pack or ()).items() | {("CG", 3136), ("SIZE_R", 1)}


def test_one_packer_serves_every_batch_and_epilogue() -> None:
    alone, batch = map(Problem.parse, ("n1c64h9w9k32r3s3", "n8c64h20w20k32r3s3p1-nhwc+bias+relu"))
    config, _ = ranking.rank(batch, CORES, DIRECT, 1)[0]
    recipe = DIRECT.blueprint(batch, CORES, config)
    assert pack(alone, CORES, recipe) == pack(batch, CORES, recipe)


@pytest.mark.parametrize(
    "text",
    (
        "n1c4h33w33k4r3s3p12d12", "n1c4h13w11k4r3s3p1", "n1c4h17w17k4r1s7p0x3", "n1c4h15w9k4r5s3p2x1u2x1d1x2",
        "n1c5h4w4k6r3s3p4", "n1c2h1w40k3r1s9p0x4", "n1c16h16w16k4r3s3p1u2",
    ),
)  # fmt: skip
def test_the_share_of_taps_that_meet_the_image_is_what_a_count_gives(text: str) -> None:
    problem = Problem.parse(text)
    sides = ((problem.h, problem.p, problem.r), (problem.w, problem.q, problem.s))
    for side, (size, outputs, taps) in enumerate(sides):
        step, apart, pad = problem.stride[side], problem.dilation[side], problem.pad[2 * side]
        for tile in (1, 2, 5, 11):
            first = [o * step - pad + t * apart for o in range(0, outputs, tile) for t in range(taps)]
            met = [at < size and at + (tile - 1) * step >= 0 for at in first]
            share = sum(met) / len(met) if taps > 1 else 1.0
            assert cpu_tile.taps_met(problem, side, tile) == pytest.approx(share)


def test_the_model_counts_taps_that_are_skipped() -> None:
    """Of a dilated filter much lies in padding; small blocks are not worth the look at the filter."""
    problem = Problem.parse("n1c64h33w33k64r3s3p12d12-f32")
    base = dict(v=16, tk=2, tw=11, th=1, nk=2, nh=33, nw=1, sg=1, x=1, cs=64, combine=0)
    for nh, skips in ((33, 1), (1, 0)):
        config = Config.make("direct", base | dict(nh=nh))
        DIRECT.check(problem, CORES, config)
        work = DIRECT.work(problem, CORES, config)
        share = (1 - 2 * 12 / 99) * 7 / 9 if skips else 1.0  # of the taps of rows, and of columns
        assert work.multiply_adds == pytest.approx(share * 2 * nh * 64 * 9 * 2 * 11)
        assert dict(DIRECT.blueprint(problem, CORES, config).defines)["SKIP_PADDING"] == skips


def test_the_configs_of_the_most_channels_can_be_read_again_and_shared() -> None:
    problem = Problem.parse(f"n1c{MAX_EXTENT}h1w1k4r1s1-f32")
    (most,) = [p.values[-1] for p in DIRECT.params(problem, CORES) if p.name == "cs"]
    assert most == MAX_EXTENT
    legal = space(DIRECT, problem, CORES)
    config = next(c for c in map(legal.sample, map(random.Random, range(99))) if c["cs"] == most)
    assert Config.parse(str(config)) == config
    right = Check(True, 0.0, 1.0, 0.0, True, True)
    won = Record(
        str(problem), CORES.key, "direct", str(config), "correct", DIRECT.deterministic(config), right,
        Measurement(1.0, 0.1, 9),
    )  # fmt: skip
    (read,) = import_text(export_text([won], (DIRECT,)), "friend.json", (DIRECT,), (CORES,))
    assert Config.parse(read.config) == config


def test_with_few_registers_an_input_in_place_costs_its_lines() -> None:
    """A block of many rows took 2.3 ms, one of few rows and all channels out 1.7."""
    problem = Problem.parse("n1c96h56w56k192r2s2u2-f32")
    base = dict(v=8, tk=3, tw=4, th=1, nk=8, nh=1, nw=7, sg=1, x=0, cs=96, combine=0)

    def loop_us(device: Device, **change: int) -> float:
        config = Config.make("direct", base | change)
        DIRECT.check(problem, device, config)
        return model.estimate(DIRECT, problem, device, config).terms_us["main_loop_us"]

    assert loop_us(AVX2) < 0.95 * loop_us(AVX2, nk=1, nh=17, nw=3)
    assert loop_us(AVX2, nh=14) > 1.1 * loop_us(AVX2)  # 0.8 MB, gone through eight times
    wide = dict(v=16, tk=2, tw=8, nk=1, nw=4)  # on AVX-512 its lines are not counted
    assert loop_us(CORES, **wide, nh=14) < 1.1 * loop_us(CORES, **wide)


def test_with_few_registers_a_strided_row_is_copied_by_vectors() -> None:
    problem = Problem.parse("n1c3h64w64k32r3s3p1u2-f32")
    config = Config.make(
        "direct", dict(v=8, tk=2, tw=6, th=1, nk=2, nh=1, nw=5, sg=1, x=1, cs=3, combine=0)
    )

    def copying(device: Device) -> float:
        work = DIRECT.work(problem, device, config)
        assert isinstance(work, CpuWork)
        return work.copying

    assert 2 * copying(AVX2) < copying(CORES)


@pytest.mark.parametrize(
    ("text", "waits"),
    (
        ("n1c64h208w208k32r1s1-f32", 1.0), ("n1c64h208w208k128r1s1-f32", 0.5),
        ("n1c64h208w208k32r1s1u2-f32", 0.5),
        ("n1c64h208w208k32r1s1-f32-nhwc", 0.0), ("n1c64h208w208k32r3s3p1-f32", 0.0),
        ("n8c64h56w56k32r1s1-f32", 0.0), ("n1c64h80w80k32r1s1-f32", 0.0),
    ),
)  # fmt: skip
def test_lines_of_large_planes_are_waited_for(text: str, waits: float) -> None:
    """Under a block there are few of each channel, too few to be foreseen."""
    problem = Problem.parse(text)
    (config, _), *_ = ranking.rank(problem, CORES, DIRECT, 1)
    work = DIRECT.work(problem, CORES, config)
    assert isinstance(work, CpuWork)
    assert work.memory_waits == pytest.approx(waits * LINE_WAIT * problem.x_bytes / 64)
    few = DIRECT.work(problem, AVX2, ranking.rank(problem, AVX2, DIRECT, 1)[0][0])
    assert isinstance(few, CpuWork) and few.memory_waits == 0, "its constants were fitted without"
