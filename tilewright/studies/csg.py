"""C Split Globally: direct convolution with its sum over C split at each level, on YOLO9000 and ResNet."""

from __future__ import annotations

from tilewright.problem import shapes
from tilewright.studies.study import Step, Steps, Study, StudyLayer, TuningCurves

QUICK = {
    "Y0": "n1c3h56w56k32r3s3p1-f32", "R11": "n1c64h14w14k128r1s1u2-f32", "R12": "n1c128h7w7k128r3s3p1-f32",
}  # fmt: skip
LAYERS = tuple(
    StudyLayer(layer.name, str(layer.problem), QUICK.get(layer.name, ""))
    for layer in shapes.load(["yolo9000", "resnet"])
)
SHRINKING = tuple(layer for layer in LAYERS if layer.name in ("R2", "R6", "R9", "R12", "Y12", "Y18"))
UNDIVIDED = {"sw": 1, "sb": 1, "sc": 1, "sg": 1}
MORE = (2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 14, 16, 20, 22, 24, 32, 48, 64)
LED_TO = (
    "Of each {} the four configs that the model ranks first are timed (in a quick run one); the fastest "
    "counts."
)

STUDY = Study(
    name="csg",
    title="C Split Globally: split-C direct convolution",
    source="C Split Globally: High Performance Convolution Kernels for CNNs, E. Barton, UUCS-22-001, 2022",
    device="2080 Ti and V100",
    parts=(
        Steps(
            "YOLO9000 and ResNet", LAYERS,
            (
                Step("direct", "the thesis's kernel, carried on", family="direct"),
                Step("tilewright", "the fastest family", family="all"),
                Step("cuDNN, GEMM only", "what the thesis compared with", peer="cudnn-gemm"),
                Step("cuDNN", "its fastest engine", peer="cudnn"),
                Step("TVM", peer="tvm"),
                Step("fastest peer", peer="best"),
            ),
            chart="bars", baseline="fastest peer",
            note="The thesis prints its times as bars alone: none can be read. It left Y23 out: 28269 "
            "filters are no multiple of 32.",
        ),
        Steps(
            "The sum over C, split at each level", SHRINKING,
            (
                Step("none", family="direct", pin=UNDIVIDED, cpu_pin={"sg": 1}),
                Step("warp", family="direct", pin={**UNDIVIDED, "sw": (2, 4, 8)}),
                Step("block", family="direct", pin={**UNDIVIDED, "sb": (2, 4, 8)}),
                Step("cluster", "a GPU has these since Hopper; the thesis's had none", family="direct",
                     pin={**UNDIVIDED, "sc": (2, 4, 8)}),
                Step("grid", "the thesis's choice", family="direct", pin={**UNDIVIDED, "sg": MORE},
                     cpu_pin={"sg": (2, 4, 8, 16)}),
            ),
            note=LED_TO.format("level"),
        ),
        Steps(
            "Bank conflicts: padding of the output tile", SHRINKING,
            (
                Step("unpadded", family="direct", pin={"out": 1, "pad": 0}),
                Step("padded", "one float a row", family="direct", pin={"out": 1, "pad": 1}),
                Step("from registers", "no tile in shared memory", family="direct", pin={"out": 0}),
            ),
            note=LED_TO.format("way"),
        ),
        Steps(
            "Operational intensity, and what the model makes of it", LAYERS,
            (Step("direct", family="direct"),), chart="model", model=True,
            note="Flops for each element loaded into registers, and for each one staged by a block: the "
            "thesis's two equations.",
        ),
        TuningCurves(
            "The search: best so far against time",
            tuple(layer for layer in LAYERS if layer.name in ("R9", "R12")),
            published={"all": "about an hour for thousands of configs, 15 to 20 min for small dimensions"},
            note="The thesis tried every config.",
        ),
        Steps(
            "What a block stages in shared memory", SHRINKING,
            (
                Step("nothing", "its chapter 4: input and filter from global memory, sums in registers",
                     family="direct", pin={"x": 0, "f": 0}),
                Step("input", "its chapter 5, the thesis's kernel", family="direct", pin={"x": 1, "f": 0}),
                Step("input and filter", "its chapter 7, which the thesis gave up: one buffer",
                     family="direct", pin={"x": 1, "f": 1, "stages": 1}),
                Step("double buffering", "the same with two buffers, also given up there",
                     family="direct", pin={"x": 1, "f": 1, "stages": 2}),
            ),
            note=LED_TO.format("way"),
        ),
    ),
)  # fmt: skip
