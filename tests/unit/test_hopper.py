"""The hopper family: what it takes, and what it compiles to.

Its protocol of barriers runs in test_hopper_protocol.py, its index arithmetic on a CPU in
tests/device/test_hopper_family.py; its answers are checked on a GPU.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest
from sass import instructions, main_loop

from tilewright.device import DeviceType, for_architecture
from tilewright.errors import ConfigError
from tilewright.kernels import FAMILIES, family_of
from tilewright.kernels import hopper as package
from tilewright.kernels.family import Config
from tilewright.kernels.fold import folded
from tilewright.kernels.hopper import finish as finishing
from tilewright.kernels.hopper.finish import BY_TILE, MET, OWN, run
from tilewright.kernels.hopper.image import image_of
from tilewright.kernels.hopper.layout import layout
from tilewright.kernels.hopper.raster import Line, patch_of, raster_of
from tilewright.kernels.hopper.tile import registers_at_most, tiling_of
from tilewright.kernels.hopper.ways import GATHERED, SLID, TAPWISE, TURNED, leads, leap, ways
from tilewright.kernels.products import in_chunk
from tilewright.kernels.source import full_source, kernel_files
from tilewright.kernels.untuned import pack
from tilewright.kernels.untuned.nhwc import tap_chunks
from tilewright.problem import Problem
from tilewright.search import model
from tilewright.search.ranking import ModelRanking
from tilewright.search.space import Space, usable

H100 = for_architecture("sm_90")
HOPPER = family_of("hopper")
R12 = Problem.parse("n1c512h7w7k512r3s3p1-f16-nhwc")
BASE = dict(
    x=0, wm=1, wn=1, bn=56, mb=1, chunks=8, pieces=0, tall=0, batch=1, stages=9, xs=1, cm=1,
    sc=8, sg=1, combine=0,
)  # fmt: skip
LAYERS = (
    "n1c512h7w7k512r3s3p1-f16-nhwc",
    "n1c256h34w34k512r3s3p1-i8-nhwc",
    "n1c64h56w56k64r3s3p1-bf16-nhwc+bias+relu",
    "n4096c4096h1w1k4096r1s1-f16-nhwc",
    "n32c256h14w14k256r3s3p1-f16-nhwc2nchw+add+silu",
    "n1c512h14w14k512r3s3p1u2-f16",
    "n2c40h19w13k100r5s3p2d2g2-bf16+maxpool2",
    "n1c3h224w224k64r7s7p3u2-i8-nhwc",
)
OTHERS = (  # {} stands for two of three kinds of numbers
    "n1c512h7w7k512r3s3p1-{}-nhwc", "n1c256h34w34k512r3s3p1-{}-nhwc", "n4096c4096h1w1k4096r1s1-{}-nhwc",
    "n1c64h56w56k256r1s1-{}-nhwc+bias+relu", "n1c512h14w14k512r3s3p1u2-{}",
    "n2c40h19w13k100r5s3p2d2g2-{}+maxpool2", "n32c256h14w14k256r3s3p1-{}-nhwc2nchw+add+silu",
    "n1c3h224w224k64r7s7p3u2-{}-nhwc", "n1c3h224w224k64r7s7p3u2-{}", "n1c5h30w30k40r5s5-{}",
)  # fmt: skip
OTHER_KINDS = ("tf32", "accurate", "f8")
COMPILED = (*LAYERS, *(
    text.format(kind) for turn, text in enumerate(OTHERS) for kind in OTHER_KINDS
    if kind != OTHER_KINDS[turn % 3]
))  # fmt: skip


def _config(**change: int) -> Config:
    return Config.make("hopper", BASE | change)


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr("tilewright.kernels.error_bound.FEWEST_ACCURATE", 64)  # the kernel can do more


def test_each_module_uses_those_above_it_alone() -> None:
    """The order that the package's docstring tells."""
    order = re.findall(r"^``(\w+)``", package.__doc__ or "", re.MULTILINE)
    folder = Path(package.__file__).parent
    assert sorted(order) == sorted(path.stem for path in folder.glob("[a-z]*.py"))
    for name in order:
        text = (folder / f"{name}.py").read_text(encoding="utf-8")
        found = re.findall(r"from tilewright\.kernels\.hopper\.(\w+) import", text)
        below = order[order.index(name) :]
        assert not set(found) & set(below), name


def test_specs_and_kernels_know_a_choice_by_the_same_number() -> None:
    text = kernel_files()["hopper_tile.h"].read_text(encoding="utf-8")
    ways_told = {name: int(n) for name, n in re.findall(r"#define (\w+) \(X_WAY == (\d)\)", text)}
    assert ways_told == dict(GATHERS=GATHERED, TURNS=TURNED, TAPWISE=TAPWISE, SLID=SLID)
    names = ("BY_TILE", "OWN", "MET", "STORE_WORDS", "STORE_ROWS", "STORE_PLANES")
    for name in names:
        assert re.search(rf"^#define {name} {getattr(finishing, name)}$", text, re.MULTILINE), name


@pytest.mark.parametrize("text", COMPILED)
def test_compiles_with_sums_in_registers_and_products_under_way_together(text: str) -> None:
    """What the model likes at a glance, and a random one: what spills or is serialised is a CompileError.

    Its way to read x: layers in turns.
    """
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    problem = Problem.parse(text)
    assert HOPPER.refuses(problem, H100) is None
    rng = random.Random(text)
    liked = ModelRanking(Space(HOPPER, problem, H100), rng)
    liked.glance()  # to look further takes seconds, and finds much the same
    ways = {c["x"]: c for c in (liked.space.sample(rng) for _ in range(8))}
    way = sorted(ways)[COMPILED.index(text) % len(ways)]
    for config in (liked.order()[0], ways[way]):
        found = HOPPER.blueprint(problem, H100, config)
        packer = pack(problem, H100, found)
        for program in (*found.programs, *packer.programs):
            assert 0 < compile_cuda(program, H100.arch).registers <= 255


