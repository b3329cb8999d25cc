"""Launches with a tensor map: what the driver is asked to encode, and what the kernel is given.

The bindings are the real ones, in a process of their own; the driver below them is fake_libcuda.c.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.errors import RunError
from tilewright.kernels.family import Launch
from tilewright.kernels.tensor_map import Im2colMap, TiledMap
from tilewright.runtime.base import Loaded, Memory
from tilewright.runtime.cuda import CudaRuntime

HERE = Path(__file__).parent
NVCC = shutil.which("nvcc")
pytestmark = pytest.mark.skipif(NVCC is None, reason="no nvcc here: the driver's header comes with it")

STRIDE1 = Im2colMap(2, 64, 14, 12, 3, (-1, -1), (-1, -1), (1, 1), 64, 128)  # 3x3, pad 1, f16
STRIDE2 = Im2colMap(1, 96, 15, 13, 2, (-2, -1), (0, -1), (2, 1), 32, 40)  # pad 1 and 2, i8
WIDE = replace(STRIDE1, size=4, channels=32, box_channels=16)  # tf32
PLANES = TiledMap(2, 48, 36, 14, 3, 32, 64)  # f16, nchw: 36 channels of 14 x 48 pixels
LAUNCH = Launch("hopper", (6, 2, 1), (384, 1, 1), ("x", "w", "y"), 90_000, 2, True, STRIDE1)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fake driver as a shared library; return its folder."""
    pytest.importorskip("cuda.bindings.driver")
    assert NVCC is not None
    folder = tmp_path_factory.mktemp("driver")
    command = [NVCC, "-shared", "-Xcompiler", "-fPIC", "-o", folder / "libcuda.so.1", HERE / "fake_libcuda.c"]
    subprocess.run(command, check=True, timeout=250)
    return folder


def printed(folder: Path, scenario: str, **given: str) -> list[str]:
    """Run a function of this file in a process that loads the fake driver; return what that printed."""
    env = os.environ | {"LD_LIBRARY_PATH": str(folder), "FAKE_PARAMETERS": "3"} | given
    code = f"import test_tensor_map; test_tensor_map.{scenario}()"
    env["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parents[1]), env.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def opened() -> tuple[CudaRuntime, Loaded]:
    """A runtime with the driver and nothing else of a GPU, and a loaded kernel."""
    from cuda.bindings import driver

    runtime: Any = object.__new__(CudaRuntime)
    runtime._driver, runtime._stream, runtime._chains = driver, 0, True
    runtime.context = SimpleNamespace(enter=lambda: None)
    runtime.device = SimpleNamespace(name="a pretended GPU", index=0)
    name = ctypes.create_string_buffer(b"layer.cubin hopper", 128)
    kernel = SimpleNamespace(handle=driver.CUkernel(ctypes.addressof(name)), name=name)
    return runtime, Loaded(None, {"hopper": kernel})


def memories(*addresses: int) -> list[Memory]:
    return [Memory(1 << 12, address, address) for address in addresses]


def maps() -> None:
    runtime, loaded = opened()
    for image in (STRIDE1, STRIDE2, WIDE, PLANES):
        runtime.launch(loaded, replace(LAUNCH, tensor_map=image), memories(0x7000, 0x8000, 0x9000))


def test_the_driver_is_asked_for_the_map_of_the_image(driver: Path) -> None:
    """Types: 0 UINT8, 1 UINT16, 2 UINT32. Modes: no interleave; swizzle 1 of 32 bytes, 3 of 128; L2 256 B."""
    assert [line for line in printed(driver, "maps") if line.startswith("map")] == [
        "map 1 of 0x7000: type 1, size 64 14 12 3, pitch 128 1792 21504, "
        "box -1 -1 to -1 -1, step 1 1 1 1, copies 64 128, modes 0 3 3 0",
        "map 2 of 0x7000: type 0, size 96 15 13 2, pitch 96 1440 18720, "
        "box -2 -1 to 0 -1, step 1 2 1 1, copies 32 40, modes 0 1 3 0",
        "map 3 of 0x7000: type 2, size 32 14 12 3, pitch 128 1792 21504, "
        "box -1 -1 to -1 -1, step 1 1 1 1, copies 16 128, modes 0 2 3 0",
        "map 4 of 0x7000: type 1, size 48 36 14 3, pitch 1344 96 48384, "
        "copies 32 64 1 1, step 1 1 1 1, modes 0 2 3 0",
    ]


def launches() -> None:
    runtime, loaded = opened()
    for address in (0x7000, 0x7000, 0xA000, 0x7000):
        runtime.launch(loaded, LAUNCH, memories(address, 0x8000, 0x9000))
    runtime.launch(loaded, LAUNCH, memories(0x7000, 0x8000, 0xB000), stream=77)
    alone = replace(LAUNCH, cluster=1, chained=False, grid=(5, 3, 2), block=(64, 2, 1), shared_bytes=0)
    runtime.launch(loaded, alone, memories(0x7000, 0x8000, 0x9000))
    runtime._chains = False
    runtime.launch(loaded, replace(LAUNCH, cluster=4, grid=(8, 1, 1)), memories(0x7000, 0x8000, 0x9000))


def test_the_kernel_is_given_the_map_and_the_other_pointers(driver: Path) -> None:
    """The fake refuses a map that is not at a multiple of 64; a map is encoded once for an address."""
    found = [line for line in printed(driver, "launches") if not line.startswith("map")]
    chained, pair = "layer.cubin hopper 6 384 90000 2 1", ", grid 6 2 1, block 384 1 1"
    assert found == [
        *(chained, f"  map1 0x8000 0x9000{pair}, stream 0"),
        *(chained, f"  map1 0x8000 0x9000{pair}, stream 0"),
        *(chained, f"  map2 0x8000 0x9000{pair}, stream 0"),
        *(chained, f"  map1 0x8000 0x9000{pair}, stream 0"),
        *(chained, f"  map1 0x8000 0xb000{pair}, stream 77"),
        *("layer.cubin hopper 5 64 0 1 0", "  map3 0x8000 0x9000, grid 5 3 2, block 64 2 1, stream 0"),
        *("layer.cubin hopper 8 384 90000 4 0", "  map4 0x8000 0x9000, grid 8 1 1, block 384 1 1, stream 0"),
    ]


def refused() -> None:
    runtime, loaded = opened()
    try:
        runtime.launch(loaded, LAUNCH, memories(0x7008, 0x8000, 0x9000))
    except RunError as error:
        print(error)


def test_a_refusal_names_the_device_and_the_kernel(driver: Path) -> None:
    assert printed(driver, "refused") == ["a pretended GPU: hopper: CUDA: CUDA_ERROR_INVALID_VALUE"]


def test_a_driver_without_tensor_maps_is_named(driver: Path) -> None:
    (said,) = printed(driver, "refused", FAKE_MISSING="cuTensorMapEncodeIm2col")
    assert said == "a pretended GPU: hopper: CUDA: the driver knows no tensor maps; it is older than CUDA 12"
