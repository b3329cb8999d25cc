"""What is laid out around the launches of another dtype: by the adapted family, and for the reference."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tilewright.device import for_architecture
from tilewright.device.architectures import ARCHITECTURES
from tilewright.dispatch.choices import GUESSES
from tilewright.errors import CompileError
from tilewright.kernels import family
from tilewright.kernels.family import Blueprint, Config
from tilewright.problem import Problem
from tilewright.search.space import sample
from tilewright.search.strategies import rank

ADAPTED = family("adapted")
LAYERS = (
    "n1c512h7w7k512r3s3p1-f8", "n1c64h56w56k64r3s3p1-f8-nhwc+bias+relu", "n1c3h224w224k64r7s7p3u2-f8",
    "n1c256h14w14k64r1s1-f8-nhwc+add",
)  # fmt: skip
H100 = for_architecture("sm_90")


def _laid_out(text: str) -> tuple[Problem, Blueprint]:
    problem = Problem.parse(text)
    return problem, ADAPTED.blueprint(problem, H100, sample(ADAPTED, problem, H100, random.Random(0)))


# To find the model's first choices takes seconds: each dtype meets each architecture on one of its layers.
@pytest.mark.parametrize(("text", "arch"), [*zip(LAYERS, ARCHITECTURES, strict=True)])
def test_all_programs_compile(
    text: str, arch: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    problem, device = Problem.parse(text), for_architecture(arch)
    ranked = rank(problem, device, ADAPTED, GUESSES[5] + 1)
    for place in GUESSES[:6]:  # as dispatch does
        try:
            blueprint = ADAPTED.blueprint(problem, device, ranked[place][0])
            built = [compile_cuda(program, arch) for program in blueprint.programs]
        except CompileError as error:
            assert "spilled" in str(error)
            continue
        kernels = {name for one in built for name in one.resources} | {"zero"}
        assert {launch.kernel for launch in blueprint.launches} <= kernels
        return
    raise AssertionError("every guess spilled")


def test_f8_is_widened_and_packed_at_every_run() -> None:
    problem, found = _laid_out("n1c64h56w56k64r3s3p1-f8-nhwc+bias+relu")
    assert [one.kernel for one in found.launches][:2] == ["widen", "pack"]
    sizes = {buffer.name: buffer.nbytes for buffer in found.workspace}
    assert (sizes["wide_x"], sizes["wide_w"]) == (2 * problem.x_bytes, 2 * problem.w_bytes)
    assert found.pack is None and found.packed_bytes == problem.w_bytes
    assert not any({"x", "w"} & set(one.args) for one in found.launches[1:])


def test_the_references_sums_of_i8_are_requantised_behind_everything() -> None:
    problem = Problem.parse("n1c64h56w56k64r3s3p1-q8-nhwc+bias+relu")
    found = family("reference").blueprint(problem, H100, Config.make("reference", {"v": 1}))
    *others, last = found.launches
    assert (last.kernel, last.args) == ("requant", ("requant_sums", "scale", "y"))
    assert not any("y" in one.args for one in others)
    sizes = {buffer.name: buffer.nbytes for buffer in found.workspace}
    assert sizes["requant_sums"] == 4 * problem.y_elements


def test_it_is_refused_where_direct_is() -> None:
    assert "computes f8, not f16" in str(ADAPTED.refuses(Problem.parse("n1c8h4w4k8r3s3-f16"), H100))
    config = Config.make("adapted", {"bh": 1})
    with pytest.raises(Exception, match="config adapted:bh=1: v, tk, .* must be given, too"):
        ADAPTED.check(Problem.parse("n1c8h4w4k8r3s3-f8"), H100, config)
