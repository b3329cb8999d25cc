// The filter in two numbers of f16 for each of f32 (halves.h), each output channel moved by a power of two of its own:
// words [group][k tile][step][part][row][chunk][4], chunks swizzled (pack_tensor.h), part 0 high and 1 low. Then for
// each row of each tile how far it was moved, an int, and for each what speaks against that (halves_guard.h); then the
// filter as it was, [output channel][tap][channel], for who computes without the split (fallback.cu).
//
//   PACK_K PACK_STEPS PACK_CHUNKS PACK_C PACK_ORDER   as in pack_tensor.h
//
// A block takes row after row: it finds the largest number, then writes the row as it was and its words of all steps.
// Example: 64 channels, 3x3, PACK_CHUNKS = 8, PACK_C = 64: 9 steps, a row of each is 64 channels of a tap, twice.

#define CHUNKS PACK_CHUNKS
#include "filter.h"
#include "loop.h"
#include "swizzle.h"
#include "halves.h"
#include "halves_guard.h"

#define K_TILES CEIL_DIV(KG, PACK_K)
#define PACKED_ROWS (GROUP_COUNT * K_TILES * PACK_K)
#define PART_WORDS (PACK_K * CHUNKS * 4)  // words
#define TILE_WORDS (PACK_STEPS * 2 * PART_WORDS)
#define TERMS (CG * FILTER_TAPS)

KERNEL(pack)(GLOBAL const unsigned *RESTRICT w, GLOBAL unsigned *RESTRICT packed) {
    SHARED_FLAG(most);
    GLOBAL unsigned *moved = packed + (offset_t)(GROUP_COUNT * K_TILES) * TILE_WORDS, *exact = moved + 2 * PACKED_ROWS;
    GLOBAL acc_t *against = (GLOBAL acc_t *)moved + PACKED_ROWS;
    NO_UNROLL for (int row = GROUP(0); row < PACKED_ROWS; row += GROUPS(0)) {
        const int tile = row / PACK_K, at = row % PACK_K, group = tile / K_TILES;
        const int filter = FILTER_OF(at), k = tile % K_TILES * PACK_K + filter, channel = tile * PACK_K + filter;
        GLOBAL const unsigned *from = w + (offset_t)(group * KG + k) * TERMS;
        int size = 0;
        for (int i = THREAD(0); k < KG && i < TERMS; i += MAX_THREADS) size = max(size, finite_size(from[i]));
        if (THREAD(0) == 0) against[channel] = 0;
        FENCE();
        const int largest = largest_of_block(size, most), shift = shift_of(largest);
        if (THREAD(0) == 0) moved[row] = (unsigned)shift;
        float misfits = 0;
        for (int i = THREAD(0); k < KG && i < TERMS; i += MAX_THREADS) {
            const unsigned v = from[FILTER_AT(i % CG, i / CG)];
            exact[(offset_t)(group * KG + k) * TERMS + i] = v;
            misfits += misfit(v, largest);
        }
        add_misfits(against + channel, misfits, TERMS);
        for (int item = THREAD(0); item < PACK_STEPS * CHUNKS * 4; item += MAX_THREADS) {
            const int step = item / (CHUNKS * 4), chunk = item / 4 % CHUNKS;
            unsigned high = 0, low = 0;
            for (int j = 0; j < 2; j++) {
                const int i = item * 2 + j, tap = i / PACK_C % FILTER_TAPS;
                const int c = i / PACK_C / FILTER_TAPS * PACK_C + i % PACK_C;
                unsigned v = k < KG && c < CG ? from[FILTER_AT(c, tap)] : 0;
                low |= split_halves(&v, shift) << 16 * j;
                high |= v << 16 * j;
            }
            GLOBAL unsigned *to = packed + (offset_t)tile * TILE_WORDS + step * (2 * PART_WORDS) +
                                  (at * CHUNKS + (chunk ^ SWIZZLE(at % 8))) * 4 + item % 4;
            to[0] = high, to[PART_WORDS] = low;
        }
        BARRIER();  // all have read what is largest
    }
}
