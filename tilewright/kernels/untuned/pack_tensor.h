// The filter as the mma and hopper families stage it: words [group][k tile][step][row][chunk][4], chunks swizzled;
// or, where PACK_APART, words [group][k tile][step][chunk][row][4].
//
//   PACK_K      rows of a tile: output channels, in the order that PACK_ORDER says (FILTER_OF)
//   PACK_STEPS  steps of PACK_CHUNKS chunks of 16 bytes each, along the sum
//   PACK_C      the sum runs over so many channels of each tap, then over as many more; zeros past the last one
//   PACK_LEAP   the last tap is the first one, then those that lie so far before each other (hopper_lead.h)
//   PACK_PADDING   behind all tiles follow, for each of their rows, the sums of the first and the last column's taps
//               times padding, in f32: 0, or NaN if one of them is NaN or infinite (hopper_slide.h)
//
// Example: 64 channels of f16, 3x3, PACK_CHUNKS = 4, PACK_C = 32: 72 chunks, 18 steps; a row of a step is 32
// channels of a tap, the first 32 in steps 0 .. 8.

#define CHUNKS PACK_CHUNKS
#include "filter.h"
#include "swizzle.h"

#define IN_WORD (DTYPE == 4 ? 4 : 2)  // numbers of a word
#define K_TILES CEIL_DIV(KG, PACK_K)
#define PACKED ((offset_t)GROUP_COUNT * K_TILES * PACK_STEPS * PACK_K * CHUNKS * 4)

#ifndef PACK_APART
#define PACK_APART 0
#endif
#ifdef PACK_LEAP
#define TAP_OF(i) ((FILTER_TAPS - 1 - (i)) * PACK_LEAP % FILTER_TAPS)
#else
#define TAP_OF(i) (i)
#endif

KERNEL(pack)(GLOBAL const in_t *RESTRICT w, GLOBAL unsigned *RESTRICT packed) {
    FOR_EACH(item, PACKED) {
        int row = item / (CHUNKS * 4) % PACK_K, chunk = (int)(item / 4 % CHUNKS) ^ SWIZZLE(row % 8);
        if (PACK_APART) row = item / 4 % PACK_K, chunk = item / 4 / PACK_K % CHUNKS;
        offset_t rest = item / (CHUNKS * 4) / PACK_K;
        int i = ((int)(rest % PACK_STEPS) * CHUNKS + chunk) * (4 * IN_WORD) + (int)(item % 4) * IN_WORD;
        rest /= PACK_STEPS;
        int k = (int)(rest % K_TILES) * PACK_K + FILTER_OF(row), group = rest / K_TILES;
        unsigned word = 0;
        for (int j = 0; j < IN_WORD; j++, i++) {
            int tap = TAP_OF(i / PACK_C % FILTER_TAPS), c = i / PACK_C / FILTER_TAPS * PACK_C + i % PACK_C;
            if (k >= KG || c >= CG) continue;
            unsigned bits = w[(offset_t)(group * KG + k) * (CG * FILTER_TAPS) + FILTER_AT(c, tap)];
            word |= (IN_WORD == 4 ? bits & 0xff : bits) << (32 / IN_WORD * j);
        }
        packed[item] = word;
    }
#ifdef PACK_PADDING
    FOR_EACH(row, (offset_t)GROUP_COUNT * K_TILES * PACK_K) {
        const int k = (int)(row / PACK_K % K_TILES) * PACK_K + FILTER_OF((int)(row % PACK_K));
        const int group = row / PACK_K / K_TILES;
        acc_t first = 0, last = 0;
        for (int c = 0; c < CG && k < KG; c++)
            for (int r = 0; r < SIZE_R; r++) {
                const offset_t filter = (offset_t)(group * KG + k) * (CG * FILTER_TAPS);
                const GLOBAL in_t *taps = w + filter + FILTER_AT(c, r * SIZE_S);
                first += 0.0f * in_load(taps), last += 0.0f * in_load(taps + SIZE_S - 1);
            }
        ((GLOBAL acc_t *)packed)[PACKED + 2 * row] = first;
        ((GLOBAL acc_t *)packed)[PACKED + 2 * row + 1] = last;
    }
#endif
}
