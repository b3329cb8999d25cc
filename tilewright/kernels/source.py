"""The text that a compiler gets: defines, then the dialect, then a kernel file and what it includes."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from pathlib import Path

from tilewright.errors import CompileError
from tilewright.kernels.blueprint import Blueprint

_FOLDER = Path(__file__).parent
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([a-z][a-z0-9_]*\.(?:h|cu))"[^\n]*$', re.MULTILINE)
_ANY_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b[^\n]*$", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LIMIT = 1 << 63
# What a compiler does not see, and texts, in which the same signs are no comment.
_UNSEEN = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/|^#line[^\n]*', re.DOTALL | re.MULTILINE)


@lru_cache(maxsize=1)
def kernel_files() -> dict[str, Path]:
    """Return the kernel files by name, which tells them apart whatever folder they are in."""
    return {path.name: path for kind in ("*.cu", "*.h") for path in _FOLDER.rglob(kind)}


def full_source(blueprint: Blueprint) -> str:
    """Return the complete text to compile: nothing is left for the compiler to include.

    ``blueprint.source`` is the name of a kernel file, in whatever folder here, or the text of a kernel if
    it has a line end. The dialect always comes first; every file is included at most once.

    Raises:
        CompileError: if a define is no name and integer, or an include names no kernel file.
    """
    return _defines(blueprint.defines) + _body(blueprint.source)


@lru_cache(maxsize=64)
def source_key(source: str) -> str:
    """Return the hash of a kernel file with all that it includes, but for comments and widths of blanks."""
    code = _UNSEEN.sub(lambda found: found[1] or " ", _body(source))
    lines = [" ".join(line.split()) for line in code.split("\n")]
    return hashlib.sha256("\n".join(filter(None, lines)).encode()).hexdigest()


def _defines(defines: tuple[tuple[str, int], ...]) -> str:
    lines = []
    for name, value in defines:
        good = _NAME.fullmatch(name) and isinstance(value, int) and -_LIMIT < value < _LIMIT
        if not good:
            raise CompileError(f"define {name!r}={value!r}: must be a name and an integer")
        lines.append(f"#define {name} {int(value)}\n")
    return "".join(lines)


@lru_cache(maxsize=64)
def _body(source: str) -> str:
    seen: set[str] = set()
    start = _file("dialect.h", seen)
    if "\n" in source:
        return start + _expand(source, "kernel text", seen)
    return start + _file(source, seen)


def _file(name: str, seen: set[str]) -> str:
    """Return a kernel file with its includes in place; empty if it was included before."""
    if name in seen:
        return ""
    seen.add(name)
    if name not in kernel_files():
        raise CompileError(f"kernel file {name!r}: no such file in tilewright/kernels")
    return _expand(kernel_files()[name].read_text(encoding="utf-8"), name, seen)


def _expand(text: str, name: str, seen: set[str]) -> str:
    out, end = [f'#line 1 "{name}"\n'], 0
    for match in _ANY_INCLUDE.finditer(text):
        included = _INCLUDE.fullmatch(match[0])
        if not included:
            raise CompileError(f"{name}: {match[0].strip()!r}: only kernel files can be included")
        line = text.count("\n", 0, match.end()) + 2
        out += [text[end : match.start()], _file(included[1], seen), f'\n#line {line} "{name}"']
        end = match.end()
    return "".join([*out, text[end:], "\n"])
