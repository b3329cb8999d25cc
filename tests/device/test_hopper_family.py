"""The hopper family's kernel: on a GPU, and by emulation: the same index arithmetic on the CPU, step by step.

Places in shared memory, descriptors, the raster of pixels, the tile of sums and what is stored are those of
the device; barriers and the order of the roles are not (tests/unit/test_hopper.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from here import EMULATED_AND_GPU, GPU
from numpy.typing import NDArray
from pairs import facts, fewest
from test_gpu_path import _agrees, computed, runtime

from tilewright.checking.verify import Verifier
from tilewright.dtypes import numpy_dtype
from tilewright.errors import ConfigError
from tilewright.kernels import family_of
from tilewright.kernels.error_bound import error_bound
from tilewright.kernels.family import Config
from tilewright.kernels.untuned.reference import numpy_conv
from tilewright.plans.plan import Plan
from tilewright.problem import Problem
from tilewright.runtime.base import Runtime

__all__ = ["runtime"]  # a fixture

BASE = dict(
    x=0,
    wm=1,
    wn=1,
    bn=16,
    mb=1,
    chunks=2,
    pieces=0,
    tall=0,
    batch=1,
    stages=2,
    xs=2,
    cm=1,
    sc=1,
    sg=1,
    combine=0,
)
NONE, TWO_PASS, LAST = 0, 2, 3
PLANES, TURNED, TAPWISE = dict(x=4, pieces=1, xs=1), dict(x=5), dict(x=6, pieces=1, xs=1)
SLID = dict(x=7, pieces=1, batch=3, wn=2)


@pytest.fixture(autouse=True)
def _sums_of_any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel adds up accurately what is not offered, since f32 is no worse there."""
    monkeypatch.setattr("tilewright.kernels.error_bound.FEWEST_ACCURATE", 1)


