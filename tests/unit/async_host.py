"""Kernels of sm_90a on the host, for tests of their protocol: ``async_host.h`` is a cluster of blocks."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest

from tilewright.device import for_architecture
from tilewright.kernels import family_of
from tilewright.kernels.blueprint import Blueprint
from tilewright.kernels.config import Config
from tilewright.kernels.source import kernel_files
from tilewright.problem import Problem

HERE = Path(__file__).parent
COMPILE = ("g++", "-std=c++17", "-O1", "-w")
# Threads of some warps meet by an instruction of their own.
MEET = (r'asm volatile\("bar\.sync (\d+), %0;" ::"n"\((.*?)\) : "memory"\)', r"meet(\1, \2, true)")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the cluster, compiled: to do so took two thirds of each program's time."""
    if shutil.which(COMPILE[0]) is None:
        pytest.skip("no C++ compiler here")
    return _compiled(tmp_path_factory.getbasetemp() / "async_host")


@lru_cache(maxsize=1)  # each module that imports the fixture has one of its own
def _compiled(folder: Path) -> Path:
    folder.mkdir()
    for name in ("async_host.h", "async_host.cpp"):
        shutil.copy(HERE / name, folder)
    for made in ("-xc++-header async_host.h -o async_host.h.gch", "-c async_host.cpp"):
        subprocess.run([*COMPILE, *made.split()], cwd=folder, check=True)
    return folder


def defines(found: Blueprint) -> str:
    """Return the defines of the main kernel, and how many blocks it and a cluster of it have."""
    main = next(one for one in found.launches if f"{one.kernel}.cu" == found.source)
    values = dict(CLUSTER=main.cluster) | dict(found.defines) | dict(GRID=main.grid[0])
    return "".join(f"#define {name} {value}\n" for name, value in values.items())


def without_instructions(text: str, instructions: tuple[tuple[str, str], ...]) -> str:
    """Return a kernel with calls in place of its instructions, each of which it has."""
    for pattern, becomes in instructions:
        text, count = re.subn(pattern, becomes, text, flags=re.S | re.M)
        assert count, pattern
    assert "asm" not in text
    return text


def host_source(
    name: str, base: dict[str, int], instructions: tuple[tuple[str, str], ...], text: str,
    change: dict[str, int], aligned: bool = True, slip: tuple[str, str] = ("", ""),
) -> str:  # fmt: skip
    """Return a kernel on top of ``numbers_host.h``, with what the host needs around it.

    Args:
        name: its family.
        base: a config, but for ``change``.
        instructions: what has their place (``without_instructions``).
        text: the layer.
        change: of the config.
        aligned: whether x and y begin at 16 bytes.
        slip: a line of the kernel, and what a slip of the pen makes of it.
    """
    problem, config, device = Problem.parse(text), Config.make(name, base | change), for_architecture("sm_90")
    family_of(name).check(problem, device, config)
    found = family_of(name).blueprint(problem, device, config, aligned)
    files = (f"{name}_store.h", f"{name}_wgmma.h", f"{name}.cu")
    store, products, kernel = (kernel_files()[file].read_text() for file in files)
    own = "\n".join((store, products, kernel[kernel.index("BOUNDED_KERNEL") :]))
    own = without_instructions(own, instructions)
    assert not slip[0] or own.count(slip[0]) == 1
    own = own.replace(*slip) if slip[0] else own
    own = re.sub(r'#include "(products|wgmma_words|image_map)\.h"', "", own)
    around = (f'#include "{name}_host.h"', own, f'#include "{name}_host_main.h"')
    return "\n".join((defines(found), "#define __CUDACC__", *around))


def run(source: str, seeds: int, library: Path, folder: Path) -> str:
    """Run a kernel on the host; say "done", or what is wrong."""
    program = folder / "protocol"
    program.with_suffix(".cpp").write_text(source)
    folders = sorted({path.parent for path in kernel_files().values()} | {HERE})
    included = ["-include", library / "async_host.h", *(f"-I{one}" for one in folders)]
    made = [program.with_suffix(".cpp"), library / "async_host.o", "-o", program]
    done = subprocess.run([*COMPILE, *included, *made], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return subprocess.run([program, str(seeds)], capture_output=True, text=True, timeout=100).stdout.strip()
