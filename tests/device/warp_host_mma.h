// Products of warp_host.h, by the layouts of fragments that the PTX ISA states; in place of mma_sync.h.
#include "factors.h"
#include "products.h"
#include "types.h"

struct Product {
    sum_t *acc;
    const unsigned *a, *b;
    int halves;  // 2 of a whole product, 1 of a short one
};
#define IN_A_WORD (PRODUCTS == TF32 || PRODUCTS == THREE ? 1 : FACTORS == 4 || PRODUCTS == E4M3 ? 4 : 2)

static sum_t number_of(unsigned word, int i) {
#if PRODUCTS == TF32 || PRODUCTS == THREE
    return bits_float(word & 0xffffe000u);  // what tensor cores look at
#elif PRODUCTS == E4M3
    return float_of_e4m3(word >> 8 * i & 0xff);
#elif FACTORS == 4
    return (signed char)(word >> 8 * i);
#elif FACTORS == 2
    return half_float(word >> 16 * i & 0xffff);
#else
    return widened(word >> 16 * i & 0xffff);
#endif
}

static void multiply_all(void **lanes) {
    const int halves = ((Product *)lanes[0])->halves, depth = 4 * IN_A_WORD;
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++) {
            sum_t &sum = ((Product *)lanes[row % 8 * 4 + column / 2])->acc[row / 8 * 2 + column % 2];
            for (int half = 0; half < halves; half++)
                for (int k = 0; k < depth; k++) {
                    const int word = k / IN_A_WORD, i = k % IN_A_WORD;
                    const unsigned a = ((Product *)lanes[row % 8 * 4 + word])->a[row / 8 + 2 * half];
                    const unsigned b = ((Product *)lanes[column * 4 + word])->b[half];
                    sum += number_of(a, i) * number_of(b, i);
                }
        }
}
static void mma_sync(sum_t acc[4], const unsigned a[4], unsigned b0, unsigned b1) {
    const unsigned b[2] = {b0, b1};
    Product mine = {acc, a, b, 2};
    WARP_MEETS(&mine, multiply_all);
}
static void mma_sync_short(sum_t acc[4], const unsigned a[2], unsigned b0) {
    Product mine = {acc, a, &b0, 1};
    WARP_MEETS(&mine, multiply_all);
}

// Of mma_product.h: half h of a piece, from other sums.
template <class Fragment>
static void multiply_half(float *to, const float *from, const Fragment *a, const Fragment *b, int h) {
    float sums[4];
    memcpy(sums, from, sizeof sums);
    mma_sync((sum_t *)sums, a->r, b->r[2 * h], b->r[2 * h + 1]);
    memcpy(to, sums, sizeof sums);
}
