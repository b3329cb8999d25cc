"""What layer.h says of every family's filter; and that an export that fails leaves an earlier one alone."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from every_activation import WORDS, activated
from every_family import taken

from tilewright import export
from tilewright.cli import main
from tilewright.device import Device, for_architecture
from tilewright.errors import CompileError
from tilewright.export.bundle import Bundle, bundle
from tilewright.export.header import header
from tilewright.kernels import FAMILIES, family_of
from tilewright.kernels.error_bound import error_bound
from tilewright.kernels.family import Blueprint, Config, Family
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.problem.activations import ACTIVATIONS
from tilewright.runtime.base import Built, Resources, Runtime
from tilewright.search.space import sample

LAYERS = [
    "n1c64h14w14k64r3s3p1-f32", "n1c64h14w14k64r1s1-f32-nhwc", "n4c20h3w3k24r3s3-f32", "n1c3h16w16k8r5s5-f32",
    "n1c64h14w14k64r3s3p1-f16-nhwc", "n2c32h14w14k32r7s7p3g32-f16-nhwc", "n1c16h12w12k16r3s3p1g16-f32",
    "n1c1024h32w32k1024r1s1-f32", "n1c512h1w1k96r1s1-i8", "n1c8h9w9k4r3s3p1-f8", "n1c512h13w13k64r5s5p2-f32",
    "n1c3h16w16k8r3s3p1-f16-nhwc", "n1c12h9w12k3r3s3p1-f32", "n2c136h7w7k40r1s1-f16",
    "n2c72h10w12k40r3s3p1-f16", "n2c72h8w12k40r1s1-tf32",
]  # fmt: skip


def bundled(problem: Problem, device: Device, config: Config) -> Bundle:
    """Bundle a config; nothing is compiled."""
    used = Resources(0, 0, 0)

    def compiled(plan: Blueprint) -> Built:
        return Built("", b"", {one.kernel: used for one in (*whole.launches, *plan.launches)}, 0.0)

    whole = family_of(config.family).blueprint(problem, device, config)
    return bundle(problem, device, config, "", compiled)


@pytest.mark.parametrize("one", FAMILIES, ids=lambda one: one.name)
def test_every_family_has_a_header(one: Family) -> None:
    device = for_architecture("sm_90")
    problems = taken(one, device, [*map(Problem.parse, LAYERS)])
    for problem in problems:
        found = bundled(problem, device, sample(one, problem, device, random.Random(1)))
        told = re.sub("\n// ", " ", header(found).partition("#pragma once")[0])
        assert ("is used as given" in told) == (found.pack is None)
        assert ("is packed once" in told) == (found.pack is not None)
    assert problems


@pytest.mark.parametrize(("layer", "family"), [
    ("n1c512h7w7k512r1s1-f16", "pointwise"), ("n1c512h8w8k512r1s1-f16", "pointwise"),
    ("n1c64h14w14k64r3s3p1-f16-nhwc", "hopper"),
])  # fmt: skip
def test_swizzles_have_the_names_of_the_driver(layer: str, family: str) -> None:
    """A row of 144 bytes has none."""
    problem, device, one = Problem.parse(layer), for_architecture("sm_90"), family_of(family)
    found = [bundled(problem, device, sample(one, problem, device, random.Random(i))) for i in range(12)]
    named = {name for each in found for name in re.findall(r"CU_TENSOR_MAP_SWIZZLE_(\w+)", header(each))}
    assert named and named <= {"NONE", "32B", "64B", "128B"}


@pytest.mark.parametrize(("name", "layer", "said"), [
    ("direct", "n1c20h9w9k24r3s3p1-f32", True), ("direct", "n2c20h9w9k24r3s3p1g2-f32-nhwc", True),
    ("direct", "n4c20h3w3k24r3s3-f32", False),  # packed as 1x1 filters of 180 channels
    ("direct", "n4c20h1w1k24r1s1-f32", True),
    ("grouped", "n1c16h20w20k16r3s3p1g16-f32", True), ("grouped", "n1c16h20w20k16r3s3p1g16-f32-nhwc", True),
    ("winograd4", "n1c20h12w12k24r3s3p1-f32", False),
])  # fmt: skip
@pytest.mark.parametrize("seed", range(3))
def test_a_formula_in_the_header_is_what_the_packing_does(
    name: str, layer: str, said: bool, seed: int, cpu: Runtime
) -> None:
    """Whoever packs by it fills the buffer, and not more."""
    problem, one = Problem.parse(layer), family_of(name)
    plan = Plan.make(cpu, problem, sample(one, problem, cpu.device, random.Random(seed)))
    w = np.arange(1, np.prod(problem.w_shape) + 1, dtype=np.float32).reshape(problem.w_shape)
    packed = np.empty(plan.blueprint.packed_bytes // 4, np.float32)
    cpu.download(plan.pack(cpu.wrap(w)), packed)
    want = by_formula(plan.blueprint.packing, problem, w)
    assert (want is not None) == said
    if said:
        np.testing.assert_array_equal(packed, want.reshape(-1))


def by_formula(text: str, pr: Problem, w: Any) -> Any:
    """Do what the header says; None where it has no formula."""
    rows = w.reshape(pr.groups, pr.kg, pr.cg, -1)
    if text.startswith("packed[c]"):
        return rows.transpose(2, 3, 0, 1)
    found = re.search(r"i < (\d+), c < (\d+)", text)
    if found is None:
        return None
    tile, channels = map(int, found.groups())
    packed = np.zeros((pr.groups, -(-pr.kg // tile), channels, pr.r * pr.s, tile), np.float32)
    for k in range(pr.kg):
        packed[:, k // tile, : pr.cg, :, k % tile] = rows[:, k]
    return packed


@pytest.mark.parametrize(("name", "layer", "exact"), [
    ("direct", "n1c16h12w12k16r3s3p1-f32+bias+relu", True),
    ("direct", "n1c16h12w12k16r3s3p1-f32+silu", False),
    ("winograd4", "n1c16h12w12k16r3s3p1-f32", False),
])  # fmt: skip
def test_sums_of_integers_that_are_exact_may_be_off_by_the_rounding_of_y_alone(
    name: str, layer: str, exact: bool
) -> None:
    """A larger bound would let a wrong product pass."""
    problem, device, one = Problem.parse(layer), for_architecture("sm_90"), family_of(name)
    config = sample(one, problem, device, random.Random(1))
    found, of_any = bundled(problem, device, config), error_bound(problem, one.chain(problem, device, config))
    assert of_any.slope > 0.0 and found.bound == (replace(of_any, slope=0.0) if exact else of_any)
    told = dict(re.findall(r"#define TW_(SLOPE|UNIT|LEAST|OVERFLOW) (\S+)", header(found)))
    assert {key.lower(): float(value) for key, value in told.items()} == vars(found.bound)


CHECKS = """
#include "check.h"
int main(void) {
    for (int i = -80; i <= 80; i++) printf("%.17g\\n", activated(i / 8.0));
    return 0;
}
"""


def checks(problem: Problem, folder: Path, act: int | None = None) -> subprocess.CompletedProcess[str]:
    """Compile what an export checks its answers by; ``act``: as if its activation had that number."""
    device = for_architecture("sm_90")
    found = header(bundled(problem, device, sample(family_of("direct"), problem, device, random.Random(1))))
    found = found if act is None else re.sub(r"TW_ACT = \d+", f"TW_ACT = {act}", found)
    (folder / "layer.h").write_text(found)
    (folder / "check.c").write_text(CHECKS)
    (folder / "check.h").write_bytes((Path(export.__file__).parent / "check.h").read_bytes())
    command = ["cc", "-w", "check.c", "-o", "check", "-lm"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
@pytest.mark.parametrize("word", WORDS)
def test_an_export_checks_every_activation(word: str, tmp_path: Path) -> None:
    problem = Problem.parse(f"n1c8h8w8k8r3s3-f32{word}")
    assert checks(problem, tmp_path).returncode == 0
    told = subprocess.run([tmp_path / "check"], capture_output=True, text=True, check=True).stdout
    right = activated(problem.epilogue, np.arange(-80, 81) / 8)
    np.testing.assert_allclose(np.array(told.split(), np.float64), right, rtol=1e-14)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
def test_an_export_with_an_activation_that_it_does_not_know_does_not_compile(tmp_path: Path) -> None:
    failed = checks(Problem.parse("n1c8h8w8k8r3s3-f32+relu"), tmp_path, len(ACTIVATIONS))
    assert failed.returncode and "each_activation_has_a_formula" in failed.stderr


@pytest.mark.parametrize("compiler", ["cc -std=c11 -x c", "c++ -x c++"])
@pytest.mark.parametrize("layer", ["n1c16h12k16r3p1-f64", "n1c64h14k64r1-f32", "n1c512h1k96r1-i8"])
def test_a_header_alone_compiles_without_a_warning(layer: str, compiler: str, tmp_path: Path) -> None:
    """In C and C++: with a bound that is infinite, and with a filter that is used as given."""
    if shutil.which(compiler.split()[0]) is None:
        pytest.skip("no compiler here")
    problem, device = Problem.parse(layer), for_architecture("sm_90")
    one = family_of("textbook" if layer.endswith("f32") else "direct")
    (tmp_path / "layer.h").write_text(
        header(bundled(problem, device, sample(one, problem, device, random.Random(1))))
    )
    used = "(int)TW_BYTES[0] + TW_ZEROED[0] + TW_PACK[0].chained + TW_RUN[0].chained + (TW_OVERFLOW > 1)"
    (tmp_path / "main.c").write_text(f'#include "layer.h"\nint main(void) {{ return {used}; }}\n')
    command = [*compiler.split(), "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "main.c"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_a_toeplitz_kernel_is_exported(tmp_path: Path, own_cache: None) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    layer, device = LAYERS[5], for_architecture("sm_90")
    config = sample(family_of("toeplitz"), Problem.parse(layer), device, random.Random(1))
    asked = ["export", layer, "--arch", "sm_90", "--config", str(config), "--to", str(tmp_path / "to")]
    assert main(asked) == 0
    assert "what the kernel in the pack source writes" in (tmp_path / "to" / "layer.h").read_text()


def test_an_export_that_fails_leaves_the_earlier_one(
    tmp_path: Path, own_cache: None, cpu: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["export", "n1c20h9w9k24r3s3p1-f32", "--device", "cpu", "--config", "reference:v=1"]
    assert main([*asked, "--to", str(tmp_path)]) == 0
    before = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}

    def fails(_: Bundle) -> dict[str, bytes]:
        raise CompileError("it cannot be made")

    monkeypatch.setattr("tilewright.export.files.files", fails)
    assert main([*asked, "--to", str(tmp_path)]) == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
