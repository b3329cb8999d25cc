"""The model's input for one Config: counts of its main kernel, and of how partial sums are combined.

A GPU and a CPU have different bottlenecks, so each has its own counts: ``GpuWork`` and ``CpuWork``. The
defaults are those of a kernel that stages nothing and does not split the sum over C.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.kernels.tile import NONE


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Counts that the models of GPUs and CPUs share.

    Attributes:
        blocks: blocks of the launch, distributed over the units (multiprocessors, cores).
        dram_bytes: bytes of the packed filter, input and output, each once.
        combine: how shares of C are combined: NONE, ATOMIC, TWO_PASS or LAST (tile.py).
        partial_bytes: bytes of partial sums written to memory, in total.
        useful: outputs asked for / outputs computed.
        register_intensity: flops per element loaded into registers (the source's equation); 0: not counted,
            of tensor cores that read shared memory themselves.
        block_intensity: flops per element staged by a block (the source's equation).
        more_launches: launches before and after the main kernel, without those that combine.
        more_bytes: bytes that those read and write, in total.
    """

    blocks: int
    dram_bytes: float
    combine: int = NONE
    partial_bytes: float = 0.0
    useful: float
    register_intensity: float = 0.0
    block_intensity: float
    more_launches: int = 0
    more_bytes: float = 0.0


@dataclass(frozen=True, kw_only=True)
class GpuWork(Counts):
    """Counts on a GPU.

    Attributes:
        threads: threads of a block.
        registers: estimate of registers of a thread.
        resident: blocks that a unit holds at once.
        shared_bytes: shared memory of a block.
        steps: iterations of a block's main loop.
        buffers: staging buffers of the main loop (0: nothing is staged).
        fma: vector-lane multiply-adds of a thread, in total.
        shared_loads: 32-bit words that a thread loads from shared memory, in total.
        global_loads: 32-bit words that a thread loads directly from global memory, in total.
        staging: instructions of a thread that stage the inputs, in total.
        epilogue: instructions of a thread after the main loop, in total.
        wavefronts: cycles for which the shared loads of a block occupy the shared-memory port, in total.
        load_bytes: bytes that a block loads from the L2 cache, in total.
        store_sectors: 32-byte sectors that a block writes.
        cluster_shares: shares of C across a cluster; 1 where ``epilogue`` counts how they meet (families with
            ``wgmma``).
        cluster_blocks: blocks of a cluster; 1 in ``direct`` and ``mma``, too, whatever their clusters: the
            model's constants were fitted that way.
        shares: shares of C across the grid.
        tile_bytes: bytes of one block's output tile.
        tensor_cycles: cycles for which a block occupies all tensor cores of a unit, in total.
        turn_cycles: least cycles of an iteration of the main loop: its data must have arrived.
        fetch: time from the launch to the first data, relative to blocks whose threads all load.
        streams: whether threads only read data that they use once, with many bytes in flight each.
        stays: whether blocks are persistent: the next tile's data arrive while sums are stored.
    """

    threads: int
    registers: int
    resident: int
    shared_bytes: int = 0
    steps: int = 1
    buffers: int = 0
    fma: float
    shared_loads: float = 0.0
    global_loads: float = 0.0
    staging: float = 0.0
    epilogue: float
    wavefronts: float = 0.0
    load_bytes: float
    store_sectors: float
    cluster_shares: int = 1
    cluster_blocks: int = 1
    shares: int = 1
    tile_bytes: float = 0.0
    tensor_cycles: float = 0.0
    turn_cycles: float = 0.0
    fetch: float = 1.0
    streams: bool = False
    stays: bool = False


@dataclass(frozen=True, kw_only=True)
class CpuWork(Counts):
    """Counts on CPU cores, where a core runs a block. Instructions, loads and bytes are a block's totals.

    Attributes:
        vectors: vector registers that the inner loop holds.
        width: 32-bit numbers of the vector of one multiply-add, of which an f64 takes two; 1: a scalar.
        multiply_adds: multiply-add instructions, or those that replace one (dot4).
        filter_loads: loads of the filter in the inner loop.
        input_loads: loads of the input in the inner loop.
        turns: iterations of the inner loop: how often each accumulator is added to.
        chain: multiply-adds of which each waits for the one before, where an iteration has several of them.
        copying: instructions that copy or convert the input before it is multiplied.
        storing: instructions from accumulators to memory.
        filter_bytes: bytes of the filter that the inner loop reads, from whichever cache.
        filter_once_bytes: distinct bytes of the filter that the block reads.
        filter_tile_bytes: bytes of the filter of one register tile, which are read again for the next one.
        input_bytes: bytes of the input that the inner loop reads, from whichever cache.
        input_tile_bytes: bytes of the input that a block reads before it, or the next block, reads one of
            them again (0: fewer than the first-level cache holds).
        place_bytes: bytes of the cache lines under a block whose input is read in place.
        place_turns: how often the block reads all of them.
        memory_waits: cycles that all cores together wait for lines of memory, beside their bytes.
    """

    vectors: int
    width: int
    multiply_adds: float
    filter_loads: float
    input_loads: float
    turns: int
    copying: float
    storing: float
    filter_bytes: float
    filter_once_bytes: float
    filter_tile_bytes: float
    input_bytes: float
    input_tile_bytes: int
    chain: float = 0.0
    place_bytes: float = 0.0
    place_turns: int = 1
    memory_waits: float = 0.0


Work = GpuWork | CpuWork
