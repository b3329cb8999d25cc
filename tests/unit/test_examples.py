"""Every example runs, in a process of its own, and says that its answers are right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.errors import DeviceError
from tilewright.runtime import open_runtime

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_without_pytorch_its_example_says_so_in_a_line() -> None:
    code = "import runpy, sys; sys.modules['torch'] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    command = [sys.executable, "-c", code, str(ROOT / "examples" / "pytorch_layer.py")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("this example needs PyTorch") and done.stderr.count("\n") == 1


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example: Path, tmp_path: Path) -> None:
    if "import torch" in example.read_text():
        pytest.importorskip("torch")
    if any(opens in example.read_text() for opens in ("tw.tune", "open_runtime")):
        try:
            open_runtime("opencl")
        except DeviceError as error:
            pytest.skip(str(error))
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "TILEWRIGHT_CACHE": str(tmp_path / "cache"), "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, str(example)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout and "False" not in done.stdout
