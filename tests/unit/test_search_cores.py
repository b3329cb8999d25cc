"""The search thinks on one core, and leaves the others as they were."""

from __future__ import annotations

import _ctypes
import os
import shutil
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from search_samples import DEVICE, LAYER, PARAMS, point, ranked
from threadpoolctl import threadpool_info, threadpool_limits

from tilewright.kernels.direct.spec import Direct
from tilewright.kernels.family import Config
from tilewright.search import correction, ranking
from tilewright.search.experience import Bias, Lesson
from tilewright.search.space import Space


def test_the_search_thinks_on_one_core() -> None:
    """Beside compilers that keep all cores busy, threads of linear algebra wait for each other in turns."""
    within: list[int] = []

    def estimate(config: Config) -> float:
        within.extend(blas_threads())
        return 100.0

    with several_blas_threads():
        correction.choose(PARAMS, [point(2), point(64)], estimate, {point(1): 90.0}, [], 90.0, 2)
        assert within and set(within) == {1}
        assert set(blas_threads()) == {2}


SIDE_BY_SIDE = """
import threading
import numpy  # whose linear algebra it is
from threadpoolctl import threadpool_info, threadpool_limits
from tilewright.search.correction import on_one_core

def threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

def first():
    with on_one_core():
        entered.set()
        leave.wait(10)
    done.wait(10)  # it lives on, with whatever it holds

def second():
    with on_one_core():
        print(threads())

entered, leave, done = (threading.Event() for _ in range(3))
print(threads())
one, other = threading.Thread(target=first), threading.Thread(target=second)
one.start()
entered.wait(10)
other.start()
leave.set()
other.join()
print(threads())
done.set()
"""


def test_searches_side_by_side_give_the_cores_back() -> None:
    """Whoever comes second waits until the first is done, and what the first limits is free again then."""
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    command = [sys.executable, "-c", SIDE_BY_SIDE]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    before, within, after = said.splitlines()
    if before != "[2]":
        pytest.skip(f"no BLAS whose threads can be set: {before}")
    assert (within, after) == ("[1]", "[2]")


BADLY_NAMED = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
from tilewright.search.correction import on_one_core
with on_one_core():
    print("searches")
"""


@pytest.mark.parametrize(
    ("name", "environment"),
    [
        (b"j\xe9r", {}),
        (b"j\xc3\xa9r", {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}),
    ],
)  # fmt: skip
def test_a_loaded_file_whose_name_cannot_be_read_stops_no_search(
    name: bytes, environment: dict[str, str], tmp_path: Path
) -> None:
    """PoCL loads kernels from the cache folder, whose name threadpoolctl could not read: the name is not
    UTF-8, or the locale is not.
    """
    folder = os.fsencode(tmp_path) + b"/" + name
    try:
        os.mkdir(folder)
    except OSError:
        pytest.skip("a file system of UTF-8 alone")
    library = os.fsdecode(shutil.copy(os.fsencode(_ctypes.__file__), folder))
    command = [sys.executable, "-c", BADLY_NAMED, library]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.stdout == "searches\n", done.stderr


def test_what_other_layers_taught_is_worked_out_on_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    config, within, solve = ranked()[0][0], list[int](), np.linalg.solve
    lesson = Lesson(DEVICE, replace(LAYER, c=32), "direct", ((str(config), 10.0),))
    monkeypatch.setattr(np.linalg, "solve", lambda *given: within.extend(blas_threads()) or solve(*given))
    with several_blas_threads():
        assert len(Bias(Direct(), LAYER, DEVICE, [lesson]).expected_us([config])) == 1
        assert within and set(within) == {1}
        assert set(blas_threads()) == {2}


def blas_threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@contextmanager
def several_blas_threads() -> Iterator[None]:
    """As on a machine of several cores."""
    with threadpool_limits(2, "blas"):
        if set(blas_threads()) != {2}:
            pytest.skip("no BLAS whose threads can be set")
        yield


def test_a_search_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its space remembers is tens of megabytes for each layer that is not tuned."""
    spaces: list[weakref.ref[Space]] = []

    class Noted(Space):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            spaces.append(weakref.ref(self))

    monkeypatch.setattr(ranking, "Space", Noted)
    assert ranking.rank(LAYER, DEVICE, Direct(), 10)
    assert len(spaces) == 1 and spaces[0]() is None
