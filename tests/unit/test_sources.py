"""What decides an answer and its time is in a record's hash, and what does not is not."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from every_family import taken
from test_imports import _imports

import tilewright
from tilewright.device import Device, DeviceType, for_architecture
from tilewright.errors import DeviceError
from tilewright.kernels import FAMILIES, source
from tilewright.kernels.blueprint import Blueprint, Buffer
from tilewright.kernels.config import Config
from tilewright.kernels.direct.spec import Direct
from tilewright.kernels.family import Family, Rule
from tilewright.plans.bound_run import BoundRun
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.record import Record
from tilewright.runtime import open_runtime
from tilewright.search.space import sample
from tilewright.store import sources
from tilewright.store.record_json import from_json, to_json
from tilewright.store.sources import RUN, RUN_ON, Sources

H100 = for_architecture("sm_90")
CPU = replace(
    H100, backend="opencl", type=DeviceType.CPU, units=4, lanes=16, arch="x86_64-v16", max_cluster=1
)
HOME = Path(tilewright.__file__).parent
LAYER = Problem.parse("n1c64h14w14k64r3s3p1-f32")
INCLUDED = re.compile(r'#include "([^"]+)"')
ALL = {family.name for family in FAMILIES}
OF_GEMM = {"gemm", "im2col", "winograd4", "winograd8", "strassen", "strassen2"}
# What changes, and of which families the kernels that are made of it; others may be, too: ``_made_of``.
KERNELS: dict[str, set[str]] = {
    "kernels/direct/direct.cu": {"direct"},
    "kernels/winograd/winograd.cu": {"winograd"},
    "kernels/gemm/gemm.cu": OF_GEMM,
    "kernels/strassen/strassen.h": {"strassen", "strassen2"},
    "kernels/hopper/hopper_send.h": {"hopper"},
    "kernels/untuned/reference.cu": {"reference"},
    "kernels/common/dialect.h": ALL,
    "kernels/untuned/check.cu": set(),
    "kernels/untuned/flush.cu": set(),
}
# What modules that run a blueprint import, and what is not in the hash as they are: for it decides nothing.
DECIDES_NOTHING = {
    "errors": "words",
    "device": "facts: what they decide is in blueprints",
    "device.architectures": "the same; and from which GPUs on launches may overlap",
    "problem": "the same",
    "kernels": "which families there are: their blueprints count",
    "kernels.family": "specs: the same",
    "kernels.config": "the same",
    "kernels.untuned": "the packing of filters: the same",
    "plans.provenance": "words",
    "plans.streams": "whose workspace is whose",
    "hashed": "a hash that is kept",
    "runtime.cache": "binaries, kept as they are",
    "runtime.cache_folder": "where they are kept",
    "runtime.opencl_cache": "the same",
    "runtime.opencl_errors": "words",
    "runtime.opencl_facts": "facts",
    "runtime.cuda_facts": "facts, and errors",
    "runtime.cuda_context": "which device is current",
    "runtime.cuda_clock": "takes times",
    "runtime.flusher": "takes times",
    "runtime.rates": "what the model has",
    "runtime.capacity": "what has no room is refused",
    "runtime.forked": "what a fork must not touch is refused",
    "runtime.pending": "memory is kept until a run is over",
    "runtime.pools": "other libraries give memory back",
    "runtime.opencl_linker": "whether PoCL can link at all",
}


def record(family: Family, problem: Problem, device: Device, seed: int = 1) -> Record:
    config = Config.make(family.name, {p.name: p.values[0] for p in family.params(problem, device)})
    if family.tunable:
        config = sample(family, problem, device, random.Random(seed))
    return Record(str(problem), device.key, family.name, str(config), "correct", True)


def key(family: Family, problem: Problem = LAYER, device: Device = H100, compiler: str = "c") -> str:
    sources._key.cache_clear()
    return Sources([family], device, compiler).key(record(family, problem, device))


def keys() -> dict[str, str]:
    """Of each family the key of a layer that it takes."""
    return {family.name: key(family, taken(family, H100)[0]) for family in FAMILIES}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package's files, which keys are made of."""
    copy = tmp_path / "tilewright"
    shutil.copytree(HOME, copy, ignore=shutil.ignore_patterns("data", "__pycache__"))
    monkeypatch.setattr(sources, "_PACKAGE", copy)
    monkeypatch.setattr(source, "_FOLDER", copy / "kernels")
    _forget()
    yield copy
    _forget()


