"""Kernel files keep to what CONTRIBUTING.md says of them; ruff looks at Python alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.kernels.source import kernel_files

COLUMNS = 120
EXAMPLE = Path(__file__).parents[2] / "examples" / "family.cu"


def test_no_line_of_a_kernel_is_longer_than_120_columns() -> None:
    files = {**kernel_files(), EXAMPLE.name: EXAMPLE}
    assert len(files) > 60
    long = [
        f"{name}:{number}: {len(line)}"
        for name, path in sorted(files.items())
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert not long


@pytest.mark.parametrize("name", ("tile.h", "stage.h", "loop.h"))
def test_a_header_says_what_it_needs_to_have_been_defined(name: str) -> None:
    """Names in capitals that no common header defines; what tile.h needs, stage.h may use."""
    files = kernel_files()
    common = [name for name, path in files.items() if path.parent.name == "common"]
    texts = {name: files[name].read_text(encoding="utf-8") for name in common}
    known = {define for text in texts.values() for define in re.findall(r"#\s*define\s+(\w+)", text)}
    code = re.sub(r"//[^\n]*", "", texts[name])
    used = set(re.findall(r"\b[A-Z][A-Z0-9_]*\b", code)) - known
    said = set[str]()
    for header in {"tile.h", name} if name == "stage.h" else {name}:
        comment = texts[header].partition("// needs")[2].partition("\n\n")[0]
        said |= set(re.findall(r"\b[A-Z][A-Z0-9_]*\b", comment))
    assert used and used <= said
