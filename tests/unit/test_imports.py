"""Imports point one way, and importing the package loads no GPU library and takes no time."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "tilewright"

# Rooms, from the bottom up: each may import from those before it. CONTRIBUTING.md says what is in them.
ROOMS = (
    *("errors", "record", "files", "fields", "dtypes", "hashed", "arithmetic", "problem", "device", "floor"),
    *("kernels", "search", "runtime", "measuring", "arrays", "plans", "store", "checking", "tuning"),
    *("dispatch", "arguments", "api", "export", "profiling", "peers", "bench", "studies", "report", "cli"),
    *("__main__", "__init__"),
)
# Their modules: each part may import from parts of a lower rank, and from its own. A module that is not named
# belongs to its package. A new kernel family needs no line here.
ORDER = (
    ("errors", "dtypes", "hashed", "arithmetic", "problem", "device", "floor", "record", "bench.rows"),
    (
        "problem.shapes",
        "fields",
        "files",
        "kernels.blueprint",
        "kernels.config",
        "kernels.family",
        "kernels.tensor_map",
        "kernels.tile",
        "kernels.source",
        "kernels.work",
        "plans.request",
        "plans.provenance",
        "plans.streams",
    ),
    ("kernels",),
    (
        "search.space",
        "search.proposals",
        "search.correction",
        "search.model_cpu",
        "tuning.budget",
        "checking.inputs",
    ),
    ("search.model", "tuning.events", "tuning.options", "search.trials_file"),
    ("search.experience",),
    ("search.strategies",),
    ("search.replay",),
    ("runtime",),
    ("plans.execution", "measuring"),
    ("plans.plan_cache", "plans.bound_run", "plans.lanes", "plans.packed", "arrays"),
    ("store.database", "store.exchange", "plans.binding"),
    ("store.shipped", "store.sources"),
    ("store.rows",),
    ("store",),
    ("tuning.channel", "checking.deviation", "checking.fence", "checking.room"),
    ("tuning.worker_pool",),
    ("tuning.protocol", "checking.host_reference", "checking.launcher"),
    ("checking.device_inputs", "checking.compare"),
    ("checking.verify",),
    ("tuning.trial",),
    ("tuning.child", "tuning.worker"),
    ("tuning.hints",),
    ("tuning.compile_ahead", "tuning.outcomes", "tuning.budget_clock"),
    ("tuning.finals",),
    ("tuning.tuner",),
    ("dispatch.choices", "plans.layer"),
    ("arguments", "dispatch.dispatch", "dispatch.once"),
    ("api", "export", "profiling"),
    ("peers",),
    ("bench.contest", "bench.race", "bench.environment"),
    ("bench",),
    ("studies",),
    ("report",),
    ("cli",),
    ("__main__", "__init__"),
)
HEAVY = ("cuda", "pyopencl", "torch", "cupy", "onnx", "onnxruntime", "cudnn", "matplotlib", "rich", "typer")


def _rank(module: str) -> int | None:
    """Return the place of a module, named without the package, in ORDER: the longest match counts."""
    best, rank = -1, None
    for place, names in enumerate(ORDER):
        for name in names:
            if (module == name or module.startswith(name + ".")) and len(name) > best:
                best, rank = len(name), place
    return rank


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


def test_every_module_has_its_place() -> None:
    """Else the next test would say nothing of it. Add a new one to ORDER."""
    empty = {"checking", "dispatch", "plans", "search", "tuning"}  # nothing but their modules is in them
    assert {name for name in _modules() if _rank(name) is None} <= empty
    named = {name for names in ORDER for name in names}
    assert {name for name in named if not _exists(f"tilewright.{name}")} == set()


def test_rooms_import_from_those_before_them() -> None:
    imported = [(module, other) for module, path in _modules().items() for other in sorted(_imports(path))]
    place = {room: number for number, room in enumerate(ROOMS)}
    rooms = {one: place[one.partition(".")[0]] for pair in imported for one in pair}
    assert not [f"{a} imports {b}" for a, b in imported if rooms[a] < rooms[b]]


def test_contributing_tells_of_the_rooms_in_this_order() -> None:
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    first = re.findall(r"^\| (`.*?) \|", text.partition("## The rooms")[2], re.MULTILINE)
    told = re.findall(r"`(\w+)(?:\.py|/)", " ".join(first))
    assert list(dict.fromkeys(room for room in told if room != "data")) == list(ROOMS[:-2])


def test_imports_point_one_way() -> None:
    wrong = []
    for module, path in _modules().items():
        rank = _rank(module)
        for other in sorted(_imports(path)):
            theirs = _rank(other)
            if rank is not None and theirs is not None and theirs > rank:
                wrong.append(f"{module} imports {other}")
    assert not wrong, "; ".join(wrong)


def test_what_specs_have_from_one_place_others_have_from_where_it_is() -> None:
    for module, path in _modules().items():
        found = re.search(r"kernels\.(family import .*\bConfig|tile import .*\bceil_div)\b", path.read_text())
        assert module.startswith("kernels") or not found, module


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
    rooms = {name.split(".")[1] for name in done.stdout.split() if name.startswith("tilewright.")}
    assert "report" in rooms and not rooms & {"kernels", "runtime", "store", "tuning", "dispatch", "peers"}


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