def _forget() -> None:
    kept = (sources._key, sources._running, sources._all, sources._text)
    for cached in (*kept, source.source_key, source._body, source.kernel_files):
        cached.cache_clear()


def _changed(before: dict[str, str]) -> set[str]:
    _forget()
    now = keys()
    return {name for name in now if now[name] != before[name]}


def test_a_key_is_of_the_layer_config_backend_and_compiler() -> None:
    direct = Direct()
    found = [key(direct), key(direct, compiler="another"), key(direct, device=CPU)]
    found += [key(direct, replace(LAYER, k=32)), key(direct, replace(LAYER, layout_in="nhwc"))]
    other = record(direct, LAYER, H100, seed=2)
    assert other.config != record(direct, LAYER, H100).config
    found += [Sources([direct], H100, "c").key(other)]
    assert all(found) and len(set(found)) == len(found)


def test_what_is_of_no_such_family_or_device_has_no_key() -> None:
    known = record(Direct(), LAYER, H100)
    assert Sources([], H100, "c").key(known) == Sources([Direct()], CPU, "c").key(known) == ""
    assert not Sources([], H100, "c").has(known), "an empty one is not like another empty one"


def test_each_process_finds_the_same_keys() -> None:
    """Whatever the order of its sets."""
    code = "import test_sources; print(test_sources.keys())"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
        )  # fmt: skip
        assert done.stdout.strip() == str(keys())


def test_a_kernel_counts_for_those_that_are_made_of_it_and_its_comments_do_not(package: Path) -> None:
    before = keys()
    for name, of_these in KERNELS.items():
        path, made_of_it = package / name, _made_of(Path(name).name)
        assert of_these <= made_of_it, name
        was = path.read_text()
        path.write_text("/* a comment\n   of two lines */\n" + was + "\n\n// the end\n")
        assert _changed(before) == set(), name
        path.write_text(was + "\nint more;\n")
        assert _changed(before) == made_of_it, name
        path.write_text(was)


def _made_of(name: str) -> set[str]:
    """The families that compile a kernel file, or one that includes it, for the layer of their key."""
    using, known = {name}, {file: path.read_text() for file, path in source.kernel_files().items()}
    while more := {file for file, text in known.items() if set(INCLUDED.findall(text)) & using} - using:
        using |= more
    if name == "dialect.h":
        return ALL  # it comes before every kernel
    return {family.name for family in FAMILIES if using & _compiled(family)}


def _compiled(family: Family) -> set[str]:
    problem = taken(family, H100)[0]
    config = Config.parse(record(family, problem, H100).config)
    made = [family.blueprint(problem, H100, config, aligned) for aligned in (True, False)]
    return {program.source for one in made for program in one.programs}


def test_signs_of_a_comment_within_a_text_are_none() -> None:
    one, other = (source.source_key(f'asm("{text}");\n') for text in ("a // b", "a // c"))
    assert one != other


@pytest.mark.parametrize("name", ["filter.h", "pack.cu"])
def test_how_the_filter_is_packed_counts(package: Path, name: str) -> None:
    before = keys()
    path = package / "kernels" / "untuned" / name
    path.write_text(path.read_text() + "\nint more;\n")
    packed = {f.name for f in FAMILIES if _packs(f, taken(f, H100)[0])}
    assert "reference" not in packed and len(packed) > 10
    assert packed <= _changed(before)


def _packs(family: Family, problem: Problem) -> bool:
    made = family.blueprint(problem, H100, Config.parse(record(family, problem, H100).config))
    return made.pack is not None and made.packer == "pack.cu"


