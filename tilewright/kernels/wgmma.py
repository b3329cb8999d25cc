"""Facts and times of ``wgmma``, of the copy engine and of their barriers; all that use them count alike."""

from __future__ import annotations

TEAM = 64  # pixels of a warpgroup, the rows of a product
ALIGNMENT = 1024  # bytes: swizzled rows of shared memory begin at a multiple
BARRIER = 8  # bytes; a buffer has two
BANKS = 128  # bytes, a word of each bank of shared memory: what threads, or tensor cores, read in a cycle
SUM_BYTES = 4

# Fitted to hopper's trials of f16 and i8 in benchmarks/h100/trials.jsonl.gz, unless marked as measured by
# clocks inside the kernel or by a microbenchmark (benchmarks/h100/NOTES.md), or as guesses.
LOOP = 300.0  # cycles to wait for a batch, start its products and release the one before (clocks: 265)
SENDING = 200.0  # cycles of a thread to wait for a buffer, announce a copy and issue it (microbenchmark)
FETCH = 0.47  # time to the first data if the copy engine copies everything, relative to the usual
SENDING_MORE = 50.0  # cycles for another copy that the same barrier waits for (guess)
BULK = 0.5  # relative time of the L2 cache for a byte copied in bulk
EIGHTH = 4.0  # cycles of 64 x 8 outputs, 32 bytes deep: 2,048 products of f16, half of tf32 (microbenchmark)
POWER = 1.35  # factor of the products' cycles: the clock drops when all units work (18 layers, 1.24 to 1.5)
