"""The hash of all source that a family's results depend on: a winner of another source is verified anew.

They depend on what is compiled and on what launches it:

- specs: the family's module, the packing of filters, and all that these import: defines, launches, buffers;
- kernels: each .cu file that a spec names, as the compiler gets it, with the dialect and what it includes;
- what composes the source and binds the buffers; of this backend alone, what has the compiler's options (in
  OpenCL also what comes before a kernel) and launches.

Files count to the byte, comments too: all that is lost is a second verification. What chooses configs, checks
answers or takes times does not count, unless a spec imports it (counts of work for the model).
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from tilewright.kernels.source import kernel_files
from tilewright.kernels.source import source_key as kernel_key
from tilewright.store.exchange import SCHEMA

_PACKAGE = Path(__file__).parents[1]
_PACKING = "tilewright.kernels.untuned.packing"
_ONLY_SAYS = "tilewright.errors"  # its words change no answer
_COMPOSED_AND_BOUND = ("tilewright.kernels.source", "tilewright.plans.execution")
_LAUNCHED = {
    "cuda": tuple(f"tilewright.runtime.{name}" for name in ("nvrtc", "cuda", "tensor_map")),
    "opencl": tuple(
        f"tilewright.runtime.opencl{name}" for name in ("", "_driver", "_builtins", "_vectors")
    ),
    "numpy": ("tilewright.runtime.host",),
}


@lru_cache(maxsize=256)
def source_key(family: str, backend: str, compiler: str = "") -> str:
    """Hash what a family's results depend on, on a backend (``Device.backend``) and for a compiler."""
    specs = _specs(family)
    modules = (*specs, *_COMPOSED_AND_BOUND, *_LAUNCHED.get(backend, ()))
    parts = [(name, path.read_bytes()) for name in modules if (path := _path(name))]
    parts += [(name, kernel_key(name).encode()) for name in _kernels(specs)]
    total = hashlib.sha256(f"{SCHEMA}\0{compiler}\0{family}".encode())
    for name, data in parts:
        total.update(f"\0{name}\0{len(data)}\0".encode() + data)
    return total.hexdigest()[:32]


def source_keys(families: Iterable[str], backend: str, compiler: str = "") -> dict[str, str]:
    """Return ``source_key`` of each family by name; ``compiler`` is ``Runtime.compiler``."""
    return {name: source_key(name, backend, compiler) for name in families}


def _specs(family: str) -> list[str]:
    """Return the modules of a family: its own, the packing of filters, and all that these import."""
    from tilewright.kernels import FAMILIES  # late, so that a store opens fast

    todo = [_PACKING, *(type(known).__module__ for known in FAMILIES if known.name == family)]
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name not in found and _path(name):
            found.add(name)
            todo += _imports(name)
    return sorted(found)


def _kernels(modules: Iterable[str]) -> list[str]:
    """Return the kernel files that modules name."""
    texts = [path.read_text(encoding="utf-8") for name in modules if (path := _path(name))]
    files = sorted(name for name in kernel_files() if name.endswith(".cu"))
    return [name for name in files if any(f'"{name}"' in text for text in texts)]


@lru_cache(maxsize=128)
def _imports(name: str) -> list[str]:
    """Return the modules of the package that a module imports, within functions too."""
    path, found = _path(name), []
    for node in _statements(ast.parse(path.read_bytes()).body) if path else ():
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [one if _path(one) else node.module for one in inner]
    return [one for one in found if one != _ONLY_SAYS and _path(one)]


def _statements(body: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yield statements and those within them; ``ast.walk`` takes seven times as long over expressions."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, part, ())
            yield from _statements(inner if isinstance(inner, list) else ())


def _path(name: str) -> Path | None:
    """Return the file of a module or package of ours; None for what is not ours, or is no module."""
    first, *rest = name.split(".")
    path = _PACKAGE.joinpath(*rest)
    if first != "tilewright":
        return None
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
