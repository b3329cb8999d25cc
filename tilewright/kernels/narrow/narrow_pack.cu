// The filter of the narrow family: [channel][tap], TAPS4 numbers a channel.
//
// A tap is one of K x R x S. Zeros stand past the last, and eight behind all, for what is beside the image.

#include "loop.h"
#include "types.h"
#include "filter.h"

#define TAPS4 ((KG * FILTER_TAPS + 3) / 4 * 4)
#define PACKED ((offset_t)CG * TAPS4 + 8)

KERNEL(pack)(GLOBAL const in_t *RESTRICT w, GLOBAL in_t *RESTRICT packed) {
    FOR_EACH(item, PACKED) {
        const int tap = item % TAPS4, k = tap / FILTER_TAPS, c = item / TAPS4;
        const int keep = k < KG && c < CG;
        packed[item] = keep ? w[((offset_t)k * CG + c) * FILTER_TAPS + tap % FILTER_TAPS] : 0;
    }
}
