"""Make the tables of README.md and docs/ from committed results: ``python benchmarks/make_tables.py``.

And the picture of docs/results.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from document_tables import documents, update  # noqa: E402

from tilewright.errors import TilewrightError  # noqa: E402
from tilewright.report.plot_study import draw_study  # noqa: E402
from tilewright.studies.document import load  # noqa: E402

LADDER = ROOT / "benchmarks" / "h100" / "studies" / "toy-cnn.json"


def main() -> int:
    """Rewrite the documents in place; say what was done."""
    try:
        changed = update(documents(ROOT), ROOT / "benchmarks")
        draw_study(load(LADDER), LADDER.with_suffix(".svg"))
    except TilewrightError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("tables made anew" if changed else "tables are up to date")
    return 0


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    sys.exit(main())