def test_no_device_without_tensor_cores_is_offered_the_emulation_of_them() -> None:
    """A GPU by OpenCL, as ``opencl_facts`` describes it."""
    device = dataclasses.replace(H100, backend="opencl", arch="OpenCL C 3.0", tensor_macs=0)
    for kind in ("f16", "i8"):
        found, _ = usable(FAMILIES, R12.with_dtype(kind), device)
        assert {"direct"} <= {one.name for one in found}
        assert not {"hopper", "mma"} & {one.name for one in found}


def test_the_main_loop_is_products(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    tools = [*Path(sysconfig.get_paths()["purelib"]).glob("nvidia/*/bin/cuobjdump")]
    if not tools:
        pytest.skip("no cuobjdump")
    built = compile_cuda(HOPPER.blueprint(R12, H100, _config()), "sm_90")
    (tmp_path / "hopper.cubin").write_bytes(built.binary)
    command = [tools[0], "-sass", tmp_path / "hopper.cubin"]
    text = subprocess.run(command, capture_output=True, text=True).stdout
    lines = re.findall(r"/\*([0-9a-f]{4,5})\*/\s+(.*?);", text)
    at = [(int(place, 16), line) for place, line in lines]
    back = [(int(m[1], 16), place) for place, line in at if (m := re.search(r"BRA.* 0x([0-9a-f]+)", line))]
    bodies = [[line for place, line in at if start <= place <= end] for start, end in back if start < end]
    body = min((b for b in bodies if any("HGMMA" in line for line in b)), key=len)
    assert sum("HGMMA.64x56x16" in line for line in body) == 4
    assert sum("DEPBAR" in line for line in body) == 1  # one wait a step
    assert len(body) < 120
    assert not any("MEMBAR.ALL.GPU" in line for _, line in at)  # the cluster meets without it


@pytest.mark.parametrize(
    ("text", "change", "who", "transposed"),
    [
        ("f16-nhwc+bias+relu", {}, OWN, 4),  # 56 pixels: three times 16, and 8
        ("f8-nhwc", dict(wn=2, bn=24), OWN, 2),
        ("i8-nhwc", dict(bn=48), OWN, 0),
        ("i8-nhwc+bias+requant", dict(bn=48), OWN, 2),  # of 32 pixels each
        ("i8-nhwc+requant", dict(sc=8, bn=48), MET, 0),
        ("f16-nhwc", dict(sg=2, combine=2), OWN, 0),  # partial sums
        ("f16-nhwc", dict(sc=8), MET, 0),
        ("f16-nhwc+add", {}, OWN, 4),
        ("i8-nhwc+add", dict(bn=48), OWN, 0),
        ("i8-nhwc+add+requant", dict(bn=48), BY_TILE, 0),  # z has 4 bytes a number, y one
        ("f16-nhwc+add", dict(sc=8), MET, 0),
        ("f16-nhwc2nchw", {}, BY_TILE, 0),
    ],
)
def test_who_finishes_sums(
    text: str, change: dict[str, int], who: int, transposed: int, tmp_path: Path
) -> None:
    """A warp its own, with no barrier of all threads; or a block its pixels, four sums at once."""
    pytest.importorskip("cuda.bindings.nvrtc")
    problem = Problem.parse(f"n1c512h7w7k512r3s3p1-{text}")
    found = HOPPER.blueprint(problem, H100, _config(**dict(sc=1) | change))
    assert dict(found.defines)["FINISH"] == who
    lines = instructions(found, "sm_90", tmp_path)
    assert sum("STSM" in line for line in lines) == transposed
    eighths = dict(found.defines)["WG_EIGHTHS"]
    assert sum("STAS.128" in line for line in lines) == (eighths if who == MET else 0)
    assert who == MET or any(re.search(r"BAR.SYNC\S* 0x0", line) for line in lines) == (who == BY_TILE)


def test_a_residual_is_read_as_y_is_stored(tmp_path: Path) -> None:
    """Of 2 bytes a number: 16 bytes a thread, turned by the matrices that turn the sums the other way.

    They are on their way before the products begin.
    """
    pytest.importorskip("cuda.bindings.nvrtc")
    problem = Problem.parse("n1c512h7w7k512r3s3p1-f16-nhwc+add")
    lines = instructions(HOPPER.blueprint(problem, H100, _config(sc=1)), "sm_90", tmp_path)
    assert not any("LDG" in line and "U16" in line for line in lines)
    assert sum("LDSM" in line and "MT88" in line for line in lines) == 4
    copies = [i for i, line in enumerate(lines) if "LDGSTS" in line and ".128" in line]
    assert min(copies) < min(i for i, line in enumerate(lines) if "HGMMA" in line)


@pytest.mark.parametrize(
    ("kind", "product", "adds"),
    [("tf32", "HGMMA.64x56x8.F32.TF32", 0), ("f8", "QGMMA.64x56x32.F32.E4M3.E4M3", 28)],
)
def test_products_of_other_numbers(kind: str, product: str, adds: int, tmp_path: Path) -> None:
    """As many as of f16; those of f8 overwrite their sums at each step, which are added to those in f32."""
    pytest.importorskip("cuda.bindings.nvrtc")
    config = _config(sc=4) if kind == "f8" else _config()
    body = main_loop(HOPPER.blueprint(R12.with_dtype(kind), H100, config), "sm_90", tmp_path, product)
    products = [line for line in body if product in line]
    assert len(products) == 4 and sum("!UPT" in line for line in products) == (kind == "f8")
    assert sum("FADD" in line for line in body) == adds
    assert sum("DEPBAR" in line for line in body) == 1 and len(body) < 120


@pytest.mark.parametrize(
    ("change", "product", "turns"),
    [
        (dict(stages=6), "HGMMA.64x56x8.F32.TF32", 4 * "first more more wait "),
        (dict(stages=4, x=3, pieces=1), "HGMMA.64x56x16.F32", 2 * "first more more more more more wait "),
    ],
)
def test_accurate_adds_up_while_it_multiplies(
    change: dict[str, int], product: str, turns: str, tmp_path: Path
) -> None:
    """Three products for 32 bytes of the sum; those of high parts are waited for with the others under way.

    The first of these overwrites what was added up before.
    """
    pytest.importorskip("cuda.bindings.nvrtc")
    blueprint = HOPPER.blueprint(R12.with_dtype("accurate"), H100, _config(sc=4, xs=2, **change))
    body = main_loop(blueprint, "sm_90", tmp_path, product)
    order = "".join(
        "wait " if "DEPBAR.LE gsb0, 0x1" in line else "first " if "!UPT" in line else "more "
        for line in body if product in line or "DEPBAR" in line
    )  # fmt: skip
    assert order == turns
    assert sum("FADD" in line for line in body) == turns.count("wait") * 28 and len(body) < 260


@pytest.mark.parametrize("kind", ["tf32", "accurate"])
def test_x_is_rounded_on_its_way_with_loads_in_flight(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    config = _config(stages=4) if kind == "accurate" else _config()
    code = instructions(HOPPER.blueprint(R12.with_dtype(kind), H100, config), "sm_90", tmp_path)
    runs = ["".join(run) for run in re.findall("L{8,}S{8,}", "".join(
        "L" if "LDG.E.128" in line else "S" if "STS.128" in line else "" for line in code))]  # fmt: skip
    assert len(runs) == 2 and not any("LDGSTS" in line for line in code)  # the first patch, and the others


def test_a_step_of_f8_is_promoted_after_four_products() -> None:
    f8 = R12.with_dtype("f8")
    assert HOPPER.chain(f8, H100, _config(sc=4)) == 9 + 4
    assert HOPPER.chain(f8, H100, _config(sc=4, chunks=16)) == 2 * 5 + 4
    assert HOPPER.chain(R12.with_dtype("tf32"), H100, _config()) == 18 * 4 + 8


def test_accurate_is_promoted_after_each_product_and_has_twice_the_bytes() -> None:
    accurate, tf32 = (R12.with_dtype(kind) for kind in ("accurate", "tf32"))
    assert HOPPER.chain(accurate, H100, _config()) == 18 * 4 + 8 + 1
    once, twice = (tiling_of(problem, H100, _config().values) for problem in (tf32, accurate))
    assert (twice.w_bytes, twice.x_bytes, twice.steps) == (2 * once.w_bytes, 2 * once.x_bytes, once.steps)
    assert HOPPER.blueprint(accurate, H100, _config()).packed_bytes == 2 * tf32.w_bytes


def test_halves_take_half_the_bytes_of_two_of_tf32_and_half_the_products() -> None:
    """Promoted after every second; behind the packed filter stands what a fallback needs."""
    accurate, halves = R12.with_dtype("accurate"), dict(x=3, pieces=1, stages=4, xs=2, sc=4)
    three, two = (tiling_of(accurate, H100, BASE | halves | dict(x=x)) for x in (1, 3))
    assert (two.w_bytes, two.x_bytes, 2 * two.steps) == (three.w_bytes, three.x_bytes, three.steps)
    assert two.image is not None and two.image.dtype == "UINT16" and two.image.channels == 2 * 512
    assert HOPPER.chain(accurate, H100, _config(**halves)) == 64 + 72  # the fallback's; else 18 * 2 + 4 + 1
    assert HOPPER.chain(accurate, H100, _config(**halves | dict(sc=1))) == 72 * 2 + 1 + 1
    found = HOPPER.blueprint(accurate, H100, _config(**halves))
    assert found.packed_bytes == 2 * accurate.w_bytes + 8 * 512
    assert [launch.kernel for launch in found.launches] == ["largest", "nhwc", "hopper", "fallback"]
    assert [launch.chained for launch in found.launches] == [False, True, True, True]
    assert found.launches[-1].grid == (8, 1, 1)  # tiles of 64 channels, 49 pixels
    works = [HOPPER.work(accurate, H100, _config(**halves | dict(x=x, sc=1, wn=2, bn=32))) for x in (1, 3)]
    assert works[0].tensor_cycles == 2 * works[1].tensor_cycles
    assert [work.more_launches for work in works] == [1, 3]
    with pytest.raises(ConfigError, match="'mapped'"):
        HOPPER.check(accurate, H100, _config(**halves | dict(pieces=0)))


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("n1c512h7w7k512r3s3p1-accurate-nhwc", 8), ("n1c512h7w7k512r3s3p1-accurate", 8),
        ("n2c40h19w13k100r5s3p2d2g2-accurate-nhwc2nchw+bias+maxpool2", 2 * 6),
        ("n1c64h56w56k65r3s3p1-accurate+add+silu+avgpool9", 2 * 36),  # 81 cells of an output
        ("n256c256h112w112k70r3s3p1u2-accurate-nhwc", 132), ("n256c256h112w112k70r3s3p1u2-accurate", 132),
    ],
)  # fmt: skip
def test_the_fallback_compiles_for_any_layer(text: str, blocks: int) -> None:
    """Few blocks of few registers: most of the time it is there to look."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    problem, config = Problem.parse(text), _config(x=3, pieces=1, stages=2, sc=1, combine=2)
    found = HOPPER.blueprint(problem, H100, config)
    program = next(part for part in found.parts if part.source == "fallback.cu")
    assert found.launches[-1].kernel == "fallback" and found.launches[-1].grid == (blocks, 1, 1)
    assert dict(program.defines)["OFFSET64"] == (problem.n == 256)
    built = compile_cuda(program, "sm_90")
    assert built.resources["fallback"].registers <= 128


def test_a_product_takes_as_long_of_any_kind() -> None:
    """32 bytes deep: 8 numbers of tf32, 16 of f16, 32 of f8. What differs is how many there are."""
    y12 = Problem.parse("n32c256h34w34k512r3s3p1-f16-nhwc")

    def of(kind: str, **teams: int) -> float:
        return HOPPER.work(y12.with_dtype(kind), H100, _config(sc=1, xs=2, bn=80, **teams)).tensor_cycles

    cycles = {kind: of(kind, wm=2, wn=2) for kind in ("f16", "i8", "tf32", "f8")}
    assert of("accurate", wm=2, wn=2) == 3 * cycles["tf32"]
    assert cycles["tf32"] == 2 * cycles["f16"] == 4 * cycles["i8"] == 4 * cycles["f8"]
    assert of("f8") > of("i8")  # one warpgroup alone does not multiply while it adds


def test_other_devices_are_told() -> None:
    assert "sm_90" in str(HOPPER.refuses(R12, for_architecture("sm_80")))
    assert "sm_90" in str(HOPPER.refuses(R12, dataclasses.replace(H100, type=DeviceType.CPU)))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (dict(bn=64, wm=4, mb=2, sc=1, xs=2), "registers"),
        (dict(pieces=1, chunks=16), "swizzled"),
        (dict(batch=3, stages=4), "useless_stages"),
        (dict(stages=18, wm=4), "shared"),
        (dict(sc=8, cm=2), "copies"),
        (dict(sc=4, sg=2), "combine_none"),
        (dict(xs=3), "useless_patches"),
        (dict(sc=4), "next_patch"),
        (dict(sc=8, stages=18), "useless_stages"),
    ],
)
def test_rules_are_named(change: dict[str, int], rule: str) -> None:
    with pytest.raises(ConfigError, match=f"rule '({rule})'"):
        HOPPER.check(R12, H100, _config(**change))


def test_rows_share_the_places_around_them() -> None:
    assert Line.of(7, 7, 3, 1, 1, 1) == Line(8, 1, 2)  # one place of padding between two rows
    assert Line.of(14, 7, 3, 2, 1, 1) == Line(8, 2, 1)
    assert Line.of(9, 9, 1, 1, 1, 0) == Line(9, 1, 0)
    assert Line.of(9, 5, 1, 2, 1, 0) == Line(5, 1, 0)  # 1x1 and stride 2: one phase
    assert Line.of(10, 8, 3, 1, 1, 0) == Line(10, 1, 2)  # no padding, nothing to share


ODD = ("n3c8h9w5k8r3s2p1.0.0.2u2x1d2-f16-nhwc", "n2c8h5w6k8r4s3p4u3-i8-nhwc")


@pytest.mark.parametrize("text", [*LAYERS, *ODD])
def test_every_tap_of_every_output_is_its_place_on_the_raster(text: str) -> None:
    """In the words of the kernel: the pixel that find_pixel finds where multiply_step looks."""
    pr = Problem.parse(text)
    raster = raster_of(pr)
    view, rows, columns = raster.view, raster.rows, raster.columns
    rng = random.Random(text)
    outputs = [*itertools.islice(itertools.product(range(view.n), range(view.p), range(view.q)), 3000)]
    for n, p, q in rng.sample(outputs, min(60, len(outputs))):
        o = (n * rows.extent + p) * columns.extent + q
        for r, s in itertools.product(range(pr.r), range(pr.s)):
            moved_h, moved_w = r * pr.dilation[0], s * pr.dilation[1]
            place = o + moved_h // pr.stride[0] * columns.extent + moved_w // pr.stride[1]
            i, j = place // columns.extent % rows.extent, place % columns.extent
            m = place // (columns.extent * rows.extent)
            h = i * pr.stride[0] + moved_h % pr.stride[0] - pr.pad[0]
            w = j * pr.stride[1] + moved_w % pr.stride[1] - pr.pad[2]
            found = (m, h, w) if m < view.n and 0 <= h < view.h and 0 <= w < view.w else None
            h, w = p * pr.stride[0] + moved_h - pr.pad[0], q * pr.stride[1] + moved_w - pr.pad[2]
            assert found == ((n, h, w) if 0 <= h < view.h and 0 <= w < view.w else None)


MAPPED_AS = (
    *(dict(x=0, wn=1, bn=40, chunks=chunks, pieces=1, tall=0) for chunks in (2, 8)),
    dict(x=1, wn=2, bn=16, chunks=4, pieces=1, tall=1),
)


MORE = ("n2c64h9w7k70r3s3p1-f8-nhwc", "n3c16h13w11k8r1s1u2-f16-nhwc")


@pytest.mark.parametrize("text", [*LAYERS, *ODD, *MORE])
def test_the_copy_engine_finds_what_threads_would(text: str) -> None:
    """Pixels as cuTensorMapEncodeIm2col enumerates them, against find_pixel in the words of the kernel."""
    pr = Problem.parse(text)
    raster = raster_of(pr)
    view, rows, columns = raster.view, raster.rows, raster.columns
    for way in MAPPED_AS:
        image, (count, line) = image_of(pr, way), patch_of(pr, way)
        if pr.groups > 1 and tap_chunks(pr) % way["chunks"]:
            assert image is None  # the last channels would bring those of the next group along
            continue
        assert image is not None and image.legal and image.row_bytes == 16 * way["chunks"]
        assert image.box_pixels == line and count == (2 + rows.reach if way["tall"] else 1)
        assert image.dims == (pr.groups * tap_chunks(pr) * in_chunk(pr), view.w, view.h, view.n)
        box = [range(low, size + high, step) for low, high, size, step in zip(
            image.lower, image.upper, (image.columns, image.rows), image.stride, strict=True)]  # fmt: skip
        assert [len(side) for side in box] == [columns.extent, rows.extent]
        raster = [(n, h, w) for n in range(view.n + 2) for h in box[1] for w in box[0]]
        for px0 in random.Random(text).sample(range(view.n * rows.extent * columns.extent), 5):
            for phase in range(rows.phases * columns.phases):
                for i, row in itertools.product(range(count), range(0, line, 3)):
                    place = px0 + i * columns.extent + row
                    i, j = place // columns.extent % rows.extent, place % columns.extent
                    wanted = (
                        place // (columns.extent * rows.extent),
                        i * pr.stride[0] + phase // columns.phases - pr.pad[0],
                        j * pr.stride[1] + phase % columns.phases - pr.pad[2],
                    )
                    n, h, w = raster[place] if place < len(raster) else (view.n, 0, 0)
                    found = (n, h + phase // columns.phases, w + phase % columns.phases)
                    assert found == wanted or min(found[0], wanted[0]) >= view.n


TAPPED = [
    *(text for text in (*LAYERS, *ODD, *MORE) if TAPWISE in ways(Problem.parse(text))),
    "n2c64h9w7k70r5s3p2x1u3x2d2x3-f16-nhwc", "n1c48h32w32k64r8s8u8-f16-nhwc", "n2c64h8w8k64r31s31p15-i8-nhwc",
]  # fmt: skip


@pytest.mark.parametrize("text", TAPPED)
def test_a_patch_of_a_tap_is_what_outputs_see_there(text: str) -> None:
    """Pixels as cuTensorMapEncodeIm2col enumerates them, moved by each tap, as hopper_send.h has it."""
    pr = folded(Problem.parse(text))
    way = dict(x=TAPWISE, wn=2, bn=32, chunks=2, pieces=1, tall=0)
    image = image_of(pr, way)
    assert image is not None and image.legal and image.box_pixels == 64
    columns, rows = (range(low, size + high, step) for low, high, size, step in zip(
        image.lower, image.upper, (image.columns, image.rows), image.stride, strict=True))  # fmt: skip
    for r, s in itertools.product(range(pr.r), range(pr.s)):
        moved_h, moved_w = r * pr.dilation[0], s * pr.dilation[1]
        assert max(moved_h, moved_w) < 1 << 8, "what an instruction has room for"
        assert [h + moved_h for h in rows] == [p * pr.stride[0] + moved_h - pr.pad[0] for p in range(pr.p)]
        assert [w + moved_w for w in columns] == [q * pr.stride[1] + moved_w - pr.pad[2] for q in range(pr.q)]


def test_taps_no_instruction_moves_a_patch_to() -> None:
    way = dict(x=TAPWISE, wn=1, bn=32, chunks=2, pieces=1, tall=0)
    for apart, reached in ((127, True), (128, False)):  # 254 and 256 pixels from the first tap to the last
        pr = Problem.parse(f"n1c64h300w300k64r3s3p{apart}d{apart}-f16-nhwc")
        assert (image_of(pr, way) is not None) == reached


@pytest.mark.parametrize("text", [*LAYERS, "n1c512h7w7k512r3s3p1-f8-nhwc"])
def test_the_longest_share_is_counted(text: str) -> None:
    """Shares are of whole batches: in the words of the kernel (FIRST_STEP)."""
    problem, rng = Problem.parse(text), random.Random(text)
    space = Space(HOPPER, problem, H100)
    for config in (space.sample(rng) for _ in range(60)):
        tiling, batch = tiling_of(problem, H100, config.values), config["batch"]
        shares = config["sc"] * config["sg"]
        first = [share * (tiling.steps // batch) // shares * batch for share in range(shares + 1)]
        longest = max(end - start for start, end in itertools.pairwise(first))
        assert HOPPER.work(problem, H100, config).steps == longest
        assert HOPPER.chain(problem, H100, config) >= longest + shares


def test_planes_that_are_not_aligned_are_copied_as_they_are_however_large() -> None:
    pr = Problem.parse("n20c128h256w256k64r1s1-f16")  # 336 MB: more pieces than a side of a layer may have
    config = _config(x=4, pieces=1, chunks=8, bn=64, sc=1, stages=2, xs=1)
    here, moved = (HOPPER.blueprint(pr, H100, config, aligned) for aligned in (True, False))
    assert [launch.kernel for launch in here.launches] == ["hopper"]
    copy, main = moved.launches
    assert (copy.kernel, copy.grid[0] * 256 * 16) == ("nhwc", pr.x_bytes) and main.args[0] == "copied"
    assert dict(moved.parts[0].defines)["W"] * 16 == moved.workspace[-1].nbytes == pr.x_bytes


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("n1c64h7w7k64r1s1-f16", 8),
        ("n2c64h6w7k64r1s1-bf16", 4),
        ("n1c64h14w14k64r1s1-f16-nchw2nhwc", 2),
        ("n1c64h8w8k64r1s1-f16", 1),
        ("n1c60h7w7k64r1s1-f16", 1),  # the next image would begin elsewhere
        ("n1c96h7w7k64r1s1g8-f16", 1),  # so would the next group
        ("n1c64h7w7k64r3s3p1-f16", 1),
        ("n1c64h7w7k64r1s1u2-f16", 1),
        ("n1c64h14w14k64r1s1-f16+maxpool2", 1),
        ("n1c8h11585w11585k8r1s1-f16", 8),
        ("n1c8h11587w11587k8r1s1-f16", 1),  # more columns than the copy engine counts
    ],
)
def test_leads_of_planes_that_begin_anywhere(text: str, count: int) -> None:
    problem = Problem.parse(text)
    assert leads(problem) == count
    plane, each = problem.h * problem.w, 8
    begins = [channel * plane % each for channel in range(problem.c)]
    if count > 1:  # as the header says: longest lead first, LEAP channels from one to the next
        firsts = [(count - 1 - part) * leap(problem) % count for part in range(count)]
        assert [begins[first] for first in firsts] == [each - each // count * (i + 1) for i in range(count)]
        assert all(begins[channel] == begins[channel % count] for channel in range(problem.c))


def test_a_raster_of_stretches_fits_32_bits() -> None:
    """16 places for 8 outputs: twice the pixels."""
    config = _config(x=4, pieces=1, chunks=2, bn=16, sc=1, stages=2, xs=1)
    for images, fits in ((3_000_000, True), (12_000_000, False)):
        problem = Problem.parse(f"n{images}c8h5w13k8r1s1-f16")
        assert (image_of(problem, config.values) is not None) == fits


def test_room_for_a_residual_is_asked_for_where_it_is_copied() -> None:
    """By those who store whole rows of 2 bytes; what goes by way of a tile of sums, or meets, needs none."""
    change = dict(batch=1, bn=48, chunks=4, mb=3, pieces=1, sc=1, stages=12, wm=1, wn=2, x=0, xs=2)
    requantised = Problem.parse("n8c128h28w28k128r3s3p1-i8-nhwc+add+requant")
    HOPPER.check(requantised, H100, _config(**change))
    rows = Problem.parse("n8c128h28w28k128r3s3p1-f16-nhwc+add")
    bare = dataclasses.replace(rows.epilogue, beta=0.0)
    HOPPER.check(dataclasses.replace(rows, epilogue=bare), H100, _config(**change))
    with pytest.raises(ConfigError, match="'residual'"):
        HOPPER.check(rows, H100, _config(**change))


def test_where_threads_copy_the_input() -> None:
    def mapped(text: str, **change: int) -> bool:
        return image_of(Problem.parse(text), BASE | dict(pieces=1) | change) is not None

    assert mapped("n1c512h7w7k512r3s3p1-f16-nhwc") and mapped("n1c512h7w7k512r3s3p1-f8-nhwc")
    assert not mapped("n1c512h7w7k512r3s3p1-f16-nhwc", pieces=0)  # pieces apart
    assert mapped("n1c512h7w7k512r3s3p1-tf32-nhwc")  # rounded on the way
    assert not mapped("n1c512h7w7k512r3s3p1-accurate-nhwc")  # split on the way
    assert mapped("n1c512h7w7k512r3s3p1-accurate-nhwc", x=1)  # split before
    assert not mapped("n1c84h7w7k512r3s3p1-accurate-nhwc", x=1)  # low parts would come along
    assert mapped("n1c84h7w7k512r3s3p1g2-accurate", x=3)  # whole steps, the last in part zeros
    assert not mapped("n1c3h33w33k64r3s3p1-f16-nhwc", x=2)
    assert not mapped("n1c80h33w33k64r3s3p1g2-f16-nhwc")  # 40 channels of a group in steps of 64
    assert not mapped("n1c64h400w7k64r3s3p200-f16-nhwc")  # the box would begin 200 pixels before the image
    assert not mapped("n1c64h33w33k64r1s1u9-f16-nhwc")  # strides end at 8
    assert not mapped("n1c64h56w999k64r3s3p1-f16-nhwc")  # more pixels than an instruction copies
    assert mapped("n1c64h56w999k64r3s3p1-f16-nhwc", tall=1)


def test_a_warp_beside_those_that_multiply_where_the_copy_engine_copies() -> None:
    threads = {pieces: tiling_of(R12, H100, BASE | dict(pieces=pieces)).threads for pieces in (0, 1)}
    assert threads == {0: 256, 1: 160}
    assert registers_at_most(256, 1, 65536) == 255 and registers_at_most(288, 2, 65536) == 96  # 5 warps of 20
    launch = HOPPER.blueprint(R12, H100, _config(pieces=1)).launches[0]
    assert launch.tensor_map is not None and launch.block == (160, 1, 1)
    assert HOPPER.blueprint(R12, H100, _config()).launches[0].tensor_map is None


def test_patches_of_1x1_filters_have_the_buffers_of_their_filters() -> None:
    r3 = Problem.parse("n1c512h56w56k64r1s1-f16-nhwc")
    values = [BASE | dict(pieces=1, sc=1, stages=3, batch=batch) for batch in (1, 2)]
    alone, joint = (tiling_of(r3, H100, one) for one in values)
    assert [layout(r3, one, stays=False).x_stages for one in values] == [3, 6]
    assert joint.shared_bytes - alone.shared_bytes == 3 * (alone.w_bytes + alone.x_bytes)
    with pytest.raises(ConfigError, match="'joint'"):
        HOPPER.check(r3, H100, _config(pieces=1, sc=1, stages=3, xs=2))
    HOPPER.check(r3, H100, _config(pieces=1, sc=1, stages=2, batch=4, bn=24, xs=1))
    with pytest.raises(ConfigError, match="'batch'"):
        HOPPER.check(r3, H100, _config(sc=1, stages=3, batch=2, xs=2))


STAYING = "n32c128h28w28k256r1s1-f16-nhwc"


@pytest.mark.parametrize(("text", "change", "stays"), [
    (STAYING, {}, True), (STAYING + "+bias+relu", {}, True), (STAYING + "+add", {}, True),
    (STAYING.replace("n32", "n2"), {}, False), (STAYING.replace("k256", "k250"), {}, False),
    (STAYING.replace("-nhwc", "-nhwc2nchw"), {}, True), (STAYING, dict(cm=2), False),
    (STAYING.replace("h28w28", "h27w29").replace("-nhwc", "-nhwc2nchw"), {}, False),
    (STAYING, dict(mb=1), False),
    (STAYING.replace("f16", "bf16"), {}, True), ("n64c128h28w28k256r3s3p1-i8-nhwc", dict(xs=1), True),
])  # fmt: skip
def test_where_blocks_stay(text: str, change: dict[str, int], stays: bool) -> None:
    """They are as many as the GPU holds; others as many as there are tiles."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    problem = Problem.parse(text)
    base = dict(wm=2, wn=1, bn=96, mb=2, chunks=8, pieces=1, stages=2, sc=1)
    config = Config.make("hopper", BASE | base | change)
    HOPPER.check(problem, H100, config)
    found = HOPPER.blueprint(problem, H100, config)
    tiling = tiling_of(problem, H100, config.values)
    assert (tiling.stays, dict(found.defines)["STAYS"]) == (stays, int(stays))
    assert found.launches[0].grid[0] == (2 * H100.units if stays else tiling.blocks)
    assert not dict(HOPPER.blueprint(problem, H100, config, aligned=False).defines)["STAYS"]
    if stays:
        for program in found.programs:  # what spills is an error
            assert 0 < compile_cuda(program, "sm_90").registers <= 255


