"""Exported kernels: CUDA files compile with nvcc and the example works; OpenCL files give the answer."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.checking.inputs import normal_inputs
from tilewright.cli import export, main
from tilewright.device import for_architecture
from tilewright.dispatch.dispatch import layer_plan
from tilewright.dtypes import numpy_dtype
from tilewright.errors import CompileError
from tilewright.export.bundle import bundle
from tilewright.export.files import files
from tilewright.kernels.family import Config
from tilewright.kernels.requant import numpy_requantised
from tilewright.kernels.tensor_map import Im2colMap, TiledMap
from tilewright.kernels.untuned.reference import numpy_conv
from tilewright.plans.provenance import Basis, Provenance
from tilewright.plans.request import Request
from tilewright.problem import Problem
from tilewright.runtime.base import Built, Runtime
from tilewright.runtime.nvrtc import compile_cuda

FAKE = Path(__file__).parent / "fake_libcuda.c"
CHECKED = "-Wall,-Wextra,-Werror,-fsanitize=address"
INPUTS = ("x", "w", "bias", "z", "scale")
NVCC = shutil.which("nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="no nvcc here: CUDA's compiler is not installed")

DIRECT = (  # a cluster, and shares added to zeros: a memset, then a chained launch
    "direct:bh=12.bk=2.bw=5.combine=1.cs=8.cv=1.f=0.mb=1.out=1.pad=1.sb=1.sc=2.sg=2.stages=1.sw=4.th=1."
    "tk=8.tw=2.v=4.wfast=0.x=0"
)
HOPPER = (  # of sm_90a alone
    "hopper:batch=1.bn=32.chunks=8.cm=2.combine=0.mb=1.pieces=1.sc=2.sg=1.stages=4.tall=0.wm=1.wn=1.x=0.xs=1"
)

HALVES = (  # the input is split by a second launch, of which the first says how
    "hopper:batch=3.bn=32.chunks=4.cm=1.combine=0.mb=1.pieces=1.sc=1.sg=1.stages=2.tall=0.wm=1.wn=1.x=3.xs=2"
)
STRASSEN = "strassen2:combine=0.cs=16.cv=1.fd=2.lk=8.mb=2.sb=1.sg=1.stages=2.stream=0.tk=2.tp=2.v=4.wk=2.wp=2"
SMALL = "small:bands=1.f=0.mb=1.ni=1.out=0.stages=1.th=1.threads=64.tk=4.tw=10"  # filter in constant memory

pytestmark = pytest.mark.usefixtures("own_cache")


def exported(to: Path, *arguments: str) -> dict[str, Any]:
    """Export and return layer.json."""
    assert main(["export", *arguments, "--to", str(to)]) == 0
    found: dict[str, Any] = json.loads((to / "layer.json").read_text())
    return found


def nvcc(folder: Path, *arguments: str) -> None:
    """Compile; a failure shows what the compiler said."""
    assert NVCC is not None
    done = subprocess.run([NVCC, *arguments], cwd=folder, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr


def numbers(shape: tuple[int, ...], dtype: str) -> Any:
    """Return what the example fills its inputs with."""
    index = np.arange(int(np.prod(shape)), dtype=np.uint32)
    return (((index * np.uint32(2654435761)) >> 16) % 3).astype(np.int32).reshape(shape) - 1


def test_the_layer_can_be_read_without_its_string(cpu: Runtime, tmp_path: Path) -> None:
    layer = "n2c8h9w7k4r3s2p0.1.2.0u1x2d2x1g2-i8-nchw2nhwc+bias"
    about = exported(tmp_path / "out", layer, "--device", "cpu", "--config", "reference:v=1")
    told = {name: about[name] for name in ("stride", "padding", "dilation", "groups")}
    pads = {"top": 0, "bottom": 1, "left": 2, "right": 0}
    assert told == {"stride": [1, 2], "padding": pads, "dilation": [2, 1], "groups": 2}
    assert [about[f"layout_{what}"] for what in ("in", "out", "w")] == ["nchw", "nhwc", "kcrs"]
    assert [about[name] for name in ("dtype", "dtype_added", "dtype_out")] == ["i8", "i32", "i32"]
    assert about["flops"] == 2 * (2 * 4 * 6 * 4) * (4 * 3 * 2) and about["bytes"] == 1008 + 96 + 16 + 768
    assert about["shapes"]["x"] == [2, 8, 9, 7] and about["shapes"]["y"] == [2, 6, 4, 4]
    assert [(one["name"], one["nbytes"], one["zeroed"], one["what"]) for one in about["buffers"]] == [
        ("x", 1008, False, "input, 2x8x9x7 nchw, i8"), ("w", 96, False, "filter, 4x4x3x2 kcrs, i8"),
        ("bias", 16, False, "bias, 4, i32"), ("z", 64, False, "bound, never read"),
        ("y", 768, False, "output, 2x6x4x4 nhwc, i32"),
    ]  # fmt: skip
    assert "TW_BUF_Y,  // output, 2x6x4x4 nhwc, i32\n" in (tmp_path / "out" / "layer.h").read_text()
    needed = "CL/cl.h and libOpenCL (Debian: opencl-c-headers, ocl-icd-opencl-dev)"
    assert needed in (tmp_path / "out" / "layer.h").read_text()


@needs_nvcc
@pytest.mark.parametrize(
    ("layer", "arch", "config"),
    [
        ("n1c64h14w14k64r3s3p1-f32", "sm_90", DIRECT),
        ("n2c64h14w14k64r3s3p1-f32-nhwc", "sm_90", ""),
        ("n1c16h20w20k8r5s5-f32+bias+relu+maxpool2", "sm_80", ""),
        ("n1c6h9w8k4r3s2p1x0u2d1x2g2-f32-nhwc2nchw+alpha0.5+add0.25+leaky0.1", "sm_120", ""),
        ("n2c512h1w1k96r1s1-f16+bias+silu", "sm_90", ""),
        ("n1c1024h32w32k1024r1s1-f32-nhwc+bias", "sm_90", STRASSEN),
        ("n1c64h14w14k64r3s3p1-f16-nhwc+relu", "sm_90", HOPPER),
        ("n1c64h14w14k64r3s3p1-accurate-nhwc+relu", "sm_90", HALVES),
        ("n1c4h9w9k4r3s3p1-bf16+clamp0:6+avgpool2", "sm_90", "reference:v=1"),
        ("n1c8h9w9k4r3s3p1-i8+bias+add+maxpool3u2p1", "sm_90", "reference:v=1"),
        ("n1c3h6w6k5r1s1-f64", "sm_80", "reference:v=1"),
        ("n1c8h9w9k4r3s3p1-f8+bias+add+relu", "sm_90", "reference:v=1"),
        ("n1c8h9w9k4r3s3p1-f8-nhwc", "sm_80", ""),
        ("n1c8h9w9k4r3s3p1-i8-nhwc+bias+add+requant", "sm_90", "reference:v=1"),
        ("n1c8h9w9k4r3s3p1-i8+bias+relu+maxpool2+requant", "sm_80", ""),
        ("n2c1h14w14k4r5s5-f32+bias+maxpool2", "sm_90", SMALL),
        ("n2c1h14w14k4r5s5-f32", "sm_90", SMALL.replace("f=0", "f=1")),
    ],
)
def test_cuda_files_compile_and_the_example_works(layer: str, arch: str, config: str, tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    folder = tmp_path / "out"
    about = exported(folder, layer, "--arch", arch, *(["--config", config] if config else []))
    assert about["problem"] == layer and about["device"]["arch"] == arch
    for program in about["programs"]:
        nvcc(folder, "-cubin", f"-arch={program['arch']}", "-o", "again.cubin", f"{program['name']}.cu")
        assert all(used["local_bytes"] == 0 for used in program["kernels"].values())
    nvcc(folder, "-Xcompiler", CHECKED, "-o", "example", "example.c", str(FAKE))

    problem = Problem.parse(layer)
    x, w = (numbers(shape, problem.dtype) for shape in (problem.x_shape, problem.w_shape))
    bias = numbers((problem.k,), "") if problem.epilogue.bias else None
    z = numbers(problem.z_shape, "") if problem.epilogue.add else None
    y = numpy_conv(problem, x, w, bias, z)[0]
    y = numpy_requantised(problem, y, numbers((problem.k,), "")) if problem.requantised else y
    y = y.astype(numpy_dtype(problem.dtype_out))
    done = ran(folder, y)
    assert done.returncode == 0, done.stderr
    assert f"{layer}: right" in done.stdout
    lines = [line for line in done.stdout.splitlines() if not line.lstrip().startswith("map")]
    inputs = [(i, one) for i, one in enumerate(about["buffers"]) if one["name"] in INPUTS]
    assert lines[: len(inputs)] == [f"given buffer{i} {one['nbytes']}" for i, one in inputs]
    launches = lines[len(inputs) :]
    assert launches[: len(expected_launches(about))] == expected_launches(about)
    assert ("map 1 of buffer" in done.stdout) == any(one["tensor_map"] for one in about["launches"])

    y.reshape(-1)[0] += 100
    done = ran(folder, y)
    assert done.returncode == 1 and "WRONG" in done.stdout and "y[n=0 k=0 p=0 q=0]" in done.stderr


@needs_nvcc
def test_the_example_passes_an_image_as_a_tensor_map(tmp_path: Path) -> None:
    """To the launches that have one: type 1 is UINT16, swizzle 3 of 128 bytes, promotion 3 of 256 bytes."""
    pytest.importorskip("cuda.bindings.nvrtc")
    problem, device = Problem.parse("n2c64h14w12k64r3s3p1-f16-nhwc"), for_architecture("sm_90")
    config = Config.parse(HOPPER.replace("pieces=1", "pieces=0"))  # which threads copy
    plain = bundle(problem, device, config, "given", lambda plan: compile_cuda(plan, "sm_90"))
    assert b"tw_tensor_map" not in files(plain)["layer.h"]
    (launch,) = plain.run
    image = Im2colMap(2, 64, 12, 14, 2, (-1, -1), (-1, -1), (1, 1), 64, 128)
    last = replace(image, lower=(-2, 0), upper=(0, -2), stride=(2, 1), box_channels=16, box_pixels=24)
    planes = TiledMap(2, 48, 36, 14, 3, 32, 64)
    images = (replace(launch, tensor_map=one) for one in (image, last, planes))
    mapped = replace(plain, run=(next(images), launch, *images))
    for name, data in files(mapped).items():
        (tmp_path / name).write_bytes(data)
    nvcc(tmp_path, "-Xcompiler", CHECKED, "-o", "example", "example.c", str(FAKE))
    done = ran(tmp_path, np.zeros(problem.y_shape, np.float16), parameters=len(launch.args))

    places = {buffer.name: f"buffer{number}" for number, buffer in enumerate(mapped.buffers)}
    size = "type 1, size 64 12 14 2, pitch 128 1536 21504"
    given = " ".join(places[name] for name in launch.args[1:])
    geometry = f"grid {launch.grid[0]} 1 1, block {launch.block[0]} 1 1, stream 0"
    plainly = expected_launches({**mapped.document(), "pack": None})[0]
    assert done.stdout.splitlines()[5:15] == [  # after the inputs and the filter's packing
        f"map 1 of {places['x']}: {size}, box -1 -1 to -1 -1, step 1 1 1 1, copies 64 128, modes 0 3 3 0",
        *(plainly, f"  map1 {given}, {geometry}", plainly),
        f"map 2 of {places['x']}: {size}, box -2 0 to 0 -2, step 1 2 1 1, copies 16 24, modes 0 1 3 0",
        *(plainly, f"  map2 {given}, {geometry}"),
        f"map 3 of {places['x']}: type 1, size 48 36 14 3, pitch 1344 96 48384, copies 32 64 1 1, "
        "step 1 1 1 1, modes 0 2 3 0",
        *(plainly, f"  map3 {given}, {geometry}"),
    ]


def test_opencl_has_no_constant_memory_to_fill() -> None:
    """The kernel takes the filter as an argument in constant memory."""
    problem, device = Problem.parse("n2c1h14w14k4r5s5-f32"), for_architecture("sm_90")
    built = Built("", b"", {}, 0.0)
    for backend, launches in (("cuda", ["constant", "small"]), ("opencl", ["small"])):
        here = replace(device, backend=backend)
        found = bundle(problem, here, Config.parse(SMALL), "given", lambda _: built)
        assert [one.kernel for one in found.run] == launches
        assert found.run[0].args[0 if backend == "cuda" else 1] == "packed"


def ran(folder: Path, y: Any, parameters: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the example against the fake driver, which gives it y and as much constant memory as it packs."""
    (folder / "y.bin").write_bytes(y.tobytes())
    env = {**os.environ, "FAKE_Y": "y.bin", "FAKE_PARAMETERS": str(parameters)}
    buffers = json.loads((folder / "layer.json").read_text())["buffers"]
    env["FAKE_CONSTANT"] = str(next((one["nbytes"] for one in buffers if one["name"] == "packed"), 0))
    env["ASAN_OPTIONS"] = "detect_leaks=0"
    return subprocess.run(["./example"], cwd=folder, env=env, capture_output=True, text=True, timeout=60)


