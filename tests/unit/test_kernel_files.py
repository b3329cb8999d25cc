"""Kernel files keep to what CONTRIBUTING.md says of them; ruff looks at Python alone."""

from __future__ import annotations

from tilewright.kernels.source import kernel_files

COLUMNS = 120


def test_no_line_of_a_kernel_is_longer_than_120_columns() -> None:
    files = kernel_files()
    assert len(files) > 60
    long = [
        f"{name}:{number}: {len(line)}"
        for name, path in sorted(files.items())
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert not long
