// The filter in two numbers of f16 for each of f32 (halves.h), each output channel moved by a power of two of its own:
// words [group][k tile][step][part][row][chunk][4], chunks swizzled (pack_tensor.h), part 0 high and 1 low; then how
// far each row of each tile was moved, an int.
//
//   PACK_K PACK_STEPS PACK_CHUNKS PACK_C   as in pack_tensor.h
//
// A block takes row after row: it finds the largest number, then writes the row's words of all steps.
// Example: 64 channels, 3x3, PACK_CHUNKS = 8, PACK_C = 64: 9 steps, a row of each is 64 channels of a tap, twice.

#define CHUNKS PACK_CHUNKS
#include "loop.h"
#include "swizzle.h"
#include "halves.h"

#define TAPS (SIZE_R * SIZE_S)
#define TILES ((KG + PACK_K - 1) / PACK_K)
#define ROWS (GROUP_COUNT * TILES * PACK_K)
#define PART (PACK_K * CHUNKS * 4)  // words
#define TILE (PACK_STEPS * 2 * PART)

KERNEL(pack)(GLOBAL const unsigned *RESTRICT w, GLOBAL unsigned *RESTRICT packed) {
    SHARED_FLAG(most);
    NO_UNROLL for (int row = GROUP(0); row < ROWS; row += GROUPS(0)) {
        const int tile = row / PACK_K, at = row % PACK_K, k = tile % TILES * PACK_K + at, group = tile / TILES;
        GLOBAL const unsigned *from = w + (offset_t)(group * KG + k) * (CG * TAPS);
        int size = 0;
        for (int i = THREAD(0); k < KG && i < CG * TAPS; i += MAX_THREADS) size = max(size, finite_size(from[i]));
        const int shift = shift_of(largest_of_block(size, most));
        if (THREAD(0) == 0) packed[(offset_t)(GROUP_COUNT * TILES) * TILE + row] = (unsigned)shift;
        for (int item = THREAD(0); item < PACK_STEPS * CHUNKS * 4; item += MAX_THREADS) {
            const int step = item / (CHUNKS * 4), chunk = item / 4 % CHUNKS;
            unsigned high = 0, low = 0;
            for (int j = 0; j < 2; j++) {
                const int i = item * 2 + j, tap = i / PACK_C % TAPS, c = i / PACK_C / TAPS * PACK_C + i % PACK_C;
                unsigned v = k < KG && c < CG ? from[c * TAPS + tap] : 0;
                low |= split_halves(&v, shift) << 16 * j;
                high |= v << 16 * j;
            }
            GLOBAL unsigned *to = packed + (offset_t)tile * TILE + step * (2 * PART) +
                                  (at * CHUNKS + (chunk ^ SWIZZLE(at % 8))) * 4 + item % 4;
            to[0] = high, to[PART] = low;
        }
        BARRIER();  // all have read what is largest
    }
}
