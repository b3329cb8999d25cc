"""Predict the time of a config from its counts: pure arithmetic, no backend and no clock.

A kernel on a GPU is bound by the busiest of: issue slots, tensor cores, the shared-memory port, the L2
cache, main memory; to that are added the launch, the first loads, the stores and the combination of
the shares of C. On a CPU (``model_cpu.py``) it is bound by vector multiply-adds, loads, or main memory.

What the model leaves out: bank conflicts of staging copies, instruction-cache misses, the order of
blocks in the L2 cache, clock changes under load, uneven work of blocks at the image's edge.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from tilewright.arithmetic import norm
from tilewright.device import Device
from tilewright.kernels.config import Config
from tilewright.kernels.family import Family
from tilewright.kernels.tile import ATOMIC, LAST, TWO_PASS
from tilewright.kernels.work import CpuWork, GpuWork
from tilewright.problem import Problem
from tilewright.record import Estimate
from tilewright.search.model_cpu import cpu_estimate


@dataclass(frozen=True)
class Coefficients:
    """Constants of the GPU model. Source: fitted to the trials in benchmarks/h100/trials.jsonl.gz, both to
    all times and to the rank of the best.

    Attributes:
        issue_share: share of its issue slots that a scheduler can use with any number of warps
            (register-bank conflicts of multiply-adds).
        issue_latency: warps a scheduler needs to hide half of its stalls.
        step_cycles: cycles of an iteration of the main loop beyond its work (barrier, pipeline fill).
        exposed_cycles: memory latency that an iteration without double buffering exposes, in cycles.
        flight_cycles: latency of a staging copy, in cycles; all buffers but one are in flight.
        fetch_cycles: cycles from the launch of a block to its first data, if its threads load.
        wavefront_cycles: cycles of the shared-memory port for a wavefront.
        l2_bytes_per_cycle: bytes that a unit gets from the L2 cache per cycle, with all units busy.
        load_cycles: issue slots of a load directly from global memory.
        sector_cycles: cycles of a unit to store one 32-byte sector.
        cluster_us: the launch and the barriers of a cluster.
        peer_bytes_per_cycle: bytes that a unit reads from the shared memory of its cluster per cycle.
        arrival_us: one round trip of the last-arriver protocol.
        atomic_us: zeroing the output for atomics, and the adds without the time of their bytes.
        next_launch_us: each launch after the first.
        memory_share: share of the calibrated read bandwidth that a kernel gets for the first ``short_bytes``
            that it reads.
        stream_share: share that it gets for further bytes, and kernels whose threads only read for all.
        short_bytes: bytes of main memory.
        cluster_units: share of a GPU's units that clusters of 4 and of 8 blocks can occupy: a cluster lies
            within one of the GPU's clusters of units.
        sharpness: order of the norm that combines overlapping times; the higher, the better they overlap.
    """

    issue_share: float = 0.86
    issue_latency: float = 0.515
    step_cycles: float = 111.0
    exposed_cycles: float = 4500.0
    flight_cycles: float = 684.0
    fetch_cycles: float = 2130.0
    wavefront_cycles: float = 1.64
    l2_bytes_per_cycle: float = 30.0
    load_cycles: float = 21.6
    sector_cycles: float = 0.774
    cluster_us: float = 8.1
    peer_bytes_per_cycle: float = 20.2
    arrival_us: float = 2.6
    atomic_us: float = 2.8
    next_launch_us: float = 2.2
    memory_share: float = 0.592
    stream_share: float = 0.95
    short_bytes: float = 24e6
    cluster_units: tuple[float, float] = (0.94, 0.91)
    sharpness: float = 3.7


H100 = Coefficients()
SECTOR_BYTES = 32.0


def estimate(family: Family, problem: Problem, device: Device, config: Config) -> Estimate:
    """Predict the cold time of a legal config, in us, with the terms that make it up."""
    work = family.work(problem, device, config)
    return cpu_estimate(device, work) if isinstance(work, CpuWork) else gpu_estimate(device, work, H100)


def gpu_estimate(device: Device, work: GpuWork, k: Coefficients) -> Estimate:
    """Model of a GPU: the busiest pipe of a unit, the latencies of a wave, the launches of a run."""
    units = int(device.units * (k.cluster_units[work.cluster_blocks > 4] if work.cluster_blocks > 2 else 1.0))
    per_unit = ceil(work.blocks / units)
    together = min(work.resident, per_unit)
    full, rest = divmod(per_unit, together)
    rounds = {together: full, rest: 1} if rest else {together: full}  # how often so many blocks run at once
    cycle_us = 1e-3 / device.clock_ghz

    issued = {n: _issue(work, k, n) for n in rounds}
    issue = sum(issued[n] * times for n, times in rounds.items())
    port = work.wavefronts * k.wavefront_cycles * per_unit
    l2 = work.load_bytes * per_unit / k.l2_bytes_per_cycle
    tensor = work.tensor_cycles * per_unit
    alone = _alone(work, k)
    pipes = [pipe / per_unit for pipe in (port, l2, tensor)]
    bounds = {n: (issued[n], alone, *[pipe * n for pipe in pipes]) for n in rounds}
    compute = sum(norm(bounds[n], k.sharpness) * times for n, times in rounds.items())
    memory = _memory_us(device, work, k)
    longer = norm((compute * cycle_us, memory), k.sharpness)
    terms = {
        "launch_us": device.rates.empty_us,
        "first_loads_us": k.fetch_cycles * work.fetch * cycle_us,
        "main_loop_us": longer,
        "stores_us": work.store_sectors * k.sector_cycles * per_unit * cycle_us,
        "combine_us": _combine_us(device, work, k, per_unit),
        "other_launches_us": _others_us(device, work, k),
    }
    stalls = max(0.0, compute - max(issue, port, l2, tensor))
    facts = {
        "issue_slots_us": issue * cycle_us,
        "shared_port_us": port * cycle_us,
        "l2_us": l2 * cycle_us,
        "stalls_us": stalls * cycle_us,
        "dram_us": memory,
        "blocks": work.blocks,
        "threads_per_block": work.threads,
        "registers_per_thread": work.registers,
        "shared_bytes_per_block": work.shared_bytes,
        "blocks_per_unit_at_once": together,
        "occupancy": together * work.threads / device.threads_per_unit,
        "waves": work.blocks / (units * together),
        "tail": per_unit * units / work.blocks - 1.0,
        "useful_outputs": work.useful,
        "register_intensity_flops_per_element": work.register_intensity,
        "block_intensity_flops_per_element": work.block_intensity,
    }
    if not work.register_intensity:
        del facts["register_intensity_flops_per_element"]
    if tensor:
        facts["tensor_us"] = tensor * cycle_us
    return Estimate(sum(terms.values()), terms, facts)


def _memory_us(device: Device, work: GpuWork, k: Coefficients) -> float:
    """Time of main memory: the first MB read get a share of the bandwidth, the rest nearly all of it."""
    written = min(SECTOR_BYTES * work.store_sectors * work.blocks, work.dram_bytes)
    short = 0.0 if work.streams else min(work.dram_bytes - written, k.short_bytes)
    byte_us = 1.0 / (device.rates.read_gbs * 1e3)
    return byte_us * (short / k.memory_share + (work.dram_bytes - short) / k.stream_share)


def _issue(work: GpuWork, k: Coefficients, blocks: int) -> float:
    """Cycles that the fullest scheduler of a unit issues for so many blocks at once."""
    slots = work.fma + work.shared_loads + work.staging + work.epilogue + work.global_loads * k.load_cycles
    warps = ceil(blocks * ceil(work.threads / 32) / 4)
    return slots * (warps + k.issue_latency) / k.issue_share


def _alone(work: GpuWork, k: Coefficients) -> float:
    """Cycles of a block that runs alone: its first loads, and the iterations of its main loop.

    An iteration takes its instructions and a barrier, and at least as long as copies need to arrive. A
    persistent block loads the first data of a tile during the tile before.
    """
    own = _issue(work, k, 1) / max(1, work.steps) + k.step_cycles
    if work.buffers == 1:
        own += k.exposed_cycles
    least = k.flight_cycles / (work.buffers - 1) if work.buffers > 1 else 0.0
    first = 0.0 if work.stays else k.fetch_cycles * work.fetch
    return first + work.steps * max(own, least, work.turn_cycles)


def _others_us(device: Device, work: GpuWork, k: Coefficients) -> float:
    """Launches that only move data: through the L2 cache what fits in it, the rest through main memory."""
    l2_gbs = k.l2_bytes_per_cycle * device.clock_ghz * device.units
    near = min(work.more_bytes, device.l2_bytes)
    moved = near / l2_gbs + (work.more_bytes - near) / (device.rates.read_gbs * k.stream_share)
    return work.more_launches * k.next_launch_us + moved * 1e-3


def _combine_us(device: Device, work: GpuWork, k: Coefficients, per_unit: int) -> float:
    """Cost of combining the shares of C."""
    l2_gbs = k.l2_bytes_per_cycle * device.clock_ghz * device.units
    cost = 0.0
    if work.cluster_shares > 1:
        cost += k.cluster_us + work.tile_bytes * per_unit / (k.peer_bytes_per_cycle * device.clock_ghz * 1e3)
    if work.combine == ATOMIC:
        cost += k.atomic_us + 2.0 * work.partial_bytes / (l2_gbs * 1e3)
    elif work.combine == TWO_PASS:
        cost += 1.5 * k.next_launch_us + 2.0 * work.partial_bytes / (l2_gbs * 1e3)
    elif work.combine == LAST:
        last_bytes = work.shares * work.tile_bytes / work.cluster_shares
        last = last_bytes / (k.l2_bytes_per_cycle * device.clock_ghz * 1e3)
        cost += k.arrival_us + work.partial_bytes / (l2_gbs * 1e3) + last
    return cost
