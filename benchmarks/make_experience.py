"""Make the trials that ship from the committed ones: ``python benchmarks/make_experience.py``.

Of each family and layer the fastest configs and some of the others (see ``tilewright/search/experience.py``).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tilewright.search import trials_file  # noqa: E402
from tilewright.search.experience import learn  # noqa: E402


def main() -> None:
    """Thin every ``benchmarks/*/trials.jsonl.gz``."""
    for path in sorted((ROOT / "benchmarks").glob("*/trials.jsonl.gz")):
        device, records = trials_file.read(path)
        kept = {(str(e.problem), config) for e in learn(device, records) for config, _ in e.times_us}
        some = [record for record in records if (record.problem, record.config) in kept]
        to = ROOT / "tilewright" / "data" / "experience" / f"{path.parent.name}.jsonl.gz"
        to.parent.mkdir(exist_ok=True)
        print(f"{to.relative_to(ROOT)}: {trials_file.write(to, device, some)} of {len(records)} trials")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.split("\n")[0]).parse_args()
    main()
