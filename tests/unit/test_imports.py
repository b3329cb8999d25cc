"""Imports point one way, and importing the package loads no GPU library and takes no time."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "tilewright"

# From the bottom up: each may import from those before it. CONTRIBUTING.md says what is in them.
PACKAGES = (
    *("errors", "record", "files", "fields", "dtypes", "hashed", "arithmetic", "problem", "device", "floor"),
    *("kernels", "search", "runtime", "measuring", "arrays", "plans", "store", "hints", "checking", "tuning"),
    *("dispatch", "arguments", "api", "export", "profiling", "peers", "bench", "studies", "report", "cli"),
    *("__main__", "__init__"),
)
HEAVY = ("cuda", "pyopencl", "torch", "cupy", "onnx", "onnxruntime", "cudnn", "matplotlib", "rich", "typer")


def _imports(path: Path) -> set[str]:
    """Return the modules of the package that a file imports, within functions too, but not for types."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if _exists(name) else node.module for name in names}
    return {name.removeprefix("tilewright.") for name in found if name.startswith("tilewright.")}


def _exists(module: str) -> bool:
    """Whether a name of the package is a module of it."""
    path = PACKAGE.parent / module.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def _modules() -> dict[str, Path]:
    """Return every module, named without the package."""
    files = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts): path for path in PACKAGE.rglob("*.py")
    }
    return {name.removesuffix(".__init__"): path for name, path in sorted(files.items())}


def test_packages_import_from_those_before_them() -> None:
    imported = [(module, other) for module, path in _modules().items() for other in sorted(_imports(path))]
    place = {name: number for number, name in enumerate(PACKAGES)}
    packages = {one: place[one.partition(".")[0]] for pair in imported for one in pair}
    assert not [f"{a} imports {b}" for a, b in imported if packages[a] < packages[b]]


def test_contributing_lists_the_packages_in_this_order() -> None:
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    first = re.findall(r"^\| (`.*?) \|", text.partition("## The packages")[2], re.MULTILINE)
    told = re.findall(r"`(\w+)(?:\.py|/)", " ".join(first))
    assert list(dict.fromkeys(name for name in told if name != "data")) == list(PACKAGES[:-2])


def test_no_module_imports_itself_by_way_of_others() -> None:
    """Within a package too: a CycleError names the modules of the cycle."""
    graph = {module: _imports(path) - {module} for module, path in _modules().items()}
    order = list(TopologicalSorter(graph).static_order())
    assert order.index("errors") < order.index("tuning.tuner") < order.index("api") < order.index("cli")


def test_each_name_is_had_from_where_it_is() -> None:
    """Specs alone have what they need from one place: ``family`` and ``tile`` hand it on to them."""
    handed_on = {"kernels.family": "kernels.blueprint kernels.config", "kernels.tile": "arithmetic"}
    for module, path in _modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and not module.startswith("kernels"):
                homes = handed_on.get(str(node.module).removeprefix("tilewright."), "").split()
                theirs = {name for home in homes for name in vars(import_module(f"tilewright.{home}"))}
                assert not theirs & {alias.name for alias in node.names}, module


def test_model_and_search_see_no_backend_and_no_clock() -> None:
    for path in sorted((PACKAGE / "search").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert "import time" not in text and "tilewright.runtime" not in text, path.name


def test_import_is_quick_and_loads_no_gpu_library() -> None:
    code = (
        "import sys, time, json; start = time.perf_counter(); import tilewright; "
        "took = time.perf_counter() - start; "
        "print(json.dumps([took, sorted({name.partition('.')[0] for name in sys.modules})]))"
    )
    tries = []
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
        )
        took, modules = json.loads(done.stdout)
        assert not set(modules) & set(HEAVY)
        tries.append(took)
    assert min(tries) < 0.2


def test_reports_are_made_of_values_alone() -> None:
    """No peer, kernel or tuner is loaded for them."""
    code = "import sys, tilewright.report.gather; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True)
    loaded = {name.split(".")[1] for name in done.stdout.split() if name.startswith("tilewright.")}
    assert "report" in loaded and not loaded & {"kernels", "runtime", "store", "tuning", "dispatch", "peers"}


def test_threads_may_compile_first_at_once() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    code = """
import threading
from concurrent.futures import ThreadPoolExecutor
from tilewright.runtime.nvrtc import import_core
start = threading.Barrier(8)
with ThreadPoolExecutor(8) as pool:
    print(len({id(core) for core in pool.map(lambda _: (start.wait(), import_core())[1], range(8))}))
"""
    for _ in range(4):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        assert done.stdout.strip() == "1", done.stderr
