// strassen, strassen2: the matrix product of a 1x1 layer by Strassen's algorithm (strassen.h), one or two levels deep.
//
//   V[m][c][t] = the sums of blocks of x in product m            transform_input
//   M[m][k][t] = sum over c of U[m][k][c] V[m][c][t]     MATRIX_PRODUCTS matrix products, by another family
//   y          = of each block the products it is made of        transform_output: finished and stored
//
//   x, C x pixels     +------+------+      V and M: images of MATRIX_PRODUCTS * BLOCK_C or BLOCK_K channels and
//   (LEVELS 1)         |  b0  |  b1  |      BLOCK_T pixels, V in nchw, M in the layout of y. So the products
//   BLOCK_C channels  +------+------+      are a 1x1 convolution of MATRIX_PRODUCTS groups. What lies behind the
//                     |  b2  |  b3  |      last channel or pixel is 0.
//                     +------+------+
//
// U: the sums of blocks of the filter, strassen_pack.cu. Of every block a thread takes neighbours, pixels in nchw and
// channels in nhwc: RUN_IN of x, RUN_OUT of y. Neighbouring threads take neighbouring pixels of x in nhwc too, for V to
// be written side by side: it is larger than x. A sum of small whole numbers is exact. Rounding, a NaN or an infinity
// spreads from one block to others.
// Knobs: those of the products; LEVELS is the family's (spec.py).
// Example: 4096^3, LEVELS 2: 49 products of 1024^3.

#include "epilogue.h"
#include "strassen.h"

#define BLOCKS (SIDE * SIDE)
#define PLANE (SIZE_H * SIZE_W)
#define PIXELS ((offset_t)SIZE_N * PLANE)
#define PRODUCT_AT(m, c, t, channels, nhwc) (nhwc ? ((offset_t)(t) * MATRIX_PRODUCTS + (m)) * (channels) + (c) \
                                                  : ((offset_t)(m) * (channels) + (c)) * BLOCK_T + (t))

// Where channel c of pixel t is, in x or y.
INLINE offset_t element_at(int c, offset_t t, int channels, int nhwc) {
    return nhwc ? t * channels + c : (t / PLANE * channels + c) * PLANE + t % PLANE;
}

// Adds a run, with a sign, to another.
INLINE void add_run(int run, float *to, int sign, const float *from) {
    UNROLL for (int i = 0; i < run; i++)
        if (sign) to[i] = sign > 0 ? to[i] + from[i] : to[i] - from[i];
}

INLINE void clear(int count, float *to) {
    UNROLL for (int i = 0; i < count; i++) to[i] = 0.0f;
}

// Stores a thread's part of V, of product m.
INLINE void store_sum(GLOBAL float *sums, int m, int c0, int t0, const float sum[RUN_IN]) {
    GLOBAL float *to = sums + PRODUCT_AT(m, c0, t0, BLOCK_C, 0);
    if (!X_NHWC) store_run(RUN_IN, to, sum);
    else UNROLL for (int i = 0; i < RUN_IN; i++) to[(offset_t)i * BLOCK_T] = sum[i];
}

BOUNDED_KERNEL(transform_input, THREADS, 1)(const GLOBAL float *RESTRICT x, GLOBAL float *RESTRICT sums) {
    const offset_t item = (offset_t)GROUP(0) * THREADS + THREAD(0);
    const int along = BLOCK_T / (X_NHWC ? 1 : RUN_IN);  // threads side by side
    const int t0 = item % along * (X_NHWC ? 1 : RUN_IN), c0 = item / along * (X_NHWC ? RUN_IN : 1);
    CHAIN_WAIT();
    CHAIN_NEXT();
    if (c0 >= BLOCK_C) return;
    float x_run[BLOCKS][RUN_IN], below[BELOW][RUN_IN];
    UNROLL for (int block = 0; block < BLOCKS; block++) {
        const int c = c0 + row_of(block) * BLOCK_C;
        const offset_t t = t0 + (offset_t)column_of(block) * BLOCK_T;
        clear(RUN_IN, x_run[block]);
        if (c < SIZE_C && t < PIXELS) load_run(RUN_IN, x_run[block], x + element_at(c, t, SIZE_C, X_NHWC));
    }
    UNROLL for (int m = 0; m < SEVEN; m++) {
        UNROLL for (int inner = 0; inner < BELOW; inner++) {
            clear(RUN_IN, below[inner]);
            UNROLL for (int i = 0; i < 4; i++) add_run(RUN_IN, below[inner], sign_in_b(m, i), x_run[i * BELOW + inner]);
        }
#if LEVELS == 1
        store_sum(sums, m, c0, t0, below[0]);
#else
        UNROLL for (int inner = 0; inner < SEVEN; inner++) {
            float sum[RUN_IN];
            clear(RUN_IN, sum);
            UNROLL for (int i = 0; i < 4; i++) add_run(RUN_IN, sum, sign_in_b(inner, i), below[i]);
            store_sum(sums, m * SEVEN + inner, c0, t0, sum);
        }
#endif
    }
}

BOUNDED_KERNEL(transform_output, THREADS, 1)
(const GLOBAL float *RESTRICT products, const GLOBAL float *RESTRICT bias, const GLOBAL float *RESTRICT z,
 GLOBAL float *RESTRICT y) {
    const offset_t item = (offset_t)GROUP(0) * THREADS + THREAD(0);
    const int fast = (Y_NHWC ? BLOCK_K : BLOCK_T) / RUN_OUT, first = item % fast * RUN_OUT, other = item / fast;
    const int k0 = Y_NHWC ? first : other, t0 = Y_NHWC ? other : first;
    const Epilogue ep = {bias, z, y};
    CHAIN_WAIT();
    if (other >= (Y_NHWC ? BLOCK_T : BLOCK_K)) return;
    float y_run[BLOCKS][RUN_OUT], below[BELOW][RUN_OUT];
    UNROLL for (int block = 0; block < BLOCKS; block++) clear(RUN_OUT, y_run[block]);
    UNROLL for (int m = 0; m < SEVEN; m++) {
#if LEVELS == 1
        load_made_run(RUN_OUT, below[0], products + PRODUCT_AT(m, k0, t0, BLOCK_K, Y_NHWC));
#else
        UNROLL for (int i = 0; i < BELOW; i++) clear(RUN_OUT, below[i]);
        UNROLL for (int inner = 0; inner < SEVEN; inner++) {
            float product[RUN_OUT];
            load_made_run(RUN_OUT, product, products + PRODUCT_AT(m * SEVEN + inner, k0, t0, BLOCK_K, Y_NHWC));
            UNROLL for (int i = 0; i < BELOW; i++) add_run(RUN_OUT, below[i], sign_of(inner, i), product);
        }
#endif
        UNROLL for (int i = 0; i < 4; i++)
            UNROLL for (int inner = 0; inner < BELOW; inner++)
                add_run(RUN_OUT, y_run[i * BELOW + inner], sign_of(m, i), below[inner]);
    }
    UNROLL for (int block = 0; block < BLOCKS; block++) {
        const int k = k0 + row_of(block) * BLOCK_K;
        const offset_t t = t0 + (offset_t)column_of(block) * BLOCK_T;
        if (k >= SIZE_K || t >= PIXELS) continue;
        const offset_t at = element_at(k, t, SIZE_K, Y_NHWC);
        finish_run(RUN_OUT, ep, k, Y_NHWC, at, y_run[block]);
    }
}
