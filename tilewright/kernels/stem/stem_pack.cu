// The filter for the products of the stem family: words [k tile][step][slice][vector][lane][W_RUN], a lane's
// registers of a step in the order in which it loads them (stem_order.h).
//
//   PACK_KT PACK_WN      pieces of channels of a warp, and warps side by side     PACK_NHWC  y is nhwc
//   PACK_GROUP           pieces whose channels alternate (nhwc)
//   PACK_PLANES          planes of x: 1 in nhwc, its channels in nchw
//   PACK_QUARTERS        words of a run that a lane takes                         PACK_SHIFT  zeros before a run
//   FAN_P FAN_R FAN_W    what the four lanes of a pixel take at once (stem_order.h)
//
// Example: 7x7 of 3 channels of f16 in nhwc, PACK_SHIFT = 1: a run is a zero, 21 taps, two zeros: 12 words, 3 of each
// of four lanes.

#include "loop.h"
#include "types.h"
#include "filter.h"
#include "stem_order.h"

#define REGS W_REGS_OF(PACK_NHWC)
#define W_RUN W_RUN_OF(PACK_KT * REGS)
#define SLICE (PACK_KT * (PACK_NHWC ? 8 : 16))
#define KB (SLICE * PACK_WN)
#define K_TILES CEIL_DIV(KG, KB)
#define LANE_WORDS (PACK_PLANES / FAN_P * (SIZE_R / FAN_R) * PACK_QUARTERS)  // of a lane
#define KSTEPS ((LANE_WORDS + 1) / 2)
#define COLUMN_CHANNELS (CG / PACK_PLANES)     // of a tap's column in a run
#define RUN_NUMBERS (SIZE_S * COLUMN_CHANNELS)
#define PACKED ((offset_t)K_TILES * KSTEPS * PACK_WN * PACK_KT * REGS * 32)

KERNEL(pack)(GLOBAL const in_t *RESTRICT w, GLOBAL unsigned *RESTRICT packed) {
    FOR_EACH(item, PACKED) {
        const int lane = item / W_RUN % 32;
        offset_t rest = item / (W_RUN * 32);
        const int reg = (int)(rest % (PACK_KT * REGS / W_RUN)) * W_RUN + (int)(item % W_RUN);
        rest /= PACK_KT * REGS / W_RUN;
        const int slice = rest % PACK_WN, step = rest / PACK_WN % KSTEPS, tile = rest / PACK_WN / KSTEPS;
        const int piece = reg / REGS, second = reg % REGS / (REGS / 2), place = lane / 4;
        int k = tile * KB + slice * SLICE;
        k += PACK_NHWC ? alternated(piece, place, PACK_GROUP) : 16 * piece + reg % 2 * 8 + place;
        const int j = 2 * step + second;
        const Taps its = taps_of(j, lane % 4, SIZE_R, PACK_QUARTERS);
        unsigned word = 0;
        for (int i = 0; i < IN_WORD; i++) {
            const int e = its.word * IN_WORD - PACK_SHIFT + i;
            if (k >= KG || j >= LANE_WORDS || e < 0 || e >= RUN_NUMBERS) continue;
            const int c = its.plane + e % COLUMN_CHANNELS, tap = its.row * SIZE_S + e / COLUMN_CHANNELS;
            word |= BITS_OF(w[(offset_t)k * (CG * FILTER_TAPS) + FILTER_AT(c, tap)]) << (8 * NUMBER_BYTES * i);
        }
        packed[item] = word;
    }
}
