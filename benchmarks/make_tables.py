"""Make the README's tables anew from the committed results: ``python benchmarks/make_tables.py``."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tilewright.errors import TilewrightError  # noqa: E402
from tilewright.report.readme import update  # noqa: E402


def main() -> int:
    """Rewrite README.md in place; say what was done."""
    try:
        changed = update(ROOT / "README.md", ROOT / "benchmarks")
    except TilewrightError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("README.md: tables made anew" if changed else "README.md: tables are up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
