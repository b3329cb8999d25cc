"""Kernels compile for real architectures on a machine with no GPU, and never spill."""

from __future__ import annotations

import io
import random
import re
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from every_activation import WORDS
from every_family import drawn, taken

from tilewright.device import ARCHITECTURES, for_architecture
from tilewright.errors import CompileError
from tilewright.kernels import FAMILIES, family_of, source
from tilewright.kernels.family import Blueprint, Config, Family
from tilewright.kernels.untuned import pack, tools
from tilewright.kernels.untuned.reference import reference_f64
from tilewright.problem import DTYPES, Problem
from tilewright.problem.activations import ACTIVATIONS
from tilewright.search.space import sample

nvrtc = pytest.importorskip("cuda.bindings.nvrtc")

from tilewright.runtime.nvrtc import _in_full, compile_cuda, compiler, import_core, read_log  # noqa: E402

LAYER = Problem.parse("n1c20h9w9k18r3s3p1g2-f32-nhwc2nchw+bias+relu")
SPILLS = """
KERNEL(spills)(GLOBAL float *RESTRICT x) {
    float a[300];
    for (int i = 0; i < 300; i++) a[i] = x[i * 7];
    for (int i = 0; i < 300; i++) x[i] = a[(int)x[i] % 300];
}
"""

pytestmark = pytest.mark.usefixtures("own_cache")


def _text(source: str, **defines: int) -> Blueprint:
    return Blueprint(source=source, defines=tuple(defines.items()), launches=(), packed_bytes=0)


def _packed(geometry: tuple[tuple[str, int], ...], nbytes: int) -> Blueprint:
    """A kernel of which only the packed filter counts."""
    return Blueprint(source="", defines=(), launches=(), packed_bytes=nbytes, pack=geometry)