def test_where_blocks_stay_is_a_matter_of_the_device() -> None:
    """A layer of too few tiles for 132 units has enough for a third of them, and buffers for tiles ahead."""
    problem = Problem.parse(STAYING.replace("n32", "n9"))
    config = _config(wm=2, wn=1, bn=96, mb=2, chunks=8, pieces=1, stages=3, sc=1)
    less = dataclasses.replace(H100, units=44)
    assert [tiling_of(problem, device, config.values).stays for device in (H100, less)] == [False, True]
    assert HOPPER.blueprint(problem, less, config).launches[0].grid[0] == 2 * 44
    HOPPER.check(problem, less, config)
    with pytest.raises(ConfigError, match="'stages'"):
        HOPPER.check(problem, H100, config)
    more = dataclasses.replace(less, shared_per_unit=3 * H100.shared_per_unit, regs_per_unit=1 << 17)
    assert not tiling_of(problem, more, config.values).stays, "there is room for a third block"


@pytest.mark.parametrize("change", [
    dict(wm=2, wn=2, bn=128, mb=1), dict(wm=4, bn=128, mb=1), dict(mb=2, wm=2, wn=2, bn=56),
])  # fmt: skip
def test_where_sums_fill_the_registers_stores_spill_nothing(change: dict[str, int]) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    base = dict(wn=1, chunks=8, pieces=1, stages=2, sc=1)
    for stages in (4, 3, 2):  # as many as there is room for: then a unit holds no more blocks, and these stay
        config = Config.make("hopper", BASE | base | dict(stages=stages) | change)
        with contextlib.suppress(ConfigError):
            HOPPER.check(Problem.parse(STAYING), H100, config)
            break
    found = HOPPER.blueprint(Problem.parse(STAYING), H100, config)
    assert dict(found.defines)["STAYS"] and dict(found.defines)["TIGHT"]
    for program in found.programs:  # what spills is an error
        assert 0 < compile_cuda(program, "sm_90").registers <= 128


