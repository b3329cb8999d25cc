"""The files of an exported kernel."""

from __future__ import annotations

import json
from pathlib import Path

from tilewright.export.bundle import Bundle
from tilewright.export.header import header

_HERE = Path(__file__).parent


def files(bundle: Bundle) -> dict[str, bytes]:
    """Return the contents of every file, by name."""
    found: dict[str, bytes] = {}
    for program in bundle.programs:
        about = f"// {bundle.problem} for {program.arch}: {bundle.config}; launches are in layer.h.\n"
        found[f"{program.name}.{'cu' if bundle.cuda else 'cl'}"] = (about + program.source).encode()
        if bundle.cuda:
            found[f"{program.name}.cubin"] = program.built.binary
    found["layer.h"] = header(bundle).encode()
    found["layer.json"] = (json.dumps(bundle.document(), indent=1) + "\n").encode()
    found["check.h"] = (_HERE / "check.h").read_bytes()
    found["example.c"] = (_HERE / f"example_{'cuda' if bundle.cuda else 'opencl'}.c").read_bytes()
    return found
