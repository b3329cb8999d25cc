"""Headers of the standard library, compiled once for all programs of a module: to read them takes a while."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path


def precompiled(header: Path, options: Sequence[str], folder: Path) -> Path:
    """Return a copy of a header to include first, in a program that is compiled with the same options.

    It is compiled where there is a C++ compiler.
    """
    copy = folder / header.name
    copy.write_text(header.read_text())
    if compiler := shutil.which("g++"):
        subprocess.run([compiler, *options, "-x", "c++-header", copy, "-o", f"{copy}.gch"], check=True)
    return copy
