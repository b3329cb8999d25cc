"""LeNet-style layers at batch 10000: four steps, with the times of both layers summed, as in the source."""

from __future__ import annotations

from tilewright.studies.study import Step, Steps, Study, StudyLayer

LAYERS = (
    StudyLayer("L1", "n10000c1h86w86k4r7s7-f32", quick="n8c1h86w86k4r7s7-f32"),
    StudyLayer("L2", "n10000c4h40w40k16r7s7-f32", quick="n8c4h40w40k16r7s7-f32"),
)
SUMS = (
    "It publishes sums of both layers. Of its last two steps the four configs of direct that the model ranks "
    "first are timed (in a quick run one); the fastest counts."
)

STUDY = Study(
    name="lenet",
    title="LeNet-style forward layers, batch 10000",
    quick_title="LeNet-style forward layers, batch 8",
    source="LeNet kernels: four optimisations of a forward convolution",
    device="GPU not named",
    parts=(
        Steps(
            "Four steps, both layers", LAYERS,
            (
                Step("weights in constant memory",
                     "one output a thread; the filter comes through the read-only cache",
                     config="textbook:step=0.bw=16.bh=16.bk=1.pool=0", published={"sum": ("33.32ms",)}),
                Step("unrolled, __restrict__", "shared tile, filter loops unrolled",
                     config="textbook:step=2.bw=16.bh=16.bk=1.pool=0", published={"sum": ("18.83ms",)}),
                Step("a kernel for each layer size", "the layer's own register tile; no shared memory",
                     family="direct", pin={"x": 0}, published={"sum": ("13.24ms",)}),
                Step("shared memory and registers", "register tiles, input staged in shared memory",
                     family="direct", pin={"x": 1}, published={"sum": ("4.228ms",)}),
                Step("tilewright", "the fastest family", family="all"),
                Step("fastest peer", peer="best"),
            ),
            total=True,
            note=f"The source gives no sizes: these are what its code fits. {SUMS}",
            quick_note=f"The source gives no sizes: these are what its code fits, but for the batch. {SUMS}",
        ),
    ),
)  # fmt: skip
