// largest: the largest finite magnitude of x, for who splits its numbers in two of f16 (halves.h, nhwc.cu): of each
// block's share, by its bits, in found[2 + block]; and nothing in found[1] yet, where nhwc.cu adds up what speaks
// against the split.
//
//   COUNT   numbers of x      BLOCKS   blocks
//
// Example: 256 x 34 x 34: 145 blocks, whose threads read eight numbers each at once.

#include "halves.h"

BOUNDED_KERNEL(largest, 256, 1)(const GLOBAL unsigned *RESTRICT x, GLOBAL int *RESTRICT found) {
    SHARED_FLAG(most);
    CHAIN_WAIT();
    CHAIN_NEXT();
    int size = 0;
    for (offset_t first = (offset_t)GROUP(0) * 256 + THREAD(0); first < COUNT; first += 8 * 256 * BLOCKS) {
        unsigned bits[8];
        UNROLL for (int i = 0; i < 8; i++) {
            const offset_t at = first + (offset_t)i * (256 * BLOCKS);
            bits[i] = at < COUNT ? x[at] : 0;
        }
        UNROLL for (int i = 0; i < 8; i++) size = max(size, finite_size(bits[i]));
    }
    size = largest_of_block(size, most);
    if (THREAD(0) == 0) found[2 + GROUP(0)] = size;
    if (GROUP(0) == 0 && THREAD(0) == 0) found[1] = 0;
}
