"""Kernel files keep to what CONTRIBUTING.md says of them; ruff looks at Python alone."""

from __future__ import annotations

from tilewright.kernels.source import kernel_files

COLUMNS = 120
# Lines of these are longer yet: to be mended, and then taken out here.
LONGER = {
    "halves.h", "hopper.cu", "hopper.h", "hopper_own.h", "hopper_send.h", "hopper_store.h", "hopper_tile.h",
    "im2col.cu", "mma_product.h", "mma_stage.h", "nhwc.cu", "wgmma.h",
}  # fmt: skip


def test_no_line_of_a_kernel_is_longer_than_120_columns() -> None:
    files = kernel_files()
    assert len(files) > 60 and files.keys() >= LONGER
    long = [
        f"{name}:{number}: {len(line)}"
        for name, path in sorted(files.items())
        if name not in LONGER
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > COLUMNS
    ]
    assert not long