CASES = (
    ("n1c16h3w5k8r1s1-f16-nhwc", dict(xs=1)),
    ("n1c64h5w5k70r1s1-f16-nhwc", dict(xs=1, chunks=8, pieces=1)),
    ("n1c128h7w7k70r3s3p1-f16-nhwc+bias+relu", dict(bn=56, chunks=8, wm=2, stages=6)),
    ("n1c64h7w7k24r3s3p1-bf16-nhwc", dict(xs=1, bn=24, chunks=8, pieces=1)),
    ("n2c40h9w7k70r3s3p1u2-f16-nhwc+bias+relu", dict(wm=2, chunks=4)),
    ("n2c32h9w7k70r3s2p1.0.0.1d2g2-bf16-nhwc+add", dict(xs=1, wn=2, sg=2, combine=LAST)),
    ("n2c64h9w7k70r3s3p1-i8-nhwc+maxpool2", dict(wn=2, xs=1, sg=2, combine=TWO_PASS)),
    ("n2c20h9w7k70r3s3p1-i8", dict(x=1, xs=1)),
    ("n2c20h9w7k70r1s1-f16-nchw2nhwc", dict(x=1)),
    ("n3c24h6w5k9r3s3p4-f16-nhwc2nchw+add", dict(bn=40, sg=3, combine=LAST)),
    ("n2c128h8w9k20r5s1p2x0u2x3-f16-nhwc2nchw", dict(bn=32, chunks=8, pieces=1)),
    ("n2c64h9w7k70r3s3p1-f16-nhwc+bias+relu+maxpool2", dict(bn=24)),
    ("n2c64h9w7k72r3s3p1-f16-nhwc2nchw+add+maxpool3u2", dict(bn=24, wn=2)),
    ("n1c16h20w22k9r5s5-f16-nhwc+relu+avgpool2", dict(xs=1, bn=96)),
    ("n2c3h19w17k32r3s3p1-i8+bias+relu", dict(x=2, xs=1, bn=64)),
    ("n1c3h19w17k70r7s7p3u2-bf16-nhwc2nchw", dict(x=2, xs=1, wn=2, chunks=20)),
    ("n1c5h19w17k40r3s3p1d2-f16+maxpool2", dict(x=2, xs=1, bn=64, chunks=6)),
    ("n1c128h7w7k70r3s3p1-f16-nhwc+bias", dict(xs=1, bn=24, chunks=8, sc=4)),
    ("n1c128h7w7k70r3s3p1-f16-nhwc2nchw", dict(xs=1, bn=24, chunks=8, pieces=1, sc=4, cm=2)),
    ("n2c64h9w7k170r3s3p1-i8-nhwc+maxpool2", dict(xs=1, bn=24, sc=2, cm=4, sg=2, combine=TWO_PASS)),
    ("n2c64h9w7k40r3s3p1-f16-nhwc", dict(xs=1, sc=4, cm=2, sg=2, combine=LAST)),
    ("n4c96h1w1k33r1s1-bf16+bias", dict(bn=8, chunks=16, xs=1)),
    # swizzled rows of 32, 64 and 128 bytes, by the copy engine; batches of a row of the filter, of all of it
    ("n2c32h9w7k70r3s3p1-f16-nhwc+bias", dict(pieces=1, batch=3)),
    ("n2c64h9w7k70r3s3p1u2-f16-nhwc", dict(pieces=1, chunks=4, batch=9, bn=24)),
    ("n2c64h9w7k70r3s2p1.0.0.1d2u3x1-bf16-nhwc+add", dict(pieces=1, chunks=4, batch=2)),
    ("n2c128h9w7k70r3s3p1g2-f16-nhwc+maxpool2", dict(pieces=1, chunks=8, batch=3, xs=1, bn=24)),
    ("n2c128h9w7k70r3s3p1-i8-nhwc2nchw", dict(pieces=1, chunks=4, batch=9, wn=2)),
    ("n2c20h9w7k70r3s3p1-i8", dict(x=1, xs=1, pieces=1, batch=3)),
    ("n1c128h7w7k70r3s3p1-f8-nhwc", dict(pieces=1, chunks=4, batch=3, wm=2)),
    ("n1c128h7w7k70r3s3p1-f16-nhwc", dict(pieces=1, chunks=4, batch=3, bn=24, sc=4, cm=2, xs=1)),
    ("n1c64h9w7k70r5s5p2-f16-nhwc", dict(pieces=1, chunks=4, batch=5)),
    # rectangles
    ("n2c32h9w19k70r3s3p1-f16-nhwc+bias", dict(pieces=1, tall=1, wn=2, batch=3)),
    ("n2c64h9w19k70r3s3p1u2-f16-nhwc", dict(pieces=1, tall=1, chunks=4, wn=3, bn=8, batch=9)),
    ("n2c32h11w9k71r3s2p1.0.0.1d2u3x1-bf16-nhwc+add", dict(pieces=1, tall=1, batch=2, wn=2, bn=8)),
    ("n2c64h13w21k70r5s5-f16-nhwc+relu+maxpool2", dict(pieces=1, tall=1, wn=2, bn=8, batch=5)),
    ("n2c32h13w21k72r3s3p1-f16-nhwc2nchw+add+maxpool3u2", dict(pieces=1, tall=1, wn=3, xs=2)),
    ("n2c32h13w21k68r3s3p1-f8-nhwc+maxpool2", dict(pieces=1, tall=1, wn=2, sg=2, combine=TWO_PASS, xs=1)),
    ("n1c32h9w19k33r3s3p1-i8-nhwc", dict(pieces=1, tall=1, chunks=2, wn=2, sc=2, cm=2, xs=1)),
    ("n2c64h8w18k35r1s1-f16-nhwc+avgpool2", dict(pieces=1, tall=1, wn=2, xs=1)),
    ("n2c32h9w19k71r3s3p1-f16-nhwc+add", dict(pieces=1, tall=1, sg=2, combine=LAST, xs=1)),
    # 1x1: patches come with filters
    ("n1c128h5w5k70r1s1-f16-nhwc", dict(xs=1, pieces=1, chunks=4, batch=2)),
    ("n1c80h5w5k70r1s1-f16-nhwc", dict(xs=1, pieces=1, chunks=2, batch=1, stages=3)),
    ("n2c256h9w7k70r1s1u2-i8-nhwc+bias+relu", dict(xs=1, pieces=1, chunks=4, batch=4, bn=32)),
    ("n200c256h1w1k70r1s1-f16-nhwc", dict(xs=1, pieces=1, chunks=8, batch=2, bn=96, wn=2, cm=2)),
    ("n2c72h9w7k70r1s1-f16", dict(x=1, xs=1, pieces=1, chunks=4, sg=3, combine=LAST)),
    ("n2c256h9w7k70r1s1g2-f8-nhwc", dict(xs=1, pieces=1, chunks=4, batch=2)),
    # anew for each tap: strides, dilation, groups, channels left over, several images, shares inside of a run
    ("n3c32h5w4k70r3s3p1-f16-nhwc+bias+relu", TAPWISE | dict(bn=24, wn=2)),
    ("n2c128h9w7k70r3s3p1u2-bf16-nhwc", TAPWISE | dict(chunks=8, batch=3, bn=40)),
    ("n2c40h9w7k72r3s2p1.0.0.1d2u3x1-f16-nhwc+add", TAPWISE | dict(chunks=4, batch=2, stages=3)),
    ("n2c128h9w7k70r5s3p2x1d1x3g2-f16-nhwc", TAPWISE | dict(chunks=8, batch=3, bn=32)),
    ("n2c64h9w7k70r3s3p1-i8-nhwc+bias+relu", TAPWISE | dict(chunks=4, batch=9, bn=24)),
    ("n1c96h7w7k33r3s3p1-f8-nhwc2nchw", TAPWISE | dict(chunks=2, sc=4, cm=2)),
    ("n2c16h9w7k70r3s3p1-tf32-nhwc", TAPWISE | dict(chunks=4, batch=3)),
    ("n3c64h6w5k70r3s3-f16-nhwc", TAPWISE | dict(sg=5, combine=LAST)),
    ("n2c48h8w9k36r3s3p1-bf16-nhwc+maxpool2", TAPWISE | dict(bn=32, chunks=4)),
    ("n2c64h8w8k72r3s3p1-f16-nhwc2nchw+bias+add", TAPWISE | dict(bn=40, wn=2)),
    ("n2c64h9w7k96r3s3p1-i8-nhwc+bias+requant", TAPWISE | dict(bn=48, wm=2, sg=2, combine=TWO_PASS)),
    # nchw as it is, by the copy engine: spans of 16, 32 and 64 pixels, whole or in part
    ("n1c16h3w8k8r1s1-f16", PLANES),
    ("n2c40h5w16k70r1s1-f16+bias+relu", PLANES | dict(chunks=4, wn=2)),
    ("n2c24h5w40k70r3s1p1x0-bf16", PLANES | dict(bn=40, batch=3)),
    ("n1c72h4w64k140r1s1-f16+bias", PLANES | dict(chunks=8, bn=64, wn=2)),
    ("n1c16h9w32k24r5s1p2.2.0.0u2x1-f16", PLANES | dict(bn=32, wn=3, batch=5)),
    ("n2c33h5w16k9r2s1-bf16+add", PLANES | dict(chunks=4, batch=2)),
    ("n2c32h6w48k40r3s1p1x0g2-f16", PLANES | dict(bn=48, batch=3)),
    ("n2c64h4w24k71r3s1p1x0-f16-nchw2nhwc+bias", PLANES | dict(bn=24, chunks=4)),
    ("n2c48h8w16k36r1s1-f16+avgpool2", PLANES | dict(bn=96, sg=2, combine=TWO_PASS)),
    ("n2c16h8w16k36r3s1p1x0-f16+bias+relu+maxpool2", PLANES | dict(bn=48)),
    ("n1c64h8w8k70r3s1p1x0-f16", PLANES | dict(chunks=4, bn=32, sc=4, cm=2)),
    ("n3c32h5w16k70r3s1p1x0-f16", PLANES | dict(bn=112, sg=3, combine=LAST)),
    ("n2c136h7w8k70r1s1-f16+bias+silu", PLANES | dict(chunks=8, bn=24, wn=2)),
    ("n2c64h4w14k40r1s1-bf16", PLANES | dict(chunks=4, bn=112, batch=2)),
    ("n2c24h3w40k70r1s3p0x8d1x8-f16", PLANES | dict(bn=40, batch=3)),
    # and by threads: pieces apart and swizzled, channels left over, every kind of numbers
    ("n2c40h9w7k70r3s3p1u2-f16+bias+relu", TURNED | dict(wm=2, chunks=4)),
    ("n2c37h8w8k70r3s3p1-bf16", TURNED | dict(pieces=1, chunks=4, batch=3)),
    ("n2c40h9w7k70r3s2p1.0.0.1d2g2-f16+add", TURNED | dict(xs=1, wn=2, sg=2, combine=LAST)),
    ("n1c64h5w16k70r3s3p1-f16+bias", TURNED | dict(pieces=1, chunks=8, xs=1, bn=40, sc=1, cm=2)),
    ("n3c20h7w7k70r1s1-i8", TURNED | dict(xs=1)),
    ("n2c45h9w7k70r3s3p1-i8-nchw2nhwc", TURNED | dict(pieces=1, batch=9)),
    ("n2c18h9w7k70r3s3p1-tf32+maxpool2", TURNED | dict(chunks=4)),
    ("n2c50h9w7k70r3s3p1-f8", TURNED | dict(xs=1, chunks=4)),
    ("n2c18h9w7k70r3s3p1-accurate+relu", TURNED | dict(chunks=4)),
    # by the copy engine as runs of pixels, then turned: images, groups, channels left over, strides
    ("n1c64h8w16k70r3s3p1-f16+bias", TURNED | dict(pieces=1, chunks=4, bn=32)),
    ("n1c72h12w22k70r3s3p1-bf16", TURNED | dict(pieces=1, chunks=4, batch=3, wn=2, xs=3)),
    ("n3c24h4w6k40r3s3p1-f16", TURNED | dict(chunks=2)),
    ("n2c48h8w13k70r3s3p1g2-bf16+relu", TURNED | dict(chunks=4, xs=1, sg=2, combine=LAST)),
    ("n2c40h5w16k24r3s3p1d2u1x2-f16-nchw2nhwc", TURNED | dict(chunks=4, pieces=1, bn=24)),
    ("n1c64h10w12k140r5s5p2-f16+maxpool2", TURNED | dict(bn=96, wm=2)),
    ("n2c32h1w72k70r1s3p0x1u1x2-f16", TURNED | dict(pieces=1, sc=2, cm=2, bn=24, xs=1)),
    # requantised: a warp's own rows, shares of a cluster, the tile of sums, a second kernel
    ("n2c64h9w7k96r3s3p1-i8-nhwc+bias+relu+requant", dict(pieces=1, bn=48, wm=2)),
    ("n2c96h9w7k144r3s3p1g3-i8-nhwc+requant", dict(pieces=1, bn=24, wn=2)),
    ("n1c128h7w7k80r3s3p1-i8-nhwc+bias+requant", dict(xs=1, bn=24, chunks=4, sc=4)),
    ("n1c128h7w7k75r3s3p1-i8-nhwc+add+requant", dict(xs=1, bn=16, chunks=4, sc=4)),
    ("n2c64h9w7k70r3s3p1-i8-nhwc+bias+requant", dict(bn=24)),
    ("n2c20h9w7k70r3s3p1-i8+requant", dict(x=1, xs=1, sg=2, combine=LAST)),
    ("n2c64h9w7k48r3s3p1-i8-nhwc+maxpool2+requant", dict(bn=24)),
    ("n2c64h9w7k70r3s3p1-i8-nhwc+relu+maxpool2+requant", dict(xs=1, sg=2, combine=TWO_PASS)),
    # planes that begin anywhere: 8, 4 and 2 leads; tiles over images, shares that begin within a lead
    ("n1c64h7w7k70r1s1-f16+bias+relu", PLANES | dict(bn=24)),
    ("n3c64h7w7k70r1s1-bf16", PLANES | dict(bn=56, wn=2)),
    ("n5c64h7w7k70r1s1-f16+bias", PLANES | dict(bn=128, wn=2)),
    ("n2c64h14w14k24r1s1-f16", PLANES | dict(bn=192)),
    ("n2c136h9w7k70r1s1-bf16", PLANES | dict(bn=40, chunks=2, wn=2, stages=3)),
    ("n3c72h6w7k72r1s1-f16+add", PLANES | dict(bn=16, wm=2, chunks=2, batch=1)),
    ("n2c80h6w6k33r1s1-f16", PLANES | dict(bn=32, chunks=2, wn=2)),
    ("n2c256h5w6k70r1s1g2-f16+bias", PLANES | dict(bn=48, chunks=2, stages=3)),
    ("n1c512h7w7k70r1s1-f16", PLANES | dict(bn=64, chunks=4, batch=2, stages=3)),
    ("n2c256h7w7k70r1s1-f16", PLANES | dict(bn=56, chunks=2, sc=4, cm=2)),
    ("n2c128h5w9k24r1s1-bf16+bias+silu", PLANES | dict(bn=24, chunks=2, sg=3, combine=LAST)),
    ("n2c120h7w7k24r1s1-f16+relu", PLANES | dict(bn=24, chunks=2, sg=2, combine=TWO_PASS)),
    ("n2c64h14w14k71r1s1-f16-nchw2nhwc+bias", PLANES | dict(bn=80, chunks=4)),
    ("n1c64h1w13k24r1s1-f16", PLANES | dict(bn=24)),
    ("n2c64h7w7k72r1s1-bf16-nchw2nhwc+add", PLANES | dict(bn=56)),
    # sums for each column of the filter: several rows in a team, a row in several teams, past a row's end
    ("n1c16h4w16k24r3s3p1-f16+bias+relu", SLID | dict(bn=16, xs=1)),
    ("n2c40h5w16k70r3s3p1-bf16", SLID | dict(bn=64, chunks=4)),
    ("n1c72h6w32k140r3s3p1-f16+add", SLID | dict(bn=96, chunks=4, wm=2, wn=1, xs=3)),
    ("n2c16h3w64k40r3s3p1-f16+bias", SLID | dict(bn=128, batch=9, xs=1)),
    ("n2c40h3w128k72r3s3p1-f16", SLID | dict(bn=64, chunks=4)),
    ("n1c24h5w40k33r3s3p1-f16", SLID | dict(bn=64, stages=3, wn=3)),
    ("n2c16h4w56k40r3s3p1-bf16+silu", SLID | dict(bn=64, xs=1)),
    ("n1c32h2w192k72r3s3p1-f16", SLID | dict(bn=64, wn=3)),
    ("n1c64h6w16k70r3s3p1-f16", SLID | dict(bn=32, sc=4, cm=2, xs=1)),
    ("n1c64h16w16k128r3s3p1-f16", SLID | dict(bn=48, chunks=4, wm=2)),
    ("n1c48h5w16k24r3s3p1-f16", SLID | dict(bn=48, sg=3, combine=LAST, xs=1)),
    ("n2c32h7w16k24r3s3p1-f16-nchw2nhwc", SLID | dict(bn=32, sg=2, combine=TWO_PASS, xs=1)),
    ("n1c32h9w16k40r5s3p4x1d2x1g2-bf16+bias", SLID | dict(bn=32, xs=1)),
    ("n2c48h1w64k140r1s3p0x1-f16", SLID | dict(bn=64, chunks=4, wm=2, wn=1)),
    ("n2c32h8w16k40r3s3p1-f16+relu+maxpool2", SLID | dict(bn=64)),
    # rows of a residual, copied while products are under way
    ("n2c32h9w7k72r3s3p1-f16-nhwc+bias+add+relu", dict(bn=8, wn=2, wm=2)),
    ("n2c32h9w7k72r3s3p1-bf16-nhwc+bias+add0.5+relu", dict(bn=40, wn=2, pieces=1, batch=3)),
    ("n1c64h9w7k64r3s3p1g2-f16-nhwc+add", dict(bn=24, pieces=1, xs=1, chunks=4)),
    ("n2c3h19w17k32r3s3p1-f16-nhwc+bias+add", dict(x=2, xs=1, bn=64, chunks=4)),
    ("n2c20h9w7k72r3s3p1-bf16-nchw2nhwc+add+silu", dict(x=1, bn=32, wn=2)),
    ("n1c8h3w5k8r1s1-tf32-nhwc", dict(xs=1)),
    ("n1c64h7w7k70r3s3p1-tf32-nhwc+bias+relu", dict(bn=56, chunks=8, wm=2, stages=6)),
    ("n1c32h7w7k24r3s3p1-tf32-nhwc", dict(xs=1, bn=24, chunks=8, pieces=1)),
    ("n2c24h9w7k70r3s2p1.0.0.1u2d2g2-tf32-nhwc+add", dict(xs=1, wn=2, sg=2, combine=LAST)),
    ("n2c18h9w7k70r3s3p1-tf32+maxpool2", dict(x=1, chunks=4)),
    ("n2c22h9w7k70r1s1u2-tf32-nchw2nhwc", dict(x=1, sg=2, combine=TWO_PASS)),
    ("n1c3h19w17k70r7s7p3u2-tf32-nhwc2nchw", dict(x=2, xs=1, wn=2, chunks=38)),
    ("n1c5h19w17k40r3s3p1d2-tf32+maxpool2", dict(x=2, xs=1, bn=64, chunks=12)),
    ("n1c32h7w7k70r3s3p1-tf32-nhwc2nchw+bias", dict(xs=1, bn=24, chunks=8, pieces=1, sc=4, cm=2)),
    ("n1c64h3w5k8r1s1-accurate-nhwc", dict(stages=3)),
    ("n1c64h7w7k70r3s3p1-accurate-nhwc+bias+relu", dict(bn=56, chunks=4, wm=2, stages=6)),
    ("n1c32h7w7k24r3s3p1-accurate-nhwc", dict(xs=1, bn=24, chunks=8, pieces=1)),
    ("n2c24h9w7k70r3s2p1.0.0.1u2d2g2-accurate-nhwc+add", dict(xs=1, wn=2, sg=2, combine=LAST)),
    ("n2c18h9w7k70r3s3p1-accurate+maxpool2", dict(x=1, chunks=4)),
    ("n2c70h9w7k70r1s1u2-accurate-nchw2nhwc", dict(x=1, sg=2, combine=TWO_PASS)),
    # rounded by the copy engine; split by a first kernel for it
    ("n2c24h9w7k70r3s3p1u2-tf32-nhwc+bias", dict(pieces=1, batch=3)),
    ("n2c18h9w7k71r3s3p1-tf32", dict(x=1, pieces=1, chunks=4, batch=9)),
    ("n2c64h5w7k70r1s1-tf32-nhwc", dict(pieces=1, chunks=8, batch=2, xs=1)),
    ("n2c16h9w19k70r3s3p1-tf32-nhwc+maxpool2", dict(pieces=1, tall=1, wn=2)),
    ("n2c32h9w7k70r3s3p1-accurate-nhwc+bias+relu", dict(x=1, pieces=1, chunks=4, batch=3)),
    ("n2c32h9w7k70r3s3p1u2g2-accurate", dict(x=1, pieces=1)),
    ("n2c64h5w7k71r1s1-accurate", dict(x=1, pieces=1, chunks=8, batch=2, xs=1)),
    ("n2c16h9w19k70r3s3p1-accurate-nhwc+maxpool2", dict(x=1, pieces=1, tall=1, wn=2)),
    ("n1c3h19w17k70r5s5p2u2-accurate-nhwc2nchw", dict(x=2, xs=1, wn=2, chunks=20)),
    ("n1c8h19w17k40r3s3p1d2-accurate+maxpool2", dict(x=2, xs=1, bn=64, chunks=18)),
    ("n1c32h7w7k70r3s3p1-accurate-nhwc2nchw+bias", dict(xs=1, bn=24, chunks=8, pieces=1, sc=4, cm=2)),
    # split into two of f16: tails of channels and filters, strides, dilation, groups, shares, 1x1
    ("n2c64h9w7k70r3s3p1-accurate-nhwc+bias+relu", dict(x=3, pieces=1, chunks=4, batch=3)),
    ("n2c18h9w7k71r3s3p1-accurate", dict(x=3, pieces=1)),
    ("n1c37h11w9k24r3s2p1.0.0.1d2u3x1-accurate-nhwc2nchw+add", dict(x=3, pieces=1, chunks=4, wn=2, batch=2)),
    ("n2c88h9w7k70r3s3p1u2g2-accurate", dict(x=3, pieces=1, chunks=4, sg=3, combine=LAST)),
    ("n2c24h9w7k70r3s3p1d2g2-accurate-nhwc", dict(x=3, pieces=1, xs=1, sg=2, combine=TWO_PASS)),
    ("n1c64h7w7k130r3s3p1-accurate-nhwc+bias", dict(x=3, pieces=1, wm=2, bn=24, sc=2, cm=2)),
    ("n2c40h9w19k70r3s3p1-accurate-nhwc+maxpool2", dict(x=3, pieces=1, chunks=4, tall=1, wn=2)),
    ("n2c250h5w7k71r1s1-accurate", dict(x=3, pieces=1, chunks=8, batch=2, xs=1)),
    ("n3c100h6w7k40r1s1u2-accurate-nchw2nhwc", dict(x=3, pieces=1, chunks=4, xs=1)),
    ("n5c96h1w1k33r1s1-accurate+bias", dict(x=3, pieces=1, bn=8, chunks=4, xs=1)),
    ("n1c32h3w5k8r1s1-f8-nhwc", dict(xs=1)),
    ("n1c256h7w7k70r3s3p1-f8-nhwc+bias+relu", dict(bn=56, chunks=8, wm=2, stages=6)),
    ("n1c128h7w7k24r3s3p1-f8-nhwc", dict(xs=1, bn=24, chunks=8, pieces=1)),
    ("n2c96h9w7k70r3s2p1.0.0.1u2d2g2-f8-nhwc+add", dict(xs=1, wn=2, sg=2, combine=LAST)),
    ("n2c72h9w7k70r3s3p1-f8+maxpool2", dict(x=1, chunks=4)),
    ("n2c300h9w7k70r1s1u2-f8-nchw2nhwc", dict(x=1, xs=1, chunks=16, sg=2, combine=TWO_PASS)),
    ("n1c3h19w17k70r7s7p3u2-f8-nhwc2nchw", dict(x=2, xs=1, wn=2, chunks=10)),
    ("n1c5h19w17k40r3s3p1d2-f8+maxpool2", dict(x=2, xs=1, bn=64, chunks=4)),
    ("n1c128h7w7k70r3s3p1-f8-nhwc2nchw+bias", dict(xs=1, bn=24, chunks=8, pieces=1, sc=4, cm=2)),
)


