"""DianNao's layers: block shapes, shared memory, time by activity, counters, against cuDNN and a CPU."""

from __future__ import annotations

from dataclasses import replace

from tilewright.errors import count
from tilewright.studies.published import table
from tilewright.studies.study import Breakdown, Counters, Step, Steps, Study, StudyLayer

CONV1 = StudyLayer("CONV1", "n1c64h224w224k64r3s3p1-f32", quick="n1c16h28w28k16r3s3p1-f32")
CONV2 = StudyLayer("CONV2", "n1c512h14w14k512r3s3p1-f32", quick="n1c32h14w14k32r3s3p1-f32")
CLASS1 = StudyLayer("CLASS1", "n1c25088h1w1k4096r1s1-f32", quick="n1c1024h1w1k256r1s1-f32")
CLASS2 = StudyLayer("CLASS2", "n1c4096h1w1k1024r1s1-f32", quick="n1c512h1w1k128r1s1-f32")
LED_TO = (
    "Of each step the four configs of gemv that the model ranks first are timed (in a quick run one); the "
    "fastest counts."
)
COPIED = "The source's column '32 shared' of CLASS1 repeats that of CLASS2."
F16 = "textbook has no f16, so direct runs '32x32 f16': its speed-up is that of another kernel, not of f16."
NOTES = {"conv1": (F16,), "conv2": (F16,), "class1": (LED_TO, COPIED), "class2": (LED_TO,)}

# Appendix: whole runs in ms, by (layer, shared memory or not) and dtype: those of 8x8, 16x16, 32x32 blocks.
APPENDIX = {
    ("CONV1", 0): {"f32": ("1136.123", "1016.282", "519.831"), "f16": ("849.892", "752.332", "658.096"),
                   "i8": ("648.415", "443.694", "443.550")},
    ("CONV1", 1): {"f32": ("535.369", "524.248", "527.259"), "f16": ("493.455", "471.146", "468.641"),
                   "i8": ("400.944", "407.190", "398.665")},
    ("CONV2", 0): {"f32": ("414.218", "407.248", "403.190"), "f16": ("406.792", "399.378", "406.361"),
                   "i8": ("404.467", "392.333", "413.647")},
    ("CONV2", 1): {"f32": ("484.616", "384.730", "401.057"), "f16": ("489.301", "384.670", "400.871"),
                   "i8": ("496.914", "382.040", "393.098")},
}  # fmt: skip
SIDES = (8, 16, 32)


def naive(side: int, shared: int = 0) -> str:
    """Return the config of one output per thread, in blocks of side x side."""
    return f"textbook:step={shared}.bw={side}.bh={side}.bk=1.pool=0"


def conv_steps(file: str) -> tuple[Step, ...]:
    """Return the source's sweep of a convolution: block shapes in f32, the last in f16 too."""
    theirs = table(file)
    steps = [
        Step(f"{side}x{side}", "one output a thread", config=naive(side),
             published=theirs.published("kernel", f"{side}x{side}"))
        for side in SIDES
    ]  # fmt: skip
    last = Step("32x32 f16", "direct, f16", family="direct", dtype="f16",
                published=theirs.published("kernel", "32x32 f16"))  # fmt: skip
    return (*steps, last)


def class_steps(file: str) -> tuple[Step, ...]:
    """Return the source's sweep of a classifier: threads per block, input in shared memory or not."""
    theirs = table(file)
    found = []
    for name in theirs.steps:
        threads, shared = int(name.split()[0]), int("shared" in name)
        where = "in shared memory" if shared else "from global memory"
        found.append(
            Step(name, f"{count(threads, 'thread')}, input {where}",
                 family="gemv", pin={"threads": threads, "x": shared},
                 published=theirs.published("kernel", name))
        )  # fmt: skip
    return tuple(found)


def seldom(layer: StudyLayer) -> StudyLayer:
    """Return the layer; a quick run leaves out CONV2 and CLASS2, which differ only in size."""
    return replace(layer, quick="") if layer in (CONV2, CLASS2) else layer


def appendix(layer: str) -> tuple[Step, ...]:
    """Return the steps of whole runs, over dtype, block shape and shared memory."""
    return tuple(
        Step(
            f"{dtype} {side}x{side}{' shared' if shared else ''}",
            config=naive(side, shared), dtype="" if dtype == "f32" else dtype,
            published={"": (f"{times[dtype][place]}ms",)},
        )
        for shared in (0, 1)
        for times in (APPENDIX[layer, shared],)
        for dtype in times
        for place, side in enumerate(SIDES)
    )  # fmt: skip


FOUR = tuple(seldom(layer) for layer in (CONV1, CONV2, CLASS1, CLASS2))
ON_CPU = (
    Step("blocked loop nest on the CPU", "direct on the host's cores", family="direct", on="cpu"),
    Step("tilewright", "the fastest family, on the study's device", family="all"),
)
NOW = (
    Step("tilewright", "the fastest family", family="all"),
    Step("fastest peer", peer="best"),
    Step("tilewright f16", family="all", dtype="f16"),
    Step("fastest peer f16", peer="best", dtype="f16"),
    Step("tilewright i8", family="all", dtype="i8"),
    Step("fastest peer i8", peer="best", dtype="i8"),
)
SWEEPS = {
    "conv1": (CONV1, conv_steps("diannao-conv1-times")),
    "conv2": (CONV2, conv_steps("diannao-conv2-times")),
    "class1": (CLASS1, class_steps("diannao-class1-times")),
    "class2": (CLASS2, class_steps("diannao-class2-times")),
}  # fmt: skip

STUDY = Study(
    name="diannao",
    title="Convolution and classifier layers of DianNao",
    source="Mini-Project 1, T. Kawate and A. Elamaran, CS 259",
    device="NVIDIA Titan V",
    parts=(
        *(
            Steps(f"{layer.name}: the block", (layer,), steps, chart="sweep",
                  note=" ".join(NOTES[name]))
            for name, (layer, steps) in SWEEPS.items()
        ),
        Steps("Against the peers", FOUR, NOW, chart="bars",
              baseline="fastest peer", model=True),
        Steps("Against the loop nest on a CPU that it started from", FOUR, ON_CPU,
              baseline="blocked loop nest on the CPU"),
        *(
            Breakdown(
                f"{layer.name}: time by activity", (seldom(layer),), steps, table=f"diannao-{name}-times",
                note="Calls that are made here have a time. nvprof's figures include its own cost, and the "
                "source's total counts the device's time twice, within the host's too: ours is wall clock.",
            )
            for name, (layer, steps) in SWEEPS.items()
        ),
        *(
            Counters(f"{layer.name}: counters", (seldom(layer),), steps, table=f"diannao-{name}-counters")
            for name, (layer, steps) in SWEEPS.items()
        ),
        Breakdown("Appendix: whole runs of CONV1", (CONV1,), appendix("CONV1")),
        Breakdown("Appendix: whole runs of CONV2", (seldom(CONV2),), appendix("CONV2")),
    ),
)  # fmt: skip