def expected_launches(about: dict[str, Any]) -> list[str]:
    """Return what the fake driver prints of packing and the first run."""
    pack = [{**about["pack"], "program": about["programs"][-1]["name"]}] if about["pack"] else []
    places = {buffer["name"]: number for number, buffer in enumerate(about["buffers"])}
    found, filled = [], set()
    for one in [*pack, *about["launches"]]:
        first = one["args"][0]
        if one["kernel"] == "zero":
            found.append(f"zero {about['buffers'][places[first]]['nbytes']}")
        elif one["kernel"] == "constant":
            size = about["buffers"][places[first]]["nbytes"]
            found.append(f"{one['program']}.cubin constant {size} of buffer{places[first]}")
            filled.add(one["program"])
        else:
            state = " filled" if one["program"] in filled else ""
            found.append(
                f"{one['program']}.cubin {one['kernel']} {one['grid'][0]} {one['block'][0]} "
                f"{one['shared_bytes']} {one['cluster']} {int(one['chained'])}{state}"
            )
    return found


@pytest.mark.parametrize("where", [("--arch", "sm_90"), ("--device", "cpu")], ids=["arch", "cpu"])
def test_a_family_may_be_named(where: tuple[str, str], cpu: Runtime, tmp_path: Path) -> None:
    """Both would take a minimal filtering algorithm without it."""
    pytest.importorskip("cuda.bindings.nvrtc")
    layer = "n1c64h56w56k64r3s3p1-f32"
    assert exported(tmp_path / "any", layer, *where)["config"]["family"].startswith("winograd")
    assert exported(tmp_path / "one", layer, *where, "--family", "direct")["config"]["family"] == "direct"