def _way_to_store(text: str, change: dict[str, int]) -> tuple[str, int, bool]:
    problem, used = Problem.parse(text), BASE | change
    return problem.layout_out, used["combine"], problem.epilogue.pool is not None


def _emulated() -> list[tuple[str, dict[str, int]]]:
    """Those of the cases, the least work, that show every pair of facts, and of values, that they do."""
    shown: dict[int, list[Hashable]] = {}
    for number in sorted(range(len(CASES)), key=lambda i: -Problem.parse(CASES[i][0]).flops):
        problem, used = Problem.parse(CASES[number][0]), BASE | CASES[number][1]
        coarse = dict(bn=used["bn"] % 16 > 0, stages=used["stages"] > 2, batch=used["batch"] > 1)
        shown[number] = [*facts(problem), *(used | coarse).items(), _way_to_store(*CASES[number])]
    return [CASES[number] for number in sorted(fewest(shown))]


def _with_shifts() -> Iterator[tuple[str, dict[str, int], tuple[int, ...]]]:
    """Those that are emulated; every other one of a dtype and a way to read x is also off by four bytes,
    and the first one of each way to store.

    This changes two things alone: x is copied where it was read as it is, and y is stored one by one.
    """
    seen, stored = Counter[tuple[str, int]](), set[tuple[str, int, bool]]()
    for text, change in _emulated():
        way, like = _way_to_store(text, change), (Problem.parse(text).precision, (BASE | change)["x"])
        yield text, change, (0,) if seen[like] % 2 and way in stored else (0, 4)
        seen[like] += 1
        stored.add(way)