@pytest.mark.parametrize(("backend", "device"), [("cuda", H100), ("opencl", CPU)])
def test_what_runs_a_blueprint_counts_for_its_backend_but_no_docstring(
    package: Path, backend: str, device: Device
) -> None:
    before = key(Direct(), device=device)
    others = ["plans.layer", "problem.problem", "kernels.direct.spec", "tuning.tuner", "search.model"]
    for module in [*others, *RUN, *RUN_ON["cuda"], *RUN_ON["opencl"]]:
        path = package.joinpath(*module.split(".")).with_suffix(".py")
        was = path.read_text()
        path.write_text(was.replace('"""', '"""Another text.\n\n', 1))
        _forget()
        assert key(Direct(), device=device) == before, module
        path.write_text(was + "\nMORE = 1\n")
        _forget()
        assert (key(Direct(), device=device) != before) == (module in (*RUN, *RUN_ON[backend])), module
        path.write_text(was)


def test_only_docstrings_are_left_out_of_a_module(tmp_path: Path) -> None:
    text = '''"""Of the module.

Two lines."""

TEXT = """
no docstring
"""


class One:
    """Of a class."""

    def two(self):
        """Of a function
        of two lines."""
        return """nor this"""
'''
    path = tmp_path / "one.py"
    path.write_text(text)
    lines = ['TEXT = """', "no docstring", '"""', "class One:", "    def two(self):"]
    assert sources._code(path).split("\n") == [*lines, '        return """nor this"""']


# What another blueprint says of the same config.
SAYS: dict[str, Callable[[Blueprint], Blueprint]] = {
    "a define": lambda plan: replace(plan, defines=(*plan.defines, ("MORE", 1))),
    "a grid": lambda plan: replace(plan, launches=(replace(plan.launches[0], grid=(1, 1, 7)),)),
    "shared memory": lambda plan: replace(plan, launches=(replace(plan.launches[0], shared_bytes=64),)),
    "an argument": lambda plan: replace(plan, launches=(replace(plan.launches[0], args=("x", "y")),)),
    "a buffer": lambda plan: replace(plan, workspace=(*plan.workspace, Buffer("more", 64, zeroed=True))),
    "the order of the filter": lambda plan: replace(plan, pack=(*(plan.pack or ()), ("PACK_ORDER", 2))),
    "its bytes": lambda plan: replace(plan, packed_bytes=plan.packed_bytes + 256),
    "a limit of registers": lambda plan: replace(plan, max_registers=40),
    "a part": lambda plan: replace(plan, parts=(Blueprint("nhwc.cu", (), (), 0),)),
    "sm_90a": lambda plan: replace(plan, specific=True),
}


class Other(Direct):
    """``direct`` with another blueprint, of some arrays."""

    says: Callable[[Blueprint], Blueprint]
    of: tuple[bool, ...] = (True, False)

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        made = super().blueprint(problem, device, config, aligned)
        return type(self).says(made) if aligned in self.of else made


@pytest.mark.parametrize("what", SAYS)
def test_whatever_a_blueprint_says_counts(what: str) -> None:
    assert key(type("One", (Other,), {"says": SAYS[what]})()) != key(Direct())


def test_what_runs_on_arrays_that_are_not_aligned_counts_too() -> None:
    assert key(type("One", (Other,), {"says": SAYS["a define"], "of": (False,)})()) != key(Direct())


def test_what_is_not_deterministic_after_all_has_another_key() -> None:
    """Requests for the same bits each time believe what a record says of itself."""
    assert key(type("One", (Direct,), {"deterministic": lambda self, config: False})()) != key(Direct())


def test_what_is_told_of_the_packing_decides_nothing() -> None:
    told = {"says": lambda plan: replace(plan, packing="otherwise")}
    assert key(type("One", (Other,), told)()) == key(Direct())


