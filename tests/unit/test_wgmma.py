"""The wgmma family: what it takes and what it compiles to, with no GPU. Its answers are checked on one."""

from __future__ import annotations

import dataclasses

import pytest

from tilewright.device import Device, for_architecture
from tilewright.errors import ConfigError
from tilewright.kernels import family
from tilewright.kernels.family import Config
from tilewright.kernels.wgmma import ROW_BYTES, sizes
from tilewright.problem import Problem
from tilewright.tuning.search import rank

HOPPER = for_architecture("sm_90")
WGMMA = family("wgmma")
LAYERS = (
    "n1c64h56w56k64r3s3p1-f16-nhwc",
    "n1c512h7w7k512r3s3p1-bf16-nhwc+bias+relu",
    "n1c256h34w34k512r3s3p1-i8-nhwc",
    "n32c256h14w14k256r3s3p1u2-f16-nhwc+add+silu",
    "n1c40h9w13k28269r1s1-f16-nhwc",
    "n2c96h11w7k24r5s3p2x1d2g2-bf16-nhwc",
)
REFUSED = {
    "n1c64h56w56k64r3s3p1-f32-nhwc": "computes f16 and bf16 and i8",
    "n1c64h56w56k64r3s3p1-f16": "nhwc",
    "n1c12h56w56k64r3s3p1-f16-nhwc": "12 channels",
    "n1c24h56w56k64r3s3p1-i8-nhwc": "24 channels",
    "n1c64h56w56k64r3s3p1-f16-nhwc+maxpool2": "pool",
}


@pytest.mark.parametrize("text", LAYERS)
def test_first_choices_compile_with_everything_in_registers(text: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from tilewright.runtime.nvrtc import compile_cuda

    problem = Problem.parse(text)
    assert WGMMA.refuses(problem, HOPPER) is None
    for config, _ in rank(problem, HOPPER, WGMMA, 2):
        built = compile_cuda(WGMMA.blueprint(problem, HOPPER, config), HOPPER.arch)
        assert 0 < built.registers <= 255  # and nothing in local memory, else CompileError


@pytest.mark.parametrize(("text", "why"), REFUSED.items())
def test_says_what_it_does_not_take(text: str, why: str) -> None:
    assert why in str(WGMMA.refuses(Problem.parse(text), HOPPER))


@pytest.mark.parametrize("device", [for_architecture("sm_80"), dataclasses.replace(HOPPER, backend="opencl")])
def test_other_devices_are_told(device: Device) -> None:
    assert "sm_90" in str(WGMMA.refuses(Problem.parse(LAYERS[0]), device))


def test_steps_and_bytes() -> None:
    problem = Problem.parse("n1c80h7w7k100r3s3p1-f16-nhwc")
    config = Config.parse("wgmma:bn=64.combine=2.mb=1.rows=1.sg=4.stages=3.wm=1")
    WGMMA.check(problem, HOPPER, config)
    sz = sizes(problem, config.values)
    assert (sz.deep, sz.steps, sz.share) == (64, 18, 5)  # 80 channels are two runs of 64
    assert (sz.px_tiles, sz.k_tiles, sz.blocks) == (1, 2, 8)
    blueprint = WGMMA.blueprint(problem, HOPPER, config)
    assert blueprint.packed_bytes == 2 * 18 * 64 * ROW_BYTES
    assert blueprint.specific
    with pytest.raises(ConfigError, match="combine"):
        WGMMA.check(problem, HOPPER, Config.make("wgmma", {**config.values, "combine": 0}))
