"""The toy CNN: a 5x5 convolution, ReLU and 2x2 max-pool in one kernel; five steps and a sweep of blocks."""

from __future__ import annotations

from tilewright.arguments.named import NAMED
from tilewright.studies.study import Step, Steps, Study, StudyLayer

TOY = StudyLayer(
    "TOY", "n1c256h228w228k256r5s5-f32+relu+maxpool2", quick="n1c16h36w36k32r5s5-f32+relu+maxpool2"
)

# Name, config, seconds, GFLOP/s.
TABLE_2 = (
    ("fused kernel (baseline)", "toy:no-tiling", "0.468s", "351.33"),
    ("shared-memory tiling (V1)", "toy:shared-tile", "0.104s", "1577.44"),
    ("V1 + pool unrolled (V2)", "toy:pool-unrolled", "0.098s", "1679.26"),
    ("V2 + const helpers (V3)", "toy:const-helpers", "0.0976s", "1684.91"),
    ("V3 + #pragma unroll (V4)", "toy:unroll-pragma", "0.0977s", "1682.32"),
)

# Block, grid, seconds, GFLOP/s. Our kernel's grid follows from the block: rows of one block are one kernel.
TABLE_3 = (
    ("16x16x4", "7x7x96", "0.098102s", "1675.98"), ("16x16x4", "7x7x128", "0.09838s", "1671.24"),
    ("16x16x4", "7x7x64", "0.098417s", "1670.61"), ("16x16x2", "7x7x256", "0.100585s", "1634.6"),
    ("16x16x2", "7x7x128", "0.100996s", "1627.95"), ("16x16x2", "7x7x192", "0.101129s", "1625.81"),
    ("16x16x1", "7x7x384", "0.110262s", "1491.15"), ("16x16x1", "7x7x256", "0.110603s", "1486.55"),
    ("16x16x1", "7x7x512", "0.110737s", "1484.75"),
    ("16x8x4", "7x14x96", "0.097117s", "1692.98"),  # Table 1: the best
)  # fmt: skip

NOW = (
    Step("direct", "shared tile, register tile, split of C", family="direct"),
    Step("as a GEMM", "im2col and a fused GEMM, which the source gave up", family="im2col"),
    Step("tilewright", "the fastest family", family="all"),
    Step("fastest peer", "with its own ReLU and pool", peer="best"),
)

STUDY = Study(
    name="toy-cnn",
    title="A toy CNN: convolution, ReLU and max-pool in one kernel",
    source="Investigation of CUDA Optimizations for Accelerating a Toy CNN Architecture, H. Grisett, UCLA",
    device="Tesla T4",
    parts=(
        Steps(
            "Table 2: step by step", (TOY,),
            tuple(
                Step(
                    name, NAMED[config].doc.rpartition(": ")[2], config=config,
                    published={"": (time, f"{rate} GFLOP/s")},
                )
                for name, config, time, rate in TABLE_2
            )
            + NOW,
            note="GFLOP/s counts the convolution alone, as in the source.",
        ),
        Steps(
            "Tables 1 and 3: the shape of a block", (TOY,),
            tuple(
                Step(
                    f"{block}, grid {grid}", config=f"toy:block-{block}",
                    published={"": (time, f"{rate} GFLOP/s")},
                )
                for block, grid, time, rate in TABLE_3
            ),
            chart="sweep",
            note="The grid is the source's. Here it follows from the block, so rows with the same block are "
            "the same kernel.",
        ),
    ),
)  # fmt: skip
