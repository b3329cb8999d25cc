// The filter for the products of the stem family: words [k tile][step][slice][vector][lane][PACK_VECTOR], a lane's
// registers of a step in the order in which it loads them.
//
//   PACK_KT PACK_WN      pieces of channels of a warp, and warps side by side     PACK_NHWC  y is nhwc
//   PACK_GROUP           pieces whose channels alternate (nhwc)                   PACK_PLANES  1, or in nchw channels
//   PACK_QUARTERS        words of a run that a lane takes                         PACK_SHIFT  zeros before a run
//   PACK_TF32            numbers are rounded to tf32
//
// Example: 7x7 of 3 channels of f16 in nhwc, PACK_SHIFT = 1: a run is a zero, 21 taps, two zeros: 12 words, 3 of each
// of four lanes.

#include "loop.h"
#include "types.h"
#include "filter.h"
#include "mma_tf32.h"

#define NUMBER_BYTES (DTYPE == 4 ? 1 : DTYPE == 1 ? 4 : 2)
#define IN_WORD (4 / NUMBER_BYTES)
#define REGS (PACK_NHWC ? 2 : 4)
#define VECTOR_WORDS (PACK_KT * REGS % 4 ? 2 : 4)
#define SLICE (PACK_KT * (PACK_NHWC ? 8 : 16))
#define KB (SLICE * PACK_WN)
#define TILES ((KG + KB - 1) / KB)
#define ROWS (PACK_PLANES * SIZE_R)
#define STEPS ((ROWS * PACK_QUARTERS + 1) / 2)
#define COLUMN_CHANNELS (CG / PACK_PLANES)     // of a tap's column in a run
#define RUN (SIZE_S * COLUMN_CHANNELS)
#define PACKED ((offset_t)TILES * STEPS * PACK_WN * PACK_KT * REGS * 32)

#if DTYPE == 1
#define BITS_OF(v) (PACK_TF32 ? tf32_of(float_bits(v)) : float_bits(v))
#elif DTYPE == 4
#define BITS_OF(v) (unsigned)(unsigned char)(v)
#else
#define BITS_OF(v) (unsigned)(v)
#endif

KERNEL(pack)(GLOBAL const in_t *RESTRICT w, GLOBAL unsigned *RESTRICT packed) {
    FOR_EACH(item, PACKED) {
        const int lane = item / VECTOR_WORDS % 32;
        offset_t rest = item / (VECTOR_WORDS * 32);
        const int reg = (int)(rest % (PACK_KT * REGS / VECTOR_WORDS)) * VECTOR_WORDS + (int)(item % VECTOR_WORDS);
        rest /= PACK_KT * REGS / VECTOR_WORDS;
        const int slice = rest % PACK_WN, step = rest / PACK_WN % STEPS, tile = rest / PACK_WN / STEPS;
        const int piece = reg / REGS, second = reg % REGS / (REGS / 2), place = lane / 4;
        int k = tile * KB + slice * SLICE;
        k += PACK_NHWC ? (piece / PACK_GROUP * 8 + place / 2 * 2) * PACK_GROUP + piece % PACK_GROUP * 2 + place % 2
                       : 16 * piece + reg % 2 * 8 + place;
        const int j = 2 * step + second, row = j / PACK_QUARTERS;
        const int first = (j % PACK_QUARTERS * 4 + lane % 4) * IN_WORD - PACK_SHIFT;
        unsigned word = 0;
        for (int i = 0; i < IN_WORD; i++) {
            const int e = first + i;
            if (k >= KG || row >= ROWS || e < 0 || e >= RUN) continue;
            const int c = row / SIZE_R + e % COLUMN_CHANNELS, tap = row % SIZE_R * SIZE_S + e / COLUMN_CHANNELS;
            word |= BITS_OF(w[(offset_t)k * (CG * FILTER_TAPS) + FILTER_AT(c, tap)]) << (8 * NUMBER_BYTES * i);
        }
        packed[item] = word;
    }
}