def test_what_a_rule_forbids_by_now_is_no_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Sources([Direct()], H100, "c").signed(record(Direct(), LAYER, H100))
    assert Sources([Direct()], H100, "c").has(known)

    class Stricter(Direct):
        def rules(self, device: Device) -> tuple[Rule, ...]:
            return (*super().rules(device), Rule("never", lambda problem: False, "it was wrong"))

    assert not Sources([Stricter()], H100, "c").has(known)


def test_where_no_code_has_changed_no_blueprint_is_made(package: Path) -> None:
    """Where some has, a blueprint says whether the kernels are the same."""
    current = Sources([Direct()], H100, "c")
    known = from_json(to_json(current.signed(record(Direct(), LAYER, H100))))
    known = replace(known, source=current.key(known))  # a store's row has it beside
    sources._key.cache_clear()

    def made() -> int:
        found = sources._key.cache_info().misses
        sources._key.cache_clear()
        return found

    assert current.has(known) and made() == 0
    assert not Sources([], H100, "c").has(known) and not Sources([Direct()], CPU, "c").has(known)
    assert not Sources([Direct()], H100, "d").has(known) and made() == 1
    assert Sources([Direct()], replace(H100, clock_ghz=1.0), "c").has(known) and made() == 1
    (package / "search" / ".#model.py").symlink_to("me@nowhere.1")  # as an editor locks a file
    path = package / "search" / "model.py"
    path.write_text(path.read_text() + "\nMORE = 1\n")
    _forget()
    assert current.has(known) and made() == 1
    (package / "kernels" / "direct" / "direct.cu").write_text("int other;\n")
    _forget()
    assert not current.has(known) and made() == 1


@pytest.mark.parametrize("module", [*RUN, *RUN_ON["cuda"], *RUN_ON["opencl"]])
def test_what_decides_with_a_module_that_runs_blueprints_is_named(module: str) -> None:
    imported = _imports(HOME.joinpath(*module.split(".")).with_suffix(".py"))
    assert imported - {*RUN, *RUN_ON["cuda"], *RUN_ON["opencl"], *DECIDES_NOTHING} == set()


def test_all_that_decides_nothing_is_imported_by_what_runs_blueprints() -> None:
    modules = [*RUN, *RUN_ON["cuda"], *RUN_ON["opencl"]]
    found = [_imports(HOME.joinpath(*module.split(".")).with_suffix(".py")) for module in modules]
    assert DECIDES_NOTHING.keys() - set().union(*found) == set()


@pytest.mark.parametrize("backend", ["opencl", "cuda"])
def test_all_that_packs_binds_and_launches_is_named(backend: str) -> None:
    try:
        runtime = open_runtime(backend)
    except DeviceError as error:
        pytest.skip(str(error))
    config = sample(Direct(), LAYER, runtime.device, random.Random(1))
    ran: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        ran.add(str(frame.f_globals.get("__name__", "")))

    arrays = {"x": np.ones(LAYER.x_shape, np.float32), "w": np.ones(LAYER.w_shape, np.float32)}
    sys.setprofile(note)
    try:
        BoundRun.of(Plan.make(runtime, LAYER, config), arrays).once()
    finally:
        sys.setprofile(None)
    ours = {name.removeprefix("tilewright.") for name in ran if name.startswith("tilewright.")}
    assert {"plans.plan", f"runtime.{backend}", "kernels.source"} <= ours
    makes = {name for name in ours if name.partition(".")[0] in ("kernels", "problem", "device")}
    helps = {"arithmetic", "dtypes", "files", "plans.bound_run"}
    assert ours - makes - helps - {*RUN, *RUN_ON[backend], *DECIDES_NOTHING} == set()


def test_without_the_text_of_modules_there_is_a_key_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with_text = sources._running("cuda")
    monkeypatch.setattr(sources, "_PACKAGE", Path("/nowhere"))  # bytecode alone is installed
    sources._running.cache_clear()
    without = sources._running("cuda")
    sources._running.cache_clear()
    assert len(without) == len(with_text) and without != with_text
