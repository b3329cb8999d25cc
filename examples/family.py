"""A kernel family to begin from, small and whole: copy it with family.cu and see docs/new_family.md.

Run as it is, it draws a config for each of its examples, runs it on the CPU and compares with NumPy in f64.
"""

import random
from pathlib import Path

from tilewright.arithmetic import ceil_div, offset64
from tilewright.device import Device
from tilewright.kernels.family import Blueprint, Config, Family, Param, Rule, Values
from tilewright.kernels.limits import BLOCK, RESIDENT, ROUGHLY, blocks_param, no_kernels, registers_rule
from tilewright.kernels.split_k import left_bytes, pool_apart, share_defines
from tilewright.kernels.tile import View, image_defines, layer_defines, single_tile_defines, up_to
from tilewright.kernels.whole_sums import whole_sums
from tilewright.kernels.word import issue_slots, word_bytes
from tilewright.kernels.work import CpuWork, GpuWork, Work
from tilewright.problem import DTYPE_BYTES, DTYPES, Problem

KERNEL = Path(__file__).with_suffix(".cu").read_text("utf-8")  # in tilewright/kernels the file of its name


class Sketch(Family):
    """One pixel a thread, of a few channels; nothing is staged or shared."""

    name = "sketch"
    races = False  # it would never win
    precisions = ("f64", "f32", "f16", "bf16")  # i8 comes in words of four channels
    examples = tuple(f"n2c6h9w11k10r3s3p1g2-{dtype}-nhwc+bias+relu" for dtype in precisions)

    def refuses(self, problem: Problem, device: Device) -> str | None:
        """Take every layer of its dtypes, on a device that runs kernels."""
        return super().refuses(problem, device) or no_kernels(device)

    def params(self, problem: Problem, device: Device) -> tuple[Param, ...]:
        """Offer the tunables, outermost choice first."""
        return (
            Param("tk", up_to(problem.kg, (1, 2, 4, 8)), "output channels a thread"),
            Param("threads", (32, 64, 128, 256), "threads of a block, along a row"),
            blocks_param(1, 2, 4, 8) if device.is_gpu else blocks_param(1),
        )

    def rules(self, device: Device) -> tuple[Rule, ...]:
        """State what the hardware and the kernel forbid."""
        return RULES

    def blueprint(self, problem: Problem, device: Device, config: Config, aligned: bool = True) -> Blueprint:
        """Lay out one launch, and one that pools. All loads are of one element: any alignment will do."""
        pr, cf, view, combine = problem, config.values, View.of(problem), pool_apart(problem)
        numbers = pr.x_elements, pr.z_elements, pr.w_elements
        defines = single_tile_defines() | layer_defines(pr, view) | image_defines(pr, view) | dict(
            DTYPE=DTYPES.index(pr.dtype), TK=cf["tk"], THREADS=cf["threads"], MIN_BLOCKS=cf["mb"], N=view.n,
            K_TILES=ceil_div(pr.kg, cf["tk"]), P_TILES=view.p, Q_TILES=ceil_div(view.q, cf["threads"]),
            OFFSET64=offset64(*numbers), **share_defines(combine),
        )  # fmt: skip
        blocks, packed_bytes = _blocks(pr, cf), pr.w_bytes  # the filter as given: no pack
        return whole_sums("sketch", pr, combine, blocks, cf["threads"], defines, packed_bytes, source=KERNEL)

    def work(self, problem: Problem, device: Device, config: Config) -> Work:
        """Count what one thread of a GPU does, or one block on a core."""
        return (_gpu_work if device.is_gpu else _cpu_work)(problem, device, config.values)

    def chain(self, problem: Problem, device: Device, config: Config) -> int:
        """All products are added one after the other."""
        return problem.terms


def _blocks(pr: Problem, cf: Values) -> int:
    view = View.of(pr)
    tiles = ceil_div(pr.kg, cf["tk"]) * ceil_div(view.q, cf["threads"])
    return view.n * pr.groups * view.p * tiles


