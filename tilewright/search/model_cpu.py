"""Predict the time of a config on CPU cores from its counts: pure arithmetic, no backend and no clock.

What the model leaves out: the order of blocks in the last cache, conflicts of cache sets, clock changes
under load, other work on the machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf

from tilewright.arithmetic import norm
from tilewright.device import Device
from tilewright.kernels.tile import ATOMIC, LAST, NONE, TWO_PASS
from tilewright.kernels.work import CpuWork
from tilewright.record import Estimate


@dataclass(frozen=True)
class CoreCoefficients:
    """Constants of the CPU model, of one core. Source: fitted to trials on a 4-core Zen 4 (AVX-512, PoCL).

    Those of a partial sum were measured again on one core of such a CPU (``direct``, 2 and 4 shares of two
    layers): 11 cycles with atomics, without contention from other cores, and 0.8 to 2.2 and 0.8 to 1.1 for
    the other two, including blocks and launches that the model counts separately. ``overlap`` was fitted
    again to 42 kernels of 22 layers on two cores of a Zen 4, whose taps ask for the filter ahead.

    Attributes:
        issue: instructions a cycle.
        loads: loads a cycle.
        turn_instructions: of an iteration of the inner loop beyond loads and multiply-adds.
        latency: cycles of a multiply-add, and so the least of an iteration. Those are of the clock that the
            device reports: Zen 4 takes 4 of a higher one (``grouped``, 31x31, 1 to 8 accumulators;
            ``direct``, 3x3, 1 to 3).
        crowding: order of the norm that combines the cycles of pipes, ports and latency, which delay one
            another. Infinite: only the longest counts.
        l1_bytes, l2_bytes: sizes of the caches.
        usable: share of a cache that one array may use.
        l1_rate, l2_rate, l3_rate: bytes per cycle from the caches.
        place_rate: bytes per cycle of an input that is read in place, from the third-level cache. Infinite:
            it costs nothing, as the constants of AVX-512 were fitted.
        exposed: share of the shorter of arithmetic and caches that does not overlap with the longer.
        copy_cycles, store_cycles: of an instruction that copies the input, or stores the output.
        move_rate: bytes per cycle of launches that only move or transform data.
        tail: blocks by which the last core finishes late, on average.
        block_cycles: of fetching a block's index and its setup.
        next_launch_us: each launch after the first.
        overlap: share of the shorter of computing and main memory that overlaps with the longer.
        atomic_cycles, two_pass_cycles, last_cycles: of a partial sum that is combined in this way.
    """

    issue: float = 4.0
    loads: float = 2.3
    turn_instructions: float = 5.0
    latency: float = 3.0
    crowding: float = inf
    l1_bytes: float = 32768.0
    l2_bytes: float = 1048576.0
    usable: float = 0.8
    l1_rate: float = 36.0
    l2_rate: float = 14.0
    l3_rate: float = 8.7
    place_rate: float = inf
    exposed: float = 0.15
    copy_cycles: float = 0.6
    store_cycles: float = 0.8
    move_rate: float = 3.5
    tail: float = 0.15
    block_cycles: float = 400.0
    next_launch_us: float = 20.0
    overlap: float = 0.9
    atomic_cycles: float = 20.0
    two_pass_cycles: float = 1.0
    last_cycles: float = 0.4


CORE = CoreCoefficients()
# Of Zen 3 with AVX2. In its first-level cache tiles of 2x4, 2x5, 2x6, 2x7, 3x4 and 1x7 take 4.7, 5.3, 6.4,
# 7.5 to 9.8, 6.5 and 5.2 cycles a turn. The norm of order 4 gives 4.9, 5.7, 6.5, 8.7, 6.4 and 5.1; the
# longest alone 4, 5, 6, 7.5, 6 and 4. Reads take 31 bytes a cycle from the second-level cache, 19 from the
# third.
AVX2_CORE = CoreCoefficients(
    issue=6.0, loads=2.0, latency=4.0, crowding=4.0, l2_bytes=524288.0, l2_rate=20.0, l3_rate=12.0,
    place_rate=12.0, overlap=0.7,
)  # fmt: skip


def cpu_estimate(device: Device, work: CpuWork) -> Estimate:
    """Model of a CPU: cores take blocks in turn, each bound by its busiest pipe or cache."""
    k = AVX2_CORE if device.lanes == 8 else CORE
    flops = device.rates.f32_tflops * 1e3 / device.units  # in GFLOP/s
    # No core does more than two vectors a cycle: a higher peak tells a higher clock.
    clock_ghz = max(device.clock_ghz, flops / (4.0 * device.lanes))
    cycle_us, lanes = 1e-3 / clock_ghz, flops / (2.0 * clock_ghz)  # multiply-adds a cycle
    pipes = work.multiply_adds * work.width / lanes
    loads = work.input_loads + work.filter_loads
    ports = loads / k.loads
    issue = (work.multiply_adds + loads + work.turns * k.turn_instructions) / k.issue
    latency = max(work.turns, work.chain) * k.latency
    busiest = norm((pipes, ports, issue, latency), k.crowding)
    caches = _cache_cycles(work, k)
    longer, shorter = max(busiest, caches), min(busiest, caches)
    block = longer + k.exposed * shorter
    copying, storing = work.copying * k.copy_cycles, work.storing * k.store_cycles
    rounds = ceil(work.blocks / device.units) + k.tail  # a core may start its last block late
    compute = (block + copying + storing + k.block_cycles) * rounds * cycle_us
    memory = work.dram_bytes / (device.rates.read_gbs * 1e3)
    moving = work.more_bytes / device.units / k.move_rate
    terms = {
        "launch_us": device.rates.empty_us,
        "main_loop_us": (block + k.block_cycles) * rounds * cycle_us,
        "copying_us": copying * rounds * cycle_us,
        "stores_us": storing * rounds * cycle_us,
        "memory_not_hidden_us": max(memory - compute, 0.0) + (1.0 - k.overlap) * min(memory, compute)
        + work.memory_waits / device.units * cycle_us,
        "combine_us": _cpu_combine_us(device, work, k),
        "other_launches_us": work.more_launches * k.next_launch_us + moving * cycle_us,
    }
    facts = {
        "multiply_add_us": pipes * rounds * cycle_us,
        "load_ports_us": ports * rounds * cycle_us,
        "issue_slots_us": issue * rounds * cycle_us,
        "latency_us": latency * rounds * cycle_us,
        "caches_us": caches * rounds * cycle_us,
        "dram_us": memory,
        "blocks": work.blocks,
        "waves": work.blocks / device.units,
        "tail": rounds * device.units / work.blocks - 1.0,
        "input_tile_bytes": work.input_tile_bytes,
        "vector_registers": work.vectors,
        "useful_outputs": work.useful,
        "register_intensity_flops_per_element": work.register_intensity,
        "block_intensity_flops_per_element": work.block_intensity,
    }
    return Estimate(sum(terms.values()), terms, facts)


def _cache_cycles(work: CpuWork, k: CoreCoefficients) -> float:
    """Cycles that a block waits for the caches, if nothing else takes time."""
    again = max(work.filter_bytes - work.filter_once_bytes, 0.0)
    near = k.l1_rate if work.filter_tile_bytes < k.usable * k.l1_bytes else k.l2_rate
    filter_rate = near if work.filter_tile_bytes < k.usable * k.l2_bytes else k.l3_rate
    input_rate = k.l1_rate if work.input_tile_bytes < k.usable * k.l1_bytes else k.l2_rate
    turns = work.place_turns if work.place_bytes > k.usable * k.l2_bytes else 1
    first = work.filter_once_bytes / k.l3_rate + turns * work.place_bytes / k.place_rate
    return again / filter_rate + first + work.input_bytes / input_rate


def _cpu_combine_us(device: Device, work: CpuWork, k: CoreCoefficients) -> float:
    """Cost of combining the shares of C."""
    if work.combine == NONE:
        return 0.0
    each = {ATOMIC: k.atomic_cycles, TWO_PASS: k.two_pass_cycles, LAST: k.last_cycles}[work.combine]
    cycles = work.partial_bytes / 4.0 / device.units * each
    return cycles * 1e-3 / device.clock_ghz + (k.next_launch_us if work.combine != LAST else 0.0)