def test_buffers_for_tiles_ahead_where_blocks_may_stay() -> None:
    """R8 has two batches of a tile; of few tiles, or of sums that a cluster shares, more would stay empty."""
    base = dict(wm=2, wn=1, bn=64, mb=2, chunks=8, pieces=1, sc=1)
    for text, stages, change, rule in (
        (STAYING, 4, {}, None), (STAYING, 8, dict(mb=1), None), (STAYING, 9, dict(mb=1, bn=32), "stages"),
        (STAYING.replace("n32", "n2"), 3, {}, "stages"), (STAYING, 3, dict(cm=2), "useless_stages"),
        (STAYING.replace("-nhwc", "-nhwc2nchw"), 3, {}, None), (STAYING + "+add", 3, {}, None),
        (STAYING.replace("h28w28", "h27w29").replace("-nhwc", "-nhwc2nchw"), 3, {}, "stages"),
        (STAYING.replace("k256", "k250"), 3, {}, "stages"),
    ):  # fmt: skip
        config = _config(**(base | dict(stages=stages) | change))
        if rule is None:
            HOPPER.check(Problem.parse(text), H100, config)
        else:
            with pytest.raises(ConfigError, match=f"'{rule}'"):
                HOPPER.check(Problem.parse(text), H100, config)


def test_the_model_hides_the_first_data_of_tiles_that_follow() -> None:
    problem, config = Problem.parse(STAYING), _config(
        wm=2, wn=1, bn=96, mb=2, chunks=8, pieces=1, stages=2, sc=1
    )  # fmt: skip
    work = HOPPER.work(problem, H100, config)
    again = dataclasses.replace(work, stays=False)
    us = [model.gpu_estimate(H100, w, model.H100).total_us for w in (work, again)]
    assert work.stays and us[0] < us[1]