def test_every_way_to_store_is_off_by_four_bytes_somewhere() -> None:
    off = {_way_to_store(text, change) for text, change, shifts in _with_shifts() if shifts[1:]}
    assert off == {_way_to_store(text, change) for text, change in CASES}


@pytest.mark.parametrize(("text", "change", "shifts"), [*_with_shifts()])
def test_by_emulation(text: str, change: dict[str, int], shifts: tuple[int, ...], runtime: Runtime) -> None:
    problem = Problem.parse(text)
    runtime.device = replace(runtime.device, max_cluster=8)
    config = Config.make("hopper", BASE | change)
    assert family_of("hopper").refuses(problem, runtime.device) is None
    plan = Plan.make(runtime, problem, config)
    for shift in shifts:
        _agrees(plan, shift)


def _used(problem: Problem, runtime: Runtime) -> Runtime:
    """The GPU, or what emulates it, if the family runs there."""
    if reason := family_of("hopper").refuses(problem, runtime.device):
        pytest.skip(reason)
    return runtime


STAYING = (
    ("n64c24h9w7k136r3s3p1-f16-nhwc+bias+relu", dict(batch=3, chunks=4, stages=3, wm=3, wn=2, xs=1)),
    ("n50c32h9w9k80r5s3p2d2-bf16-nhwc", dict(batch=15, bn=40, chunks=4, wn=2, xs=1)),
    ("n40c64h10w10k128r3s3p1g4-tf32-nhwc", dict(batch=9, bn=48, chunks=4, wn=3, xs=1)),
    ("n33c48h13w11k264r1s1u2-i8-nhwc", dict(bn=8, chunks=4, wm=2, wn=3, xs=1)),
    ("n30c72h14w9k200r2s3p1-f16-nhwc+relu", dict(batch=6, bn=8, mb=2, stages=3, tall=1, wm=2, wn=2, xs=4)),
    ("n70c64h14w15k136r1s1-f16-nhwc+bias", dict(batch=2, bn=8, mb=2, stages=8, wm=3, xs=1)),
    ("n70c64h14w15k136r1s1-tf32-nhwc+bias", dict(bn=64, chunks=8, stages=6, wm=2, xs=1)),
    ("n70c64h14w15k136r1s1-f16-nhwc+add+relu", dict(bn=40, chunks=8, mb=2, stages=4, wm=2, xs=1)),
    ("n90c64h14w15k136r3s3p1-bf16-nhwc+bias+add", dict(bn=80, mb=2, wn=2, batch=3, chunks=4, stages=3, xs=2)),
    ("n300c128h7w7k264r1s1-f16-nchw2nhwc+add", PLANES | dict(bn=56, chunks=2, wm=2, stages=24)),
    ("n300c128h7w7k264r1s1-bf16-nchw2nhwc", PLANES | dict(bn=128, chunks=2, stages=24)),
    ("n24c32h29w23k200r3s3p1-i8-nhwc", dict(batch=9, bn=8, stages=4, tall=1, wm=3, wn=2, xs=1)),
    # nchw: copied first, by the copy engine as it is; rows that are rounded up, rectangles
    ("n9c32h40w80k200r3s3p1-f16+bias+relu", dict(x=1, batch=3, bn=96, chunks=4, wm=2, wn=2, xs=1)),
    ("n9c24h40w72k136r3s3p1-bf16", dict(x=1, batch=9, bn=40, chunks=2, tall=1, wm=2, wn=2, xs=2)),
    ("n40c72h20w16k264r1s1-f16+bias+silu", PLANES | dict(bn=128, chunks=4, wm=2, wn=2, stages=3)),
    ("n30c48h24w40k136r3s1p1x0-bf16", PLANES | dict(bn=40, batch=3, chunks=2, wm=3, wn=2, stages=4)),
    ("n16c72h40w64k200r3s3p1-f16+bias+relu", SLID | dict(bn=128, chunks=4, wm=2, wn=1, stages=3)),
    ("n9c40h40w256k72r3s3p1-bf16+add", SLID | dict(bn=128, chunks=2, stages=5)),
    ("n40c32h40w32k72r3s3p1-f16", SLID | dict(bn=96, chunks=4, stages=2, xs=1)),
)  # fmt: skip