def test_the_compilers_patch_is_part_of_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a distribution of the same version says it: NVRTC itself has two numbers only."""
    _, major, minor = nvrtc.nvrtcVersion()
    installed = f"{major}.{minor}.12345"
    for name in ("nvidia_cuda_nvrtc", f"nvidia_cuda_nvrtc_cu{major}"):
        folder = tmp_path / f"{name}-{installed}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {installed}\n")
    monkeypatch.syspath_prepend(tmp_path)
    compiler.cache_clear()
    try:
        assert compiler() == f"nvrtc {installed}"
    finally:
        compiler.cache_clear()
    assert _in_full(major, minor + 1) == f"{major}.{minor + 1}", "that of another version says nothing"


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_helpers_compile_without_spills(arch: str) -> None:
    device = for_architecture(arch)
    for blueprint in (
        reference_f64(LAYER, device),
        pack(LAYER, device, _packed((("PACK_K", 8), ("PACK_C", 16)), 4 * 2 * 2 * 16 * 9 * 8)),
        tools.check(LAYER, device),
        tools.same(LAYER, device),
        tools.flush(device, 1 << 28),
        tools.code(device),
    ):
        _fits(blueprint, arch)


def test_the_code_that_fills_the_caches_is_as_long_as_it_says() -> None:
    built = compile_cuda(tools.code(for_architecture("sm_90")), "sm_90")
    assert tools.CODE_BYTES < len(built.binary) < 1.1 * tools.CODE_BYTES


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
@pytest.mark.parametrize("kind", ["f8", "q8"])
def test_the_reference_compiles_in_kinds_of_its_own(kind: str, arch: str) -> None:
    for words in ("", "+bias+add+relu+maxpool3u2p1"):
        problem = Problem.parse(f"n1c20h9w9k18r3s3p1g2-{kind}-nhwc2nchw{words}")
        config = Config.make("reference", {"v": 1})
        _fits(family_of("reference").blueprint(problem, for_architecture(arch), config), arch)


@pytest.mark.parametrize("dtype", DTYPES)
def test_helpers_compile_for_every_dtype_and_epilogue(dtype: str) -> None:
    device = for_architecture("sm_90")
    whole = ("", "+bias+add+relu+maxpool3u2p1")
    more = ("+alpha0.5+add0.25+leaky0.1+avgpool2", "+clamp0:6+maxpool2", *WORDS)
    for words in whole + more * (dtype != "i8"):
        problem = Problem.parse(f"n1c20h9w9k18r3s3p1g2-{dtype}-nhwc2nchw{words}")
        packed = _packed((("PACK_K", 8), ("PACK_C", 3)), 4 * 2 * 2 * 3 * 9 * 8)
        helpers = reference_f64(problem, device), tools.check(problem, device), tools.same(problem, device)
        for blueprint in (*helpers, pack(problem, device, packed)):
            _fits(blueprint, "sm_90")


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16"])
def test_every_activation_compiles(dtype: str, word: str) -> None:
    device, problem = for_architecture("sm_90"), Problem.parse(f"n1c8h8w8k8r3s3-{dtype}{word}")
    direct = family_of("direct")
    _fits(direct.blueprint(problem, device, sample(direct, problem, device, random.Random(0))), "sm_90")


def test_an_activation_that_a_kernel_has_no_formula_of_does_not_compile() -> None:
    device, problem = for_architecture("sm_90"), Problem.parse("n1c8h8w8k8r3s3-f32+relu")
    direct = family_of("direct")
    config = sample(direct, problem, device, random.Random(0))
    for blueprint in (reference_f64(problem, device), direct.blueprint(problem, device, config)):
        _fits(blueprint, "sm_90")
        changed = dict(blueprint.defines) | {"ACT": len(ACTIVATIONS)}
        with pytest.raises(CompileError, match="ACT: an activation that has no formula here"):
            compile_cuda(replace(blueprint, defines=tuple(changed.items())), "sm_90")


def _fits(blueprint: Blueprint, arch: str) -> None:
    built = compile_cuda(blueprint, arch)
    assert {launch.kernel for launch in blueprint.launches} <= set(built.resources)
    assert all(0 < r.registers <= 255 and r.local_bytes == 0 for r in built.resources.values())


def test_second_compile_comes_from_the_cache() -> None:
    blueprint = tools.check(Problem.parse("n77c1h1k1r1"), for_architecture("sm_90"))
    first, second = compile_cuda(blueprint, "sm_90"), compile_cuda(blueprint, "sm_90")
    assert first.compile_s > 0 and second.compile_s == 0
    assert (first.binary, first.resources) == (second.binary, second.resources)


@pytest.mark.parametrize("again", [False, True])
def test_spills_are_refused_from_the_cache_too(again: bool) -> None:
    for _ in range(1 + again):
        with pytest.raises(CompileError, match="spills for sm_90: 1200 bytes"):
            compile_cuda(_text(SPILLS), "sm_90")


def test_no_two_kernel_files_have_one_name() -> None:
    paths = [path for kind in ("*.cu", "*.h") for path in source._FOLDER.rglob(kind)]
    assert len(paths) == len({path.name for path in paths}) > 60
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*\.(?:h|cu)", path.name) for path in paths)


@pytest.mark.parametrize(
    ("blueprint", "arch", "said"),
    [
        (_text("KERNEL(bad)(GLOBAL float *x) { x[0] = nothing; }\n"), "sm_90", "nothing"),
        (_text('#include "/etc/passwd"\n'), "sm_90", "only kernel files"),
        (_text("#include <stdio.h>\n"), "sm_90", "only kernel files"),
        (_text("missing.cu"), "sm_90", "no such file"),
        (_text("../errors.py"), "sm_90", "no such file"),
        (_text("check.cu"), "sm_90 -include=/etc/passwd", "must look like"),
        (Blueprint("check.cu", (("A B", 1),), (), 0), "sm_90", "a name and an integer"),
        (Blueprint("check.cu", (("A", "1\n#include"),), (), 0), "sm_90", "a name and an integer"),  # type: ignore[arg-type]
    ],
)
def test_bad_source_is_refused(blueprint: Blueprint, arch: str, said: str) -> None:
    assert not blueprint.source.startswith("../") or (source._FOLDER / blueprint.source).is_file()
    with pytest.raises(CompileError, match=said) as caught:
        compile_cuda(blueprint, arch)
    assert "\n" not in str(caught.value)


def test_log_is_read_per_kernel() -> None:
    log = """ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas         .     8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 8 bytes cumulative stack size, 256 bytes smem
ptxas info    : Compiling entry function 'two' for 'sm_90'
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, 400 bytes cmem[0]"""
    found: dict[str, Any] = read_log(log)
    assert (found["one"].registers, found["one"].local_bytes, found["one"].shared_bytes) == (255, 12, 256)
    assert (found["two"].registers, found["two"].local_bytes, found["two"].shared_bytes) == (32, 0, 0)


@pytest.mark.parametrize("kind", FAMILIES, ids=lambda kind: kind.name)
def test_no_kernel_compiles_with_a_warning(kind: Family) -> None:
    """What is declared and not used, or never reached, is not left for a reader to wonder at."""
    core, said = import_core(), set[str]()
    for problem in taken(kind, for_architecture("sm_90"))[:3]:
        for config in islice(drawn(kind, problem, for_architecture("sm_90")), 2):
            recipe = kind.blueprint(problem, for_architecture("sm_90"), config)
            for one in recipe.programs:
                log = io.StringIO()
                options = core.ProgramOptions(arch=one.target("sm_90"), std="c++17", no_cache=True)
                core.Program(source.full_source(one), "c++", options).compile("cubin", logs=log)
                said.update(re.findall(r"[^\n]*: warning [^\n]*", log.getvalue()))
    assert not said