def test_no_program_of_an_earlier_export_is_left(cpu: Runtime, tmp_path: Path) -> None:
    (tmp_path / "mine.cl").write_text("")
    left = []
    for config in ("toy:shared-tile", "reference:v=1"):
        exported(tmp_path, "n1c20h9w9k24r3s3p1-f32", "--device", "cpu", "--config", config)
        left.append({file.name for file in tmp_path.glob("*.cl")})
    assert left[1] == {"mine.cl", "reference.cl"} and len(left[0] - left[1]) > 0


@pytest.mark.parametrize(
    "layer",
    [
        "n1c20h9w9k24r3s3p1-f32",
        "n1c20h9w9k24r3s3p1-f32-nhwc+bias+relu",
        "n1c16h12w12k16r5s5-f32+relu+maxpool2",
        "n1c300h1w1k40r1s1-f32+add",
    ],
)
def test_opencl_files_give_the_answer(layer: str, cpu: Runtime, tmp_path: Path) -> None:
    """Built and driven by pyopencl alone, from what layer.json says."""
    import pyopencl as cl

    about = exported(tmp_path / "out", layer, "--device", "cpu")
    problem = Problem.parse(layer)
    given = normal_inputs(problem, 0)
    devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    context = cl.Context([next(device for device in devices if device.type & cl.device_type.CPU)])
    queue = cl.CommandQueue(context)
    kernels = {}
    for program in about["programs"]:
        source = (tmp_path / "out" / f"{program['name']}.cl").read_text()
        built = cl.Program(context, source).build(options=["-cl-std=CL1.2"])
        kernels |= {kernel.function_name: kernel for kernel in built.all_kernels()}
    memory = {}
    for buffer in about["buffers"]:
        memory[buffer["name"]] = cl.Buffer(context, cl.mem_flags.READ_WRITE, buffer["nbytes"])
        cl.enqueue_fill_buffer(queue, memory[buffer["name"]], np.uint8(0), 0, buffer["nbytes"])
    bias, z = given.bias if problem.epilogue.bias else None, given.z
    for name, array in {"x": given.x, "w": given.w, "bias": bias, "z": z}.items():
        if array is not None:
            cl.enqueue_copy(queue, memory[name], np.ascontiguousarray(array))
    for launch in [*([about["pack"]] if about["pack"] else []), *about["launches"]]:
        if launch["kernel"] == "zero":
            continue
        kernel = kernels[launch["kernel"]]
        kernel.set_args(*(memory[name] for name in launch["args"]))
        total = [g * b for g, b in zip(launch["grid"], launch["block"], strict=True)]
        cl.enqueue_nd_range_kernel(queue, kernel, total, launch["block"])
    y = np.empty(problem.y_shape, np.float32)
    cl.enqueue_copy(queue, y, memory["y"])
    queue.finish()
    want = numpy_conv(problem, given.x, given.w, bias, z)[0]
    assert np.abs(y - want).max() < 1e-3


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "f8", "i8"])
def test_opencl_files_build_without_a_warning(dtype: str, cpu: Runtime, tmp_path: Path) -> None:
    """By all that the driver's compiler warns of unasked: OpenCL has no option for more."""
    import pyopencl as cl

    exported(tmp_path, f"n1c16h9w9k24r3s3p1-{dtype}-nhwc+bias+add+relu", "--device", "cpu")
    device = next(
        device for platform in cl.get_platforms() for device in platform.get_devices()
        if device.type & cl.device_type.CPU
    )  # fmt: skip
    for file in tmp_path.glob("*.cl"):
        unseen = f"// {tmp_path}\n{file.read_text()}"  # a cache has programs without what was said of them
        built = cl.Program(cl.Context([device]), unseen).build(options=["-cl-std=CL1.2"])
        log = built.get_build_info(device, cl.program_build_info.LOG)
        abi = "changes the ABI"  # of vectors wider than the core's, which inlined functions pass
        assert not [line for line in log.splitlines() if "warning" in line and abi not in line]


