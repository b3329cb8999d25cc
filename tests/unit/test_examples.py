"""Every example runs, in a process of its own, and says that its answers are right."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.errors import DeviceError
from tilewright.runtime import open_runtime

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("name", ["pytorch_layer.py", "pytorch_network.py", "pytorch_swap.py"])
def test_without_pytorch_its_examples_say_so_in_a_line(name: str) -> None:
    code = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    command = [sys.executable, "-c", code, str(ROOT / "examples" / name)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("this example needs PyTorch") and done.stderr.count("\n") == 1
    assert "pip install -e '.[torch]'" in done.stderr, "without -e a copy takes the place of this folder"


def ran(script: Path, cache: Path) -> str:
    """What a script prints, in a process and a cache of its own; skipped where it lacks something."""
    code = script.read_text(encoding="utf-8")
    if "import torch" in code:
        pytest.importorskip("torch")
    if any(opens in code for opens in ("tw.tune", "open_runtime")):
        try:
            open_runtime("opencl")
        except DeviceError as error:
            pytest.skip(str(error))
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "TILEWRIGHT_CACHE": str(cache), "PYTHONPATH": paths}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example: Path, tmp_path: Path) -> None:
    printed = ran(example, tmp_path / "cache")
    assert printed and "False" not in printed


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    """As it stands there, but for a budget that tests have time for."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.M)
    code = code.replace('budget="20s"', 'budget="1trials"')
    shown = "print(y.shape, plan.note or 'tuned', np.allclose(y, tw.conv2d(x, w, padding=1), atol=1e-3))"
    (tmp_path / "readme.py").write_text(code + shown, encoding="utf-8")
    assert ran(tmp_path / "readme.py", tmp_path / "cache") == "(1, 64, 56, 56) tuned True\n"
