// The filter for the products of the grouped_mma family: words [bundles / BW * PARTS][vector][lane][4], a lane's
// registers.
//
//   PACK_GROUPS   groups of a bundle: where there are several, an output's products with others' channels are zeros
//
// Lane l has of outputs j, for piece `at` of the sum, word l % 4 of that piece of output l / 4; outputs alternate
// (alternated.h), so that a thread's sums are neighbours.
// Example: 3x3, groups of 8 channels of f16: 9 pieces, 9 registers and 3 that are not used.

#include "loop.h"
#include "types.h"

#define TAPS (SIZE_R * SIZE_S)
#include "grouped_mma.h"

#define SLICES (GROUP_COUNT / PACK_GROUPS / BW * PARTS)  // of outputs, a warp's
#define PACKED ((offset_t)SLICES * W_WORDS * 32)

KERNEL(pack)(GLOBAL const in_t *RESTRICT w, GLOBAL unsigned *RESTRICT packed) {
    FOR_EACH(item, PACKED) {
        const int lane = item / 4 % 32, reg = (int)(item / 128 % (W_WORDS / 4)) * 4 + (int)(item % 4);
        const int at = reg % KPIECES, j = reg / KPIECES;
        const offset_t slice = item / (W_WORDS * 32);
        const int output = slice % PARTS * (8 * NT) + alternated(j % NT, lane / 4, GROUP_OF), group = output / KG;
        const offset_t first = (slice / PARTS * BW + j / NT) * PACK_GROUPS;  // group of the bundle
        unsigned word = 0;
        for (int i = 0; i < 4 / NUMBER_BYTES; i++) {
            const int channel = at % PIECES * EACH + lane % 4 * (4 / NUMBER_BYTES) + i;  // of the bundle
            if (j >= NT * BW || channel / CG != group) continue;
            const offset_t from = (((first + group) * KG + output % KG) * CG + channel % CG) * TAPS + at / PIECES;
            word |= BITS_OF(w[from]) << 8 * NUMBER_BYTES * i;
        }
        packed[item] = word;
    }
}
