"""The model's choices for a layer of which no winner is known, kept in the cache folder.

To rank a layer's configs takes a moment, and each process would do it again for each layer. What is kept goes
by all that decides it: our code, the device with its rates, the layer and its families.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence

from tilewright.device import Device
from tilewright.errors import ConfigError, StoreError
from tilewright.files import read_json
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.problem import Problem
from tilewright.runtime import cache, cache_folder
from tilewright.search.guesses import Guess, guesses
from tilewright.store.sources import fingerprint


def ranked_for(
    problem: Problem,
    device: Device,
    families: Sequence[Family],
    deterministic: bool = False,
    rank: Guess = guesses,
) -> list[Config]:
    """Return the model's choices over all families on a device, which need not be here.

    ``rank`` computes them where none are kept, of families that are ours.
    """
    code = fingerprint(families, device)
    if not code:
        return guesses(problem, device, families, deterministic)
    asked = repr((code, str(problem), [family.name for family in families], deterministic))
    key = hashlib.sha256(asked.encode()).hexdigest()
    found = _read(key)
    if found is None:
        found = rank(problem, device, families, deterministic)
        text = json.dumps({"key": key, "configs": [str(config) for config in found]})
        cache_folder.keep(cache.GUESSES, f"{key}.json", text.encode())  # who compiles them warns if need be
    return found


def _read(key: str) -> list[Config] | None:
    """Return what is kept; None if nothing is, or it cannot be read."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, ConfigError, StoreError):
        path = cache_folder.folder() / cache.GUESSES / f"{key}.json"
        document = read_json(path)
        if document["key"] == key:
            cache.used(path)
            return [Config.parse(text) for text in document["configs"]]
    return None
