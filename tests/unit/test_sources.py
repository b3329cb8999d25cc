"""What a family's answer hangs on is in its key, and what it does not hang on is not."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from every_family import taken

import tilewright
from tilewright.device import for_architecture
from tilewright.kernels import FAMILIES, source, untuned
from tilewright.problem import Problem
from tilewright.search.space import sample
from tilewright.store import sources
from tilewright.store.sources import source_key, source_keys

H100 = for_architecture("sm_90")
NAMES = [family.name for family in FAMILIES]
ALL = set(NAMES)
OF_DIRECT = {"direct", "winograd4", "winograd8"}  # two are of its modules
OF_STRASSEN = {"strassen", "strassen2"}
OF_GEMM = {"gemm", "im2col", "winograd4", "winograd8"} | OF_STRASSEN
# What changes, and whose answers hang on it: in CUDA, in OpenCL.
CHANGES: list[tuple[str, set[str], set[str]]] = [
    ("kernels/direct/direct.cu", OF_DIRECT, OF_DIRECT),
    ("kernels/direct/gpu_work.py", OF_DIRECT, OF_DIRECT),
    ("kernels/winograd/winograd.cu", {"winograd"}, {"winograd"}),
    ("kernels/gemm/gemm.cu", OF_GEMM, OF_GEMM),
    ("kernels/strassen/strassen.h", OF_STRASSEN, OF_STRASSEN),
    ("kernels/strassen/strassen_pack.cu", OF_STRASSEN, OF_STRASSEN),
    ("kernels/common/points.h", ALL, ALL),  # the packing of filters has them
    ("kernels/hopper/hopper_send.h", {"hopper"}, {"hopper"}),
    ("kernels/untuned/nhwc.cu", {"mma", "hopper"}, {"mma", "hopper"}),
    ("kernels/untuned/reference.cu", {"reference"}, {"reference"}),
    ("kernels/common/dialect.h", ALL, ALL),
    ("kernels/common/dialect_opencl.h", ALL, ALL),
    ("kernels/direct/direct_cpu_store.h", OF_DIRECT, OF_DIRECT),
    ("kernels/untuned/pack.cu", ALL, ALL),
    ("kernels/untuned/packing.py", ALL, ALL),
    ("kernels/source.py", ALL, ALL),
    ("device/architectures.py", ALL, ALL),
    ("problem/epilogue.py", ALL, ALL),
    ("problem/problem.py", ALL, ALL),
    ("device/device.py", ALL, ALL),
    ("problem/checks.py", ALL, ALL),
    ("plans/execution.py", ALL, ALL),
    ("runtime/opencl_vectors.py", set(), ALL),
    ("runtime/opencl.py", set(), ALL),
    ("runtime/opencl_driver.py", set(), ALL),
    ("runtime/nvrtc.py", ALL, set()),
    ("runtime/cuda.py", ALL, set()),
    ("runtime/tensor_map.py", ALL, set()),
    ("runtime/cuda_clock.py", set(), set()),  # takes times
    ("kernels/untuned/check.cu", set(), set()),
    ("kernels/untuned/flush.cu", set(), set()),
    ("kernels/untuned/tools.py", set(), set()),
    ("kernels/named.py", set(), set()),
    ("errors.py", set(), set()),
    ("store/store.py", set(), set()),
    ("search/model.py", set(), set()),
    ("cli/tune.py", set(), set()),
]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package's files, which the keys are made of."""
    copy = tmp_path / "tilewright"
    home = Path(tilewright.__file__).parent
    shutil.copytree(home, copy, ignore=shutil.ignore_patterns("data", "__pycache__"))
    monkeypatch.setattr(sources, "_PACKAGE", copy)
    monkeypatch.setattr(source, "_FOLDER", copy / "kernels")
    _forget()
    yield copy
    _forget()


def _forget() -> None:
    for cached in (source_key, sources._imports, source._body, source.kernel_files):
        cached.cache_clear()


def _keys(backend: str) -> dict[str, str]:
    source_key.cache_clear()  # imports are as they were
    source._body.cache_clear()
    return source_keys(NAMES, backend, "c")


def test_source_key_holds_family_backend_and_compiler() -> None:
    assert source_key("direct", "cuda", "a") == source_keys(["direct"], "cuda", "a")["direct"]
    asked = [("direct", "cuda", "a"), ("direct", "cuda", "b"), ("direct", "opencl", "a")]
    asked += [("gemm", "cuda", "a"), ("unknown", "cuda", "a"), ("none", "cuda", "a")]
    assert len({source_key(*one) for one in asked}) == len(asked)


def test_a_change_is_seen_by_those_whose_answers_hang_on_it_and_no_others(package: Path) -> None:
    before = {backend: _keys(backend) for backend in ("cuda", "opencl")}
    for name, *hang in CHANGES:
        path = package / name
        was = path.read_bytes()
        path.write_bytes(was + b"\n")
        for backend, expected in zip(before, hang, strict=True):
            now = _keys(backend)
            assert {one for one in NAMES if now[one] != before[backend][one]} == expected, (name, backend)
        path.write_bytes(was)
    assert _keys("cuda") == before["cuda"]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_makes_a_blueprint_and_all_that_it_compiles_is_in_the_key(family: Any) -> None:
    texts = ["n1c64h14w14k64r3s3p1", "n1c64h14w14k64r1s1", "n1c256h1w1k64r1s1", "n1c64h14w14k64r3s3p1g64"]
    texts += ["n4c1h28w28k6r5s5", "n1c64h14w14k64r5s5p2", "n1c1024h32w32k1024r1s1"]
    kinds = ["-f32+bias+relu", "-f16-nhwc", "-accurate-nhwc", "-tf32", "-f8-nhwc", "-i8-nhwc+requant"]
    problems = taken(family, H100, [Problem.parse(text + kind) for text in texts for kind in kinds])
    if not problems:
        pytest.skip("it is not for this GPU")
    ran: set[str] = set()
    compiled: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        ran.add(str(frame.f_globals.get("__name__", "")))

    configs = [(p, sample(family, p, H100, random.Random(seed))) for p in problems for seed in range(3)]
    sys.setprofile(note)
    try:
        for problem, config in configs:
            for aligned in (True, False):
                blueprint = family.blueprint(problem, H100, config, aligned)
                programs = [*blueprint.programs, untuned.pack(problem, H100, blueprint)]
                compiled |= {program.source for program in programs}
    finally:
        sys.setprofile(None)
    ours = {name for name in ran if name.startswith("tilewright.")}
    specs = sources._specs(family.name)
    assert ours <= set(specs)
    assert compiled <= set(sources._kernels(specs))
    assert len(ours) > 2 and compiled


def test_what_is_named_as_launching_is_there() -> None:
    named = [*sources._COMPOSED_AND_BOUND, *(name for names in sources._LAUNCHED.values() for name in names)]
    assert all(sources._path(name) for name in (*named, sources._PACKING, sources._ONLY_SAYS))