def test_sizes() -> None:
    tiling = tiling_of(R12, H100, BASE)
    assert (tiling.lines * tiling.line, tiling.steps) == (80, 72)
    assert (tiling.k_tiles, tiling.px_tiles, tiling.blocks) == (8, 1, 64)
    assert (tiling.w_bytes, tiling.x_bytes) == (8192, (80 * 16 + 16) * 8)
    assert tiling.shared_bytes == 9 * 8192 + 10368 + 320 + 224 + 8 * (4 * 64 * 8) + 16 * 10 + 16 + 1024
    blueprint = HOPPER.blueprint(R12, H100, _config())
    assert blueprint.specific and blueprint.launches[0].cluster == 8
    assert blueprint.packed_bytes == R12.w_bytes


def test_shared_memory_is_laid_out_in_one_place() -> None:
    """The kernel is told by defines, all of which it reads and none of which it works out itself."""
    found = layout(R12, BASE, stays=False, who=MET)
    assert (found.x_from, found.table_from) == (9 * 8192, 9 * 8192 + 10368)
    assert found.outs_from - found.table_from == 4 * 80 and found.own_from - found.outs_from == 4 * 56
    assert (found.own_from, found.bars_from) == (found.meet_from, found.meet_from + 8 * (4 * 64 * 8))
    blueprint = HOPPER.blueprint(R12, H100, _config())
    assert found.defines().items() <= dict(blueprint.defines).items()
    kernel = full_source(dataclasses.replace(blueprint, defines=()))
    for name in found.defines():
        assert not re.search(rf"#define {name}\b", kernel) and re.search(rf"\b{name}\b", kernel), name


