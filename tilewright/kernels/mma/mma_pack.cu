// The filter for the products of mma_product.h, laid out as pack_tensor.h has it: words [group][k tile][step][row]
// [chunk][4], chunks swizzled, or [chunk][row][4]; a word holds one f32, two f16, four e4m3 or half an f64.
//
//   PACK_PARTS     2: the tile of a step twice, the high parts of its numbers and then the low ones (mma_tf32.h)
//   PACK_PRODUCTS  what the words are made for (products.h): TF32, THREE (f32 as it is), E4M3, E4M3_AS_F16 or DOUBLE
//   PACK_K PACK_STEPS PACK_C PACK_ORDER PACK_APART  as there
//
// Example: 64 channels of f32, 3x3, PACK_CHUNKS = 8, PACK_C = 32: a row of a step is 32 channels of a tap.

#define CHUNKS PACK_CHUNKS
#include "loop.h"
#include "filter.h"
#include "products.h"
#include "swizzle.h"
#include "mma_tf32.h"
#include "e4m3.h"

#if PACK_PRODUCTS == DOUBLE
typedef unsigned number_t;
#define IN_WORD 1
#define WORDS 2  // of a number
#define BITS_OF(v) (v)
#elif PACK_PRODUCTS == TF32 || PACK_PRODUCTS == THREE
typedef unsigned number_t;
#define IN_WORD 1
#define BITS_OF(v) (PACK_PRODUCTS == TF32 ? tf32_of(v) : (v))
#else
typedef unsigned char number_t;
#define IN_WORD (PACK_PRODUCTS == E4M3 ? 4 : 2)
#define BITS_OF(v) (PACK_PRODUCTS == E4M3 ? (unsigned)(v) : (unsigned)half_of_e4m3(v))
#endif
#ifndef WORDS
#define WORDS 1
#endif
#define TILES CEIL_DIV(KG, PACK_K)
#ifndef PACK_APART
#define PACK_APART 0
#endif
#ifndef PACK_PARTS
#define PACK_PARTS 1
#endif
#define PACKED ((offset_t)GROUP_COUNT * TILES * PACK_STEPS * PACK_PARTS * PACK_K * CHUNKS * 4)

KERNEL(pack)(GLOBAL const number_t *RESTRICT w, GLOBAL unsigned *RESTRICT packed) {
    FOR_EACH(item, PACKED) {
        int row = item / (CHUNKS * 4) % PACK_K, chunk = (int)(item / 4 % CHUNKS) ^ SWIZZLE(row % 8);
        if (PACK_APART) row = item / 4 % PACK_K, chunk = item / 4 / PACK_K % CHUNKS;
        offset_t rest = item / (CHUNKS * 4) / PACK_K;
        const int part = rest % PACK_PARTS;
        rest /= PACK_PARTS;
        int i = ((int)(rest % PACK_STEPS) * CHUNKS + chunk) * (4 * IN_WORD / WORDS) + (int)(item % 4) / WORDS * IN_WORD;
        rest /= PACK_STEPS;
        int k = (int)(rest % TILES) * PACK_K + FILTER_OF(row), group = rest / TILES;
        unsigned word = 0;
        for (int j = 0; j < IN_WORD; j++, i++) {
            int tap = i / PACK_C % FILTER_TAPS, c = i / PACK_C / FILTER_TAPS * PACK_C + i % PACK_C;
            if (k >= KG || c >= CG) continue;
            const offset_t from = (offset_t)(group * KG + k) * (CG * FILTER_TAPS) + FILTER_AT(c, tap);
            const number_t number = w[from * WORDS + item % WORDS];
            word |= BITS_OF(number) << (32 / IN_WORD * j);
        }
        if (PACK_PARTS == 2) {
            const unsigned low = tf32_of(split(&word));
            if (part) word = low;
        }
        packed[item] = word;
    }
}
