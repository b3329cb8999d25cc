// The filter of the planar family: numbers [k tile][step][PACK_K][OF_STEP], zeros past the last k and c.
//
// A row is 128 bytes, the channels of a step in the order of planar_order.h, in pieces of 16 bytes: piece i of row k
// stands at i ^ k % 8, as wgmma swizzles them.
//
//   PACK_PLANE      HW of planar_order.h
//   PACK_PRODUCTS   TF32: rounded so; else as they are

#define HW PACK_PLANE
#include "loop.h"
#include "types.h"
#include "products.h"
#include "planar_order.h"
#if PACK_PRODUCTS == TF32
#include "mma_tf32.h"
#define NUMBER_OF(v) bits_float(tf32_of(float_bits(v)))
#else
#define NUMBER_OF(v) (v)
#endif

#define EACH (OF_STEP / 8)  // numbers of a piece
#define STEPS CEIL_DIV(CG, OF_STEP)
#define PACKED ((offset_t)CEIL_DIV(KG, PACK_K) * STEPS * PACK_K * OF_STEP)

KERNEL(pack)(GLOBAL const in_t *RESTRICT w, GLOBAL in_t *RESTRICT packed) {
    FOR_EACH(item, PACKED) {
        const int row = item / OF_STEP % PACK_K, at = item % OF_STEP, place = (at / EACH ^ row % 8) * EACH + at % EACH;
        const int c = (int)(item / (OF_STEP * PACK_K) % STEPS) * OF_STEP + CHANNEL_AT(place);
        const int k = (int)(item / (OF_STEP * PACK_K) / STEPS) * PACK_K + row;
        packed[item] = k < KG && c < CG ? NUMBER_OF(w[(offset_t)k * CG + c]) : 0;
    }
}