@pytest.mark.parametrize(("device", "text", "change"), [(gpu, *case) for gpu in GPU for case in STAYING])
def test_blocks_that_stay(device: str, text: str, change: dict[str, int], runtime: Runtime) -> None:
    """They store one tile while the next one's data come."""
    problem = Problem.parse(text)
    plan = Plan.make(runtime, problem, Config.make("hopper", BASE | dict(pieces=1) | change))
    assert dict(plan.blueprint.defines)["STAYS"]
    _agrees(plan)


SLIDING = (
    ("n2c32h3w16k70r3s3p1-f16+bias", SLID | dict(bn=32)),
    ("n2c48h2w32k40r3s3p1-bf16+relu", SLID | dict(bn=32)),
    ("n1c32h2w64k140r3s3p1-f16", SLID | dict(bn=64, wm=2, wn=1)),
    ("n1c32h2w128k70r1s3p0x1-f16", SLID | dict(bn=64)),
    ("n2c32h2w56k40r3s3p1-f16", SLID | dict(bn=64)),
)


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), SLIDING)
def test_padding_beside_a_row_meets_filters_that_are_not_finite(
    device: str, text: str, change: dict[str, int], runtime: Runtime
) -> None:
    """No product has the padding left and right of rows: what it would add comes from the packed filter."""
    problem = Problem.parse(text)
    used = _used(problem, runtime)
    verifier = Verifier(used, problem)
    check = verifier.check(verifier.candidate(Config.make("hopper", BASE | change)), full=True)
    assert check.ok, check.reason


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
def test_the_packed_filter_has_what_padding_adds(device: str, runtime: Runtime) -> None:
    problem = Problem.parse("n1c32h2w32k70r3s3p1g2-f16")
    used = _used(problem, runtime)
    plan = Plan.make(used, problem, Config.make("hopper", BASE | SLID | dict(bn=32, xs=1)))
    w = np.ones(problem.w_shape, numpy_dtype(problem.dtype))
    w[3, 7, 2, 0], w[40, 0, 1, 2], w[5, 1, 1, 1] = np.inf, np.nan, np.nan
    given = used.alloc(w.nbytes)
    used.upload(given, w)
    found = np.empty(plan.blueprint.packed_bytes // 4, np.float32)
    used.download(plan.pack(given), found)
    rows = found[-2 * 2 * 64 :].reshape(2, 64, 2)  # of both groups: 35 channels, and 29 that are none
    assert [tuple(at) for at in np.argwhere(rows != 0)] == [(0, 3, 0), (1, 5, 1)]
    assert np.isnan(rows[0, 3, 0]) and np.isnan(rows[1, 5, 1])


def _rounded(bits: NDArray[np.uint32], to_even: bool) -> NDArray[np.uint32]:
    """Bits of f32 rounded to tf32; halves away from zero, or to even."""
    half = 0xFFF + (bits >> 13 & 1) if to_even else 0x1000
    return ((bits + half) & 0xFFFFE000).astype(np.uint32)


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize(("text", "change"), [
    ("n2c32h9w7k70r3s3p1u2-tf32-nhwc", dict(chunks=4)), ("n2c18h9w7k70r3s3p1-tf32", dict(x=1)),
    ("n2c32h9w7k70r3s3p1u2-tf32-nhwc", dict(chunks=4, pieces=1)),
    ("n2c18h9w7k70r3s3p1-tf32", dict(x=1, pieces=1)),
    ("n1c3h19w17k70r7s7p3u2-tf32", dict(x=2, xs=1, wn=2, chunks=38)),
])  # fmt: skip
def test_tf32_rounds_its_factors_and_nothing_else(
    device: str, text: str, change: dict[str, int], runtime: Runtime
) -> None:
    """Tensor cores would cut the last 13 bits off; both factors are rounded before, by a GPU to even."""
    problem = Problem.parse(text)
    used = _used(problem, runtime)
    plan, rng = Plan.make(used, problem, Config.make("hopper", BASE | change)), np.random.default_rng(1)
    x, w = (rng.standard_normal(shape, np.float32) for shape in (problem.x_shape, problem.w_shape))
    near = [_rounded(v.view(np.uint32), to_even=device == "cuda").view(np.float32) for v in (x, w)]
    y = computed(plan, x, w)
    assert np.array_equal(y, computed(plan, *near))
    ref, size = numpy_conv(problem, *near)
    assert (abs(y - ref) <= 1e-6 * size).all()
    ref, size = numpy_conv(problem, x, w)
    assert 1e-5 < (abs(y - ref) / size).max() < 2.0**-10


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize("wide", ["x", "w"])
@pytest.mark.parametrize(("text", "change"), [
    ("n2c32h9w7k70r3s3p1u2-accurate-nhwc", dict(chunks=4)), ("n2c18h9w7k70r3s3p1-accurate", dict(x=1)),
    ("n1c24h9w7k70r3s3p1-accurate-nhwc", dict(xs=1, chunks=8, pieces=1)),
    ("n2c32h9w7k70r3s3p1-accurate-nhwc", dict(x=1, chunks=4, pieces=1)),
    ("n1c3h19w17k70r5s5p2u2-accurate", dict(x=2, xs=1, chunks=20)),
    ("n2c18h9w7k70r3s3p1u2-accurate", dict(x=3, chunks=2, pieces=1)),
])  # fmt: skip
def test_accurate_multiplies_low_parts_too(
    device: str, wide: str, text: str, change: dict[str, int], runtime: Runtime
) -> None:
    """Whole numbers of 13 bits, of which tf32 holds 11: exact."""
    problem = Problem.parse(text)
    used = _used(problem, runtime)
    plan, rng = Plan.make(used, problem, Config.make("hopper", BASE | change)), np.random.default_rng(1)
    x, w = (
        rng.integers(*((-8191, 8192) if name == wide else (-3, 4)), shape).astype(np.float32)
        for name, shape in (("x", problem.x_shape), ("w", problem.w_shape))
    )
    assert np.array_equal(computed(plan, x, w), numpy_conv(problem, x, w)[0])


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("c", [64, 2304])
@pytest.mark.parametrize("change", [dict(), dict(x=3, pieces=1, xs=1)], ids=["tf32", "f16"])
def test_accurate_is_as_close_as_one_fma_after_the_other(
    device: str, change: dict[str, int], c: int, positive: bool, runtime: Runtime
) -> None:
    problem = Problem.parse(f"n1c{c}h1w56k128r1s1-accurate-nhwc")
    used = _used(problem, runtime)
    plan = Plan.make(used, problem, Config.make("hopper", BASE | dict(bn=56, chunks=8, stages=2) | change))
    rng = np.random.default_rng(c)
    x, w = (rng.standard_normal(shape, np.float32) for shape in (problem.x_shape, problem.w_shape))
    if positive:
        x, w = abs(x), abs(w)
    strict = np.zeros(problem.y_shape, np.float32)
    for i in range(c):
        strict = (strict + x[..., i, None].astype(np.float64) * w[:, i, 0, 0]).astype(np.float32)
    ref, size = numpy_conv(problem, x, w)
    errors = [np.sqrt((((y - ref) / size) ** 2).mean()) for y in (computed(plan, x, w), strict)]
    assert errors[0] < errors[1]


@pytest.mark.parametrize("device", EMULATED_AND_GPU)
@pytest.mark.parametrize("chunks", [8, 16])
def test_f8_is_as_close_as_its_bound_says(device: str, chunks: int, runtime: Runtime) -> None:
    """Long sums of numbers that are not small: tensor cores alone lose more than the bound allows."""
    problem = Problem.parse("n1c1024h5w5k70r3s3p1-f8-nhwc")
    used = _used(problem, runtime)
    config, rng = Config.make("hopper", BASE | dict(bn=40, chunks=chunks)), np.random.default_rng(1)
    plan, kind = Plan.make(used, problem, config), numpy_dtype("f8")
    x = abs(rng.standard_normal(problem.x_shape, np.float32)).astype(kind)
    w = (abs(rng.standard_normal(problem.w_shape, np.float32)) / 8).astype(kind)
    ref, size = numpy_conv(problem, x, w)
    y = computed(plan, x, w)
    assert error_bound(problem, plan.family.chain(problem, plan.device, config)).allows(y, ref, size).all()
    assert (abs(y.astype(np.float64) - ref) <= 1.1 * 2.0**-10 * size).all()  # an H100: 1.03


@pytest.mark.parametrize(
    ("device", "text", "change", "stages"),
    [(gpu, *case, stages) for gpu in GPU for case in CASES for stages in (2, 3)],
)
def test_on_a_gpu(device: str, text: str, change: dict[str, int], stages: int, runtime: Runtime) -> None:
    problem, config = Problem.parse(text), Config.make("hopper", BASE | dict(stages=stages) | change)
    try:
        plan = Plan.make(_used(problem, runtime), problem, config)
    except ConfigError:
        pytest.skip("the sum has fewer steps")
    _agrees(plan)
    _agrees(plan, shift=4)
