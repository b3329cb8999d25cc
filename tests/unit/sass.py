"""What a kernel compiles to, for tests that count its instructions."""

from __future__ import annotations

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tilewright.kernels.family import Blueprint


def _text(blueprint: Blueprint, arch: str, folder: Path) -> str:
    """What cuobjdump says; skips the test where there is none."""
    from tilewright.runtime.nvrtc import compile_cuda

    tools = [*Path(sysconfig.get_paths()["purelib"]).glob("nvidia/*/bin/cuobjdump")]
    if not tools:
        pytest.skip("no cuobjdump")
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(compile_cuda(blueprint, arch, spills=True).binary)
    return subprocess.run([tools[0], "-sass", cubin], capture_output=True, text=True).stdout


def _placed(text: str) -> list[tuple[int, str]]:
    return [(int(place, 16), line) for place, line in re.findall(r"/\*([0-9a-f]{4,5})\*/\s+(.*?);", text)]


def listing(blueprint: Blueprint, arch: str, folder: Path) -> list[tuple[int, str]]:
    """Return each instruction with its place."""
    return _placed(_text(blueprint, arch, folder))


def listing_of(kernel: str, blueprint: Blueprint, arch: str, folder: Path) -> list[str]:
    """Return the instructions of one of its kernels."""
    parts = _text(blueprint, arch, folder).split("Function : ")
    return [line for _, line in _placed(next(part for part in parts if part.startswith(kernel)))]


def instructions(blueprint: Blueprint, arch: str, folder: Path) -> list[str]:
    """Return all instructions."""
    return [line for _, line in listing(blueprint, arch, folder)]


def main_loop(blueprint: Blueprint, arch: str, folder: Path, product: str) -> list[str]:
    """Return the loop with the most products."""
    at = listing(blueprint, arch, folder)
    back = [(int(m[1], 16), place) for place, line in at if (m := re.search(r"BRA.* 0x([0-9a-f]+)", line))]
    bodies = [[line for place, line in at if start <= place <= end] for start, end in back if start < end]
    return max(bodies, key=lambda lines: sum(product in line for line in lines))
