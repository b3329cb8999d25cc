"""im2col and the matrix product at 4096 x 4096 x 4096: from a CPU loop to tensor cores."""

from __future__ import annotations

from tilewright.studies.study import Breakdown, Im2colMemory, Step, Steps, Study, StudyLayer

GEMM = StudyLayer("GEMM", "n1c4096h64w64k4096r1s1-f32", quick="n1c128h16w16k128r1s1-f32")
SMALL = StudyLayer("small GEMM", "n1c1024h32w32k1024r1s1-f32", quick="n1c128h16w16k128r1s1-f32")

LADDER = (
    Step("simple_fpu", "all from global memory", config="gemm:naive", published={"": ("1147.35ms",)}),
    Step("optimized_fpu, uncoalesced", "tiles of 32 in shared memory", config="gemm:tiled-uncoalesced",
         published={"": ("406.769ms",)}),
    Step("optimized_fpu, coalesced", "tiles of a transposed operand", config="gemm:tiled-coalesced",
         published={"": ("141.204ms", "111.721 ms in its last run")}),
    Step("simple_wmma", "tensor cores from global memory, f16", config="gemm:tensor-naive", dtype="f16",
         published={"": ("17.9091ms",)}),
    Step("optimized_wmma", "tensor cores and shared memory, f16", config="gemm:tensor-tiled", dtype="f16",
         published={"": ("6.18253ms",)}),
)  # fmt: skip

STUDY = Study(
    name="im2col-gemm",
    title="im2col, and D = alpha A B + beta C on CUDA cores and tensor cores",
    source="Mapping and Accelerating a Convolutional Neural Network on a GPU, S.-K. Huang",
    device="GPU not named",
    parts=(
        Steps(
            "The ladder at 4096 x 4096 x 4096", (GEMM,),
            (
                *LADDER,
                Step("tilewright f32", family="all"), Step("fastest peer f32", peer="best"),
                Step("tilewright f16", family="all", dtype="f16"),
                Step("fastest peer f16", peer="best", dtype="f16"),
            ),
            quick_title="The ladder at 128 x 128 x 256",
        ),
        Steps(
            "The CPU baseline, at 1024 x 1024 x 1024", (SMALL,),
            (
                Step("CPU loop nest", "gemm:naive on the host's cores", config="gemm:naive", on="cpu",
                     published={"": ("1.53906e6ms", "at 4096 x 4096 x 4096")}),
                Step("blocked, vectors", "direct on the host's cores", family="direct", on="cpu"),
                Step("tilewright", "the fastest family, on the study's device", family="all"),
            ),
            note="The source's 1539 s are of 64 times the work: 0.089 GFLOP/s.",
            quick_title="The CPU baseline, at 128 x 128 x 256",
            quick_note="The source's 1539 s are of 16,384 times the work: 0.089 GFLOP/s.",
        ),
        Steps(
            "Tile size against time", (GEMM,),
            tuple(
                Step(f"tile {side}", config=f"gemm:tile-{side}",
                     published={"": ("141.204ms",)} if side == 32 else {})
                for side in (4, 8, 16, 32)
            ),
            chart="sweep",
            note="The source's plot is lost; its text has the time of 32.",
        ),
        Breakdown(
            "Kernel time and the whole run", (GEMM,),
            (
                Step("simple_fpu", config="gemm:naive",
                     published={"": ("1647ms", "kernel 1147.35 ms", "copy to device 31 ms")}),
                Step("optimized_fpu", config="gemm:tiled-coalesced",
                     published={"": ("833ms", "kernel 111.721 ms", "transpose 376 ms")}),
                Step("simple_wmma", config="gemm:tensor-naive", dtype="f16",
                     published={"": ("363ms", "kernel 17.9091 ms")}),
                Step("optimized_wmma", config="gemm:tensor-tiled", dtype="f16",
                     published={"": ("352ms", "kernel 6.18253 ms")}),
                Step("tilewright", family="all"),
            ),
        ),
        Im2colMemory(
            "Memory of im2col", ("resnet", "yolo9000", "lenet", "toy"),
            note="The formula knows no padding, stride or dilation; 'columns here' is what the im2col family "
            "would hold.",
        ),
    ),
)  # fmt: skip