def _registers(pr: Problem, cf: Values) -> int:
    return 2 * cf["tk"] * word_bytes(pr) // 4 + 40


RULES = (
    Rule("columns", lambda problem, threads: threads == 32 or threads < 2 * View.of(problem).q,
         "threads without pixels"),
    registers_rule(_registers, lambda cf: cf["threads"], "tk threads mb", spare=ROUGHLY),
    BLOCK,
    RESIDENT,
)  # fmt: skip


def _gpu_work(pr: Problem, device: Device, cf: Values) -> GpuWork:
    tk, threads, taps, size = cf["tk"], cf["threads"], pr.terms, DTYPE_BYTES[pr.dtype]
    return GpuWork(
        blocks=_blocks(pr, cf), threads=threads, registers=_registers(pr, cf), resident=cf["mb"],
        fma=float(taps * tk * issue_slots(pr, device)), global_loads=float(taps * (1 + tk)),
        staging=6.0 * taps, epilogue=12.0 * tk, load_bytes=float(size * taps * (threads + tk)),
        store_sectors=tk * threads / 8, dram_bytes=float(pr.bytes), combine=pool_apart(pr),
        partial_bytes=left_bytes(pr, pool_apart(pr)),
        useful=pr.z_elements / (_blocks(pr, cf) * tk * threads), register_intensity=2.0 * tk / (1 + tk),
        block_intensity=2.0 * tk * threads / (tk + threads),
    )  # fmt: skip


def _cpu_work(pr: Problem, device: Device, cf: Values) -> CpuWork:
    """A core takes the threads of a block one after the other, in scalars."""
    tk, threads, taps, word = cf["tk"], cf["threads"], pr.terms, float(DTYPE_BYTES[pr.dtype])
    inputs, products = float(taps * threads), float(taps * threads * tk)
    return CpuWork(
        blocks=_blocks(pr, cf), dram_bytes=float(pr.bytes), combine=pool_apart(pr),
        partial_bytes=left_bytes(pr, pool_apart(pr)), useful=pr.z_elements / (_blocks(pr, cf) * tk * threads),
        register_intensity=2.0 * tk / (1 + tk), block_intensity=2.0 * tk * threads / (tk + threads),
        vectors=tk + 1, width=1, multiply_adds=products, filter_loads=products, input_loads=inputs,
        turns=round(inputs), copying=0.0, storing=12.0 * tk * threads, filter_bytes=word * products,
        filter_once_bytes=word * taps * tk, filter_tile_bytes=word * taps * tk, input_bytes=word * inputs,
        input_tile_bytes=0,
    )  # fmt: skip


def main() -> None:
    """Run a config of each example on the CPU, and compare."""
    import numpy as np

    from tilewright.checking.inputs import normal_inputs
    from tilewright.kernels.error_bound import error_bound
    from tilewright.kernels.untuned.reference import numpy_conv
    from tilewright.plans.layer import LayerPlan
    from tilewright.plans.plan import Plan
    from tilewright.plans.provenance import UNSAID
    from tilewright.runtime import open_runtime
    from tilewright.search.space import sample

    runtime, sketch = open_runtime("cpu"), Sketch()
    for text in sketch.examples:
        problem = Problem.parse(text)
        config = sample(sketch, problem, runtime.device, random.Random(0))
        plan = LayerPlan(Plan(runtime, problem, sketch, config, UNSAID))
        given = normal_inputs(problem, 1)
        y = np.asarray(plan(given.x, plan.pack(given.w), given.bias), np.float64)
        ref, size = numpy_conv(problem, given.x, given.w, given.bias)
        allowed = error_bound(problem, sketch.chain(problem, runtime.device, config))
        print(f"{text} by {config}: right: {allowed.allows(y, ref, size).all()}")


if __name__ == "__main__":
    main()