@pytest.mark.parametrize("text", LAYERS)
def test_places_in_shared_memory_follow_one_another(text: str) -> None:
    """Whoever finishes; and the room that rules count with is enough for each."""
    problem, rng = Problem.parse(text), random.Random(text)
    space = Space(HOPPER, problem, H100)
    for config in [space.sample(rng) for _ in range(50)]:
        most = {stays: layout(problem, config.values, stays).shared_end for stays in (False, True)}
        for stays, who in itertools.product((False, True), (BY_TILE, OWN, MET)):
            if who == OWN and config["sc"] > 1:
                continue  # whole sums only
            found = layout(problem, config.values, stays, who)
            names = ("x_from", "table_from", "outs_from", "own_from", "meet_from", "bars_from", "shared_end")
            places = [getattr(found, name) for name in names]
            assert places == sorted(places) and all(place % 8 == 0 for place in places)
            assert found.shared_end <= most[stays] and most[False] <= most[True]


def test_a_rectangle_copies_no_places_between_its_lines() -> None:
    y2 = Problem.parse("n1c32h272w272k64r3s3p1-f16-nhwc")
    common = BASE | dict(chunks=4, pieces=1, bn=96, wn=2, sc=1, stages=2)
    run, tall = tiling_of(y2, H100, common), tiling_of(y2, H100, common | dict(tall=1))
    assert (run.lines, run.line, run.px_tiles) == (1, 744, 387)
    assert (tall.lines, tall.line) == (4, 104) and tall.x_bytes * 7 == run.x_bytes * 4 - 64 * 64
    assert (tall.p_tiles, tall.q_tiles, tall.px_tiles) == (136, 3, 408)