@pytest.mark.parametrize(
    ("layer", "config"),
    [
        ("n1c20h9w9k24r3s3p1-f32-nhwc+bias+relu", ""),
        ("n1c16h12w12k16r5s5-f32+add0.5+leaky0.1+maxpool2", ""),
        ("n1c64h12w12k64r3s3p1-f32", "winograd4"),  # a chain of launches
        ("n1c512h13w13k64r5s5p2-f32+alpha90+avgpool2", "winograd4"),  # off by more than rounding
        ("n1c8h9w9k4r3s3p1-i8+bias+add+maxpool3u2p1", ""),
        ("n1c8h9w9k4r3s3p1-i8+bias+relu+requant", ""),
        ("n1c3h6w6k5r1s1-f64", ""),
    ],
)
def test_the_opencl_example_works(layer: str, config: str, cpu: Runtime, tmp_path: Path) -> None:
    """Compiled by the C compiler at hand, on the driver that comes with pyopencl, else the machine's own."""
    folder = tmp_path / "out"
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here")
    tiny = "#include <CL/cl.h>\nint main(void) { return 0; }"
    probe = [compiler, "-x", "c", "-", "-lOpenCL", "-o", str(tmp_path / "tiny")]
    if subprocess.run(probe, input=tiny, capture_output=True, text=True).returncode:
        pytest.skip("no OpenCL headers and loader here")
    import pyopencl as cl

    if config:
        config = str(layer_plan(Request(Problem.parse(layer), families=(config,)), cpu).config)
    exported(folder, layer, "--device", "cpu", *(["--config", config] if config else []))
    command = [compiler, *CHECKED.split(",")[:3], "-o", "example", "example.c", "-lOpenCL", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    env = {**os.environ, "POCL_CACHE_DIR": str(tmp_path / "pocl")}
    if list((libraries := Path(cl.__file__).parent / ".libs").glob("*.icd")):
        env |= {"OCL_ICD_VENDORS": f"{libraries}/", "LD_LIBRARY_PATH": str(libraries)}
    done = subprocess.run(["./example"], cwd=folder, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert f"{layer}: right" in done.stdout

    header = (folder / "layer.h").read_text()
    (folder / "layer.h").write_text(header.replace("TW_PAD_TOP = ", "TW_PAD_TOP = 1 + "))
    assert subprocess.run(command, cwd=folder, timeout=100).returncode == 0
    done = subprocess.run(["./example"], cwd=folder, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "WRONG" in done.stdout and "y[n=0 k=0 p=0 q=" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["R12", "--arch", "sm_1", "--to", "{tmp}/x"], ["sm_1", "sm_90"]),
        (["R12", "--arch", "sm_90", "--device", "cpu", "--to", "{tmp}/x"], ["--arch", "--device"]),
        (["R12", "--arch", "sm_90", "--to", "{tmp}/no/such"], ["--to", "does not exist"]),
        (["R12", "--arch", "sm_90", "--to", "{tmp}/file"], ["--to", "is a file"]),
        (["R12", "--device", "numpy", "--to", "{tmp}/x"], ["NumPy"]),
        (["R12", "--arch", "sm_90", "--config", "direct:tk=1", "--to", "{tmp}/x"], ["must be given, too"]),
        (["n0c4h5w5k4r3s3p1", "--arch", "sm_90", "--to", "{tmp}/x"], ["a batch of 0 has nothing to export"]),
        (["R12", "--arch", "sm_90"], ["--to"]),
        (["R12", "--arch", "sm_90", "--to", ""], ["--to '': is empty", "give a folder, or . for"]),
    ],
)
def test_mistakes(
    arguments: list[str],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    assert main(["export", *(word.replace("{tmp}", str(tmp_path)) for word in arguments)]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("error: ") and len(shown.splitlines()) == 1
    assert all(word in shown for word in words)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_the_current_folder_is_named_by_a_dot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = SimpleNamespace(config="direct", note="")
    monkeypatch.setattr(export, "_for_architecture", lambda *_: found)
    monkeypatch.setattr("tilewright.export.files.files", lambda _: {"layer.h": b"text"})
    monkeypatch.chdir(tmp_path)
    assert main(["export", "R12", "--arch", "sm_90", "--to", "."]) == 0
    assert capsys.readouterr().out == "layer.h\n" and (tmp_path / "layer.h").read_bytes() == b"text"


def test_an_export_is_whole_although_nobody_reads_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unread(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    made = {"layer.h": b"text", "layer.json": b"{}", "example.c": b"int main"}
    monkeypatch.setattr(export, "_for_architecture", lambda *_: SimpleNamespace(config="direct", note=""))
    monkeypatch.setattr("tilewright.export.files.files", lambda _: made)
    with monkeypatch.context() as unread:
        unread.setattr("sys.stdout", Unread())
        assert main(["export", "R12", "--arch", "sm_90", "--to", str(tmp_path / "to")]) == 141
    assert {file.name: file.read_bytes() for file in (tmp_path / "to").iterdir()} == made


@pytest.mark.parametrize(
    ("broken", "found"),
    [("", "a"), ("a", "b"), ("ab", "does not compile: b"), ("none", "no kernel takes it")],
)
def test_the_first_likely_kernel_that_compiles_is_exported(
    broken: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(problem: Problem, device: object, config: str, note: str, compile: object) -> str:
        if config in broken:
            raise CompileError(f"does not compile: {config}")
        assert note == "the model's choice (not verified)"
        return config

    monkeypatch.setattr("tilewright.export.bundle.bundle", made)
    monkeypatch.setattr("tilewright.runtime.nvrtc.compiler", lambda: "nvrtc")
    why = Provenance(Basis.MODEL, verified=False)
    likely = [] if broken == "none" else [("a", why), ("b", why)]
    problem, asked = Problem.parse("n1c8h6k16r3p1"), lambda device, compiler: iter(likely)
    about: Any = SimpleNamespace(problem=problem, config=None, likely=asked)
    if len(found) == 1:
        assert export._for_architecture(about, "sm_90") == found
    else:
        with pytest.raises(CompileError, match=found):
            export._for_architecture(about, "sm_90")


def test_an_export_does_not_say_that_a_named_kernel_was_verified() -> None:
    """Whoever named it knows; who gets the files does not."""
    problem, named = Problem.parse("n1c4h5w5k4r3s3p1-f32"), Config.parse("reference:v=1")
    for config, said in ((named, "named by --config (not verified)"), (None, "named by --config")):
        about: Any = SimpleNamespace(problem=problem, config=config)
        assert export._note(about, Provenance(Basis.NAMED)) == said


def test_a_folder_that_cannot_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = SimpleNamespace(config="direct", note="")
    monkeypatch.setattr(export, "_for_architecture", lambda *_: found)
    monkeypatch.setattr(Path, "mkdir", refused)
    assert main(["export", "R12", "--arch", "sm_90", "--to", str(to := tmp_path / "x")]) == 2
    assert capsys.readouterr().err == f"error: --to {to}: No such file or directory\n"


def refused(path: Path, **how: bool) -> None:
    """Make no folder, as below /proc."""
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))


def test_a_header_leaves_what_is_no_plain_packing_to_the_pack_source(tmp_path: Path) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    layer = "n1c1024h32w32k1024r1s1-f32"
    for config, words in (
        (STRASSEN, "sums of its blocks (Strassen)"),
        (STRASSEN.replace("strassen2", "gemm"), "packed[g][t][c][r * S + s][i]"),
    ):
        exported(tmp_path / "out", layer, "--arch", "sm_90", "--config", config)
        assert words in (tmp_path / "out" / "layer.h").read_text()
