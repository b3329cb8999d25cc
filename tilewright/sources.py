"""What a family's answer hangs on, as a hash: a winner of another source must be verified anew."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from importlib import resources

from tilewright.exchange import SCHEMA
from tilewright.kernels.source import source_key as kernel_key

_IMPORT = re.compile(r"^from tilewright\.kernels(?:\.(\w+))? import (?:\(([^)]*)\)|([\w, ]+))", re.MULTILINE)

_NAMED = re.compile(r'"(\w+\.cu)"')  # a kernel that a spec launches besides its own


@lru_cache(maxsize=64)
def source_key(family: str, compiler: str = "") -> str:
    """Hash what a family's answer hangs on: schema, its specs and kernels with includes, compiler."""
    total = hashlib.sha256(f"{SCHEMA}\0{compiler}".encode())
    files = {item.name: item for item in resources.files("tilewright.kernels").iterdir()}
    own = re.compile(rf"{re.escape(family)}(_\w+)?\.(py|cu|h)")
    todo = [name for name in sorted(files) if own.fullmatch(name) or name == "pack.cu"]
    for name in todo:  # grows by what the specs import
        data = files[name].read_bytes()
        total.update(f"\0{name}\0{len(data)}\0".encode() + data)
        if name.endswith(".cu"):
            total.update(kernel_key(name).encode())
        if name.endswith(".py"):
            text = data.decode()
            imported = " ".join(" ".join(match) for match in _IMPORT.findall(text))
            wanted = {f"{word}.py" for word in re.findall(r"\w+", imported)} | set(_NAMED.findall(text))
            todo += sorted(word for word in wanted if word in files and word not in todo)
    return total.hexdigest()[:32]


def source_keys(families: Iterable[str], compiler: str = "") -> dict[str, str]:
    """Return ``source_key`` of each family by name; ``compiler`` is ``Runtime.compiler``."""
    return {name: source_key(name, compiler) for name in families}
