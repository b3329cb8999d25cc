"""The key of a record: a hash of its config's kernels. If it has changed, a winner is verified anew.

It covers all that decides an answer and its time, and nothing else:

- the blueprints for aligned and unaligned arrays and for packing the filter: defines, launches, buffers;
- the text of each of their kernels as the compiler gets it, and the compiler;
- whether they are said to give the same bits each time, since winners are chosen by that;
- the few modules that compile and launch a blueprint (``RUN``, ``RUN_ON``), without their docstrings.

Specs, problems and devices count only through their blueprints. Code that chooses configs, checks answers or
measures times does not count. Making the blueprints of a long history takes a while: if none of our code has
changed since a record was signed (``Versions.code``), its hash is unchanged.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from tilewright.device import Device
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family, legal_config
from tilewright.kernels.source import source_key
from tilewright.kernels.untuned import pack
from tilewright.problem import Problem
from tilewright.record import Record, Versions

# Modules that compile, bind and launch: on every backend, and on each that can be tuned.
RUN = ("kernels.blueprint", "kernels.source", "plans.plan", "runtime.base")
RUN_ON = {
    "cuda": ("kernels.tensor_map", "runtime.cuda", "runtime.nvrtc", "runtime.tensor_map"),
    "opencl": tuple(
        f"runtime.opencl{name}" for name in ("", "_builtins", "_driver", "_programs", "_vectors")
    ),
}
_PACKAGE = Path(__file__).parents[1]


class Sources:
    """The current kernels of some families on a device.

    Attributes:
        names: names of the families; a record of any other is not of these kernels.
    """

    def __init__(self, families: Iterable[Family], device: Device, compiler: str) -> None:
        """Compute nothing yet. ``compiler``: ``Runtime.compiler``."""
        self._families = {family.name: family for family in families}
        self._device, self._compiler = device, compiler
        self.names = tuple(self._families)

    def key(self, record: Record) -> str:
        """Return the hash of a record's config with the current kernels; empty if it is not legal here."""
        family = self._families.get(record.family)
        if family is None or record.device != self._device.key:
            return ""
        return _key(family, self._device, self._compiler, record.problem, record.config)

    def has(self, record: Record) -> bool:
        """Whether a record was made with exactly these kernels."""
        family = self._families.get(record.family)
        if record.source == "" or family is None or record.device != self._device.key:
            return False
        return self._unchanged(family, record.versions) or record.source == self.key(record)

    def _unchanged(self, family: Family, versions: Versions) -> bool:
        """Whether nothing that the hash depends on has changed; never for families that are not ours."""
        return versions.code != "" and versions.code == fingerprint((family,), self._device, self._compiler)

    def signed(self, record: Record) -> Record:
        """Return a record of a config that was just tried, with its hash."""
        versions = replace(record.versions, code=_all(self._device, self._compiler))
        return replace(record, source=self.key(record), versions=versions)


def fingerprint(families: Iterable[Family], device: Device, compiler: str = "") -> str:
    """Return a hash that changes whenever the outcome of the families' configs on a device may change.

    It covers all our code, so it also changes more often than that. It is empty if it cannot be computed: for
    families that are not ours, or if only bytecode is installed.
    """
    ours = all(type(family).__module__.startswith(f"{_PACKAGE.name}.") for family in families)
    return _all(device, compiler) if ours else ""


@lru_cache(maxsize=4096)
def _key(family: Family, device: Device, compiler: str, problem: str, config: str) -> str:
    layer = Problem.parse(problem)
    found = legal_config(config, (family,), layer, device)
    if found is None:
        return ""
    programs = _programs(family, layer, device, found)
    said = compiler, _running(device.backend), programs, family.deterministic(found)
    return hashlib.sha256(repr(said).encode()).hexdigest()[:32]


def _programs(family: Family, problem: Problem, device: Device, config: Config) -> list[object]:
    """Return all that is compiled for a config, each with the hash of its text."""
    made = [family.blueprint(problem, device, config, aligned) for aligned in (True, False)]
    if made[0].pack is not None:
        made.append(pack(problem, device, made[0]))
    programs = [replace(one, parts=(), packing="") for blueprint in made for one in blueprint.programs]
    return [(one, source_key(one.source)) for one in programs]


@lru_cache(maxsize=16)
def _all(device: Device, compiler: str) -> str:
    """Return a hash of all that decides a key, and more; empty if the sources are not installed."""
    text = _text()
    return hashlib.sha256(repr((text, device, compiler)).encode()).hexdigest()[:32] if text else ""


@lru_cache(maxsize=1)
def _text() -> str:
    """Return the hash of all modules, kernels and trials; empty where bytecode alone is installed."""
    found = hashlib.sha256()
    files = [path for pattern in ("*.py", "*.cu", "*.h", "*.gz") for path in sorted(_PACKAGE.rglob(pattern))]
    for path in filter(Path.is_file, files):  # an editor's lock may be a link to nothing
        found.update(f"\0{path.relative_to(_PACKAGE)}\0".encode() + path.read_bytes())
    return found.hexdigest() if _PACKAGE / "store" / "sources.py" in files else ""


@lru_cache(maxsize=8)
def _running(backend: str) -> str:
    """Return the hash of the modules that run a backend's blueprints, if their sources are installed."""
    named = (*RUN, *RUN_ON.get(backend, ()))
    files = [_PACKAGE.joinpath(*name.split(".")).with_suffix(".py") for name in named]
    code = [_code(file) for file in files if file.exists()]
    return hashlib.sha256("\0".join(code).encode()).hexdigest()


def _code(path: Path) -> str:
    """Return the text of a module without its docstrings; comments count, at the cost of a verification."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for first, last in _docstrings(ast.parse(text)):
        lines[first:last] = [""] * (last - first)
    return "\n".join(line for line in lines if line)


def _docstrings(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> Iterator[tuple[int, int]]:
    """Yield the line ranges of all docstrings, nested ones too."""
    if ast.get_docstring(node, clean=False) is not None:
        yield node.body[0].lineno - 1, node.body[0].end_lineno or 0
    for inner in node.body:
        if isinstance(inner, ast.ClassDef | ast.FunctionDef):
            yield from _docstrings(inner)
