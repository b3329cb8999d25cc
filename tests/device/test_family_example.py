"""The family that newcomers begin from (examples/family.py, family.cu) is right, and compiles everywhere."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from every_family import compiles_unspilt, holds_together
from here import agrees
from test_gpu_path import _configs
from test_gpu_path import runtime as gpu_facts

from tilewright.device import ARCHITECTURES, for_architecture
from tilewright.kernels.family import Family
from tilewright.plans.plan import Plan
from tilewright.plans.provenance import UNSAID
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

__all__ = ["gpu_facts"]  # a fixture

FILE = Path(__file__).parents[2] / "examples" / "family.py"
SHAPES = (
    "n2c7h13w11k17r3s3p1-{}",
    "n1c37h5w5k41r1s1-{}-nhwc2nchw+add+relu",  # pixels in one row
    "n2c12h15w9k18r5s3p2x1u2x1d1x2g2-{}-nhwc+bias+relu+maxpool2",
    "n1c8h6w40k8r3s3p1.0.0.2g8-{}-nchw2nhwc+avgpool2",
)


def _sketch() -> Family:
    spec = importlib.util.spec_from_file_location("example_family", FILE)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Family = module.Sketch()
    return found


SKETCH = _sketch()
CASES = [*SKETCH.examples, *(text.format(dtype) for text in SHAPES for dtype in SKETCH.precisions)]


def _check(problem: Problem, runtime: Runtime) -> None:
    for config in _configs(SKETCH, problem, runtime):
        SKETCH.check(problem, runtime.device, config)
        plan = Plan(runtime, problem, SKETCH, config, UNSAID)
        agrees(plan)
    agrees(plan, shift=8 if problem.dtype == "f64" else 4)


@pytest.mark.parametrize("text", CASES)
def test_on_a_cpu(text: str, runtime: Runtime) -> None:
    _check(Problem.parse(text), runtime)
    holds_together(SKETCH, Problem.parse(text), runtime.device)


@pytest.mark.parametrize("text", CASES)
def test_for_a_gpu(text: str, gpu_facts: Runtime) -> None:
    _check(Problem.parse(text), gpu_facts)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("text", SKETCH.examples)
def test_it_compiles_for_every_architecture(text: str, arch: str, kept_cache: None) -> None:
    holds_together(SKETCH, Problem.parse(text), for_architecture(arch))
    compiles_unspilt(SKETCH, Problem.parse(text), arch)


FOLLOW = """
from every_family import CASES
from here import agrees
from tilewright.kernels import family_of
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime import open_runtime
from tilewright.search.ranking import rank
runtime, texts = open_runtime("cpu"), [text for name, text in CASES if name == "x"]
for problem in map(Problem.parse, texts):
    (config, _), *_ = rank(problem, runtime.device, family_of("x"), 1)
    agrees(Plan.make(runtime, problem, config))
import test_chained, test_gpu_path, test_large
asked = test_large._huge(), [case[::-1] for case in test_chained._layers()], test_gpu_path.AWKWARD.args[1]
print(len(texts), *["x" in [name for _, name in cases] for cases in asked])
"""


def test_a_copy_of_it_is_a_family(tmp_path: Path, runtime: Runtime, own_cache: None) -> None:
    """As docs/new_family.md says, in a copy of the package: tests that list layers ask it, too."""
    root = FILE.parents[1]
    shutil.copytree(root / "tilewright", tmp_path / "tilewright", ignore=shutil.ignore_patterns("data"))
    kernels = tmp_path / "tilewright" / "kernels"
    spec = FILE.read_text(encoding="utf-8").partition("\n\ndef main()")[0]
    changes = {'name = "sketch"': 'name = "x"', ", source=KERNEL": "", '("sketch"': '("x"'}
    for old, new in (changes | {"    races = False  # it would never win\n": ""}).items():
        assert old in spec
        spec = spec.replace(old, new)
    (kernels / "x.py").write_text(spec)
    kernel = FILE.with_suffix(".cu").read_text(encoding="utf-8")
    (kernels / "x.cu").write_text(kernel.replace("KERNEL(sketch", "KERNEL(x"))
    listed = (kernels / "__init__.py").read_text(encoding="utf-8")
    listed = listed.replace("\n\nFAMILIES", "\nfrom tilewright.kernels.x import Sketch\n\nFAMILIES")
    (kernels / "__init__.py").write_text(listed.replace("(\n    Direct()", "(\n    Sketch(), Direct()"))
    tests = root / "tests"
    paths = os.pathsep.join(map(str, (tmp_path, tests, tests / "device", tests / "unit")))
    done = subprocess.run(
        [sys.executable, "-c", FOLLOW], cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths},
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{len(SKETCH.examples)} True True True"


def test_it_is_short() -> None:
    assert len(FILE.read_text(encoding="utf-8").splitlines()) < 170
    assert len(FILE.with_suffix(".cu").read_text(encoding="utf-8").splitlines()) < 60