@pytest.mark.parametrize("text", [*LAYERS, *ODD, *MORE])
def test_every_tap_of_a_rectangle_is_in_its_patch(text: str) -> None:
    """In the words of multiply_step, send_for_patch and find_output."""
    pr = Problem.parse(text)
    columns = raster_of(pr).columns
    way = dict(x=0, wn=3, bn=16, chunks=2, pieces=1, tall=1)
    count, line = patch_of(pr, way)
    u, v = pr.stride
    for px, r, s in itertools.product(range(3 * 16), range(pr.r), range(pr.s)):
        r_moved, s_moved = r * pr.dilation[0], s * pr.dilation[1]
        row = (r_moved // u + px // 16) * line + s_moved // v + px % 16
        output = px // 16 * columns.extent + px % 16
        assert row < count * line and s_moved // v + px % 16 < line
        moved = r_moved // u * columns.extent + s_moved // v
        assert row // line * columns.extent + row % line == output + moved


def test_where_a_tile_may_be_a_rectangle() -> None:
    r2, tall = Problem.parse("n1c64h56w56k64r3s3p1-f16-nhwc"), dict(tall=1, pieces=1, sc=1, stages=2)
    HOPPER.check(r2, H100, _config(**tall, bn=56, wn=2))
    HOPPER.check(Problem.parse(f"{r2}+relu+maxpool2"), H100, _config(**tall, bn=56, wn=2))
    for change in (dict(pieces=0), dict(bn=64), dict(bn=64, wn=2)):
        with pytest.raises(ConfigError, match="'rectangle'"):
            HOPPER.check(r2, H100, _config(**{**tall, "bn": 56, **change}))
    with pytest.raises(ConfigError, match="'pool'"):  # a window has two rows
        HOPPER.check(Problem.parse(f"{r2}+relu+maxpool2"), H100, _config(**tall, bn=56, wn=1))
    with pytest.raises(ConfigError, match="'rectangle'"):  # of 1x1 filters there is nothing between
        HOPPER.check(Problem.parse("n1c64h56w56k64r1s1-f16-nhwc"), H100, _config(**tall, bn=56, wn=2))


def test_neighbours_of_a_pixel_are_stored_together_as_far_as_pixels_are_aligned() -> None:
    def runs(k: int, **change: int) -> int:
        return run(Problem.parse(f"n1c64h17w17k{k}r1s1-f16-nhwc"), BASE | change)

    assert [runs(k) for k in (64, 100, 102, 28269)] == [8, 4, 2, 1]
    assert runs(64, combine=2) == runs(100, combine=2) == 4


def test_the_model_sees_the_sum_split_and_filters_shared() -> None:
    def fact(name: str, problem: Problem, **change: int) -> float:
        HOPPER.check(problem, H100, _config(**change))
        return model.estimate(HOPPER, problem, H100, _config(**change)).facts[name]

    y12 = Problem.parse("n1c256h34w34k512r3s3p1-f16-nhwc")
    assert fact("l2_us", y12, bn=80, sc=1, cm=2, xs=2) < fact("l2_us", y12, bn=80, sc=1, xs=2)
    assert fact("l2_us", R12) < fact("l2_us", R12, sc=1, xs=2)
    # 128 blocks fit 132 units, but not in clusters of 4
    assert fact("waves", y12, bn=80, sc=1, cm=2, xs=2) < 1 < fact("waves", y12, bn=80, sc=1, cm=4, xs=2)


def test_what_is_turned_fits_too_where_it_is_copied_first() -> None:
    """Arrays that are not aligned are: then patches of 1x1 filters come with them, as many as stages."""
    problem = Problem.parse("n1c512h16w16k64r1s1-f16")
    change = dict(x=5, pieces=1, sc=1, xs=2, bn=192, chunks=8)
    config = _config(**change, stages=4)
    HOPPER.check(problem, H100, config)
    for aligned in (True, False):
        shared = HOPPER.blueprint(problem, H100, config, aligned).launches[-1].shared_bytes
        assert shared <= H100.shared_per_block
    with pytest.raises(ConfigError, match="'shared'"):
        HOPPER.check(problem, H100, _config(**change, stages=8))
