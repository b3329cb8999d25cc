// The filter of the planar family: numbers [k tile][step][PACK_K][64], zeros past the last k and c.
//
// A row is 128 bytes, the channels of a step in the order of planar_order.h, in pieces of 16 bytes: piece i of row k
// stands at i ^ k % 8, as wgmma swizzles them.
//
//   PACK_PLANE   HW of planar_order.h

#define HW PACK_PLANE
#include "loop.h"
#include "types.h"
#include "planar_order.h"

#define STEPS ((CG + 63) / 64)
#define PACKED ((offset_t)((KG + PACK_K - 1) / PACK_K) * STEPS * PACK_K * 64)

KERNEL(pack)(GLOBAL const in_t *RESTRICT w, GLOBAL in_t *RESTRICT packed) {
    FOR_EACH(item, PACKED) {
        const int row = item / 64 % PACK_K, at = item % 64, place = (at / 8 ^ row % 8) * 8 + at % 8;
        const int c = (int)(item / (64 * PACK_K) % STEPS) * 64 + CHANNEL_AT(place);
        const int k = (int)(item / (64 * PACK_K) / STEPS) * PACK_K + row;
        packed[item] = k < KG && c < CG ? w[(offset_t)k * CG + c] : 0;
    }
}
