// winograd4, winograd8: stride 1, by tiles of POINTS x POINTS inputs, 6x6 or 8x8. 3x3 filters by F(4x4, 3x3): 36
// multiply-adds for 16 outputs where direct takes 144; 5x5 by F(2x2, 5x5), 36 for 4 where direct takes 100, or by
// F(4x4, 5x5), 64 for 16 where it takes 400; 7x7 by F(2x2, 7x7); 3x5 and 5x3 by one of them along each side. 1x3 by
// F(4, 3) along its row, 6 multiply-adds for 4 outputs where direct takes 12; 7x1 by F(2, 7) along its column.
//
//   V[e][c][t] = (B' d B)[e]                    transform_input: d is the input under tile t
//   M[e][k][t] = sum over c of U[e][k][c] V[e][c][t]     ELEMENTS matrix products, by another family
//   y tile t   = A' M[.][k][t] A                transform_output: SIDE_P x SIDE_Q outputs, finished and stored
//
//   input     +--+--+--+        V, as an image of ELEMENTS * C       tiles of 3x3 step by 4 and
//             | t0  |  |        channels and TILES pixels, in the    overlap by 2: each input
//             +--+--+--+  --->  input's layout; M in the output's.   is read 2.25 times (of 5x5
//             |  | t1  |        So the products are a 1x1            9 times), from the cache
//             +--+--+--+        convolution of ELEMENTS groups.
//
// Where V and M would take too much memory the three are launched for one slab of SLAB_TILES tiles after the other:
// `drawn` counts the blocks of transform_output, and so the slabs.
//
// x, y: nchw or nhwc.  U: packed and transformed by pack.cu.  A thread transforms one tile of one
// channel. The order of the adds differs from the direct sum and a NaN in x spreads over its tile.
// Knobs: those of the products; POINTS is the family's (chained.py).
// Example: Y12 (34x34, C = 256, K = 512): 9 * 9 tiles, 36 products of 512 x 81 x 256.

#include "epilogue.h"

typedef float value_t;
#include "winograd4.h"

// The transforms of a row of a tile and of a column, POINTS_Q apart; of one tap none.
#if POINTS_Q > 1
#define ROW_AT_POINTS(to, d) at_points(to, d, 1)
#define ROW_FROM_POINTS(to, m) from_points(SIDE_Q, to, m, 1)
#else
#define ROW_AT_POINTS(to, d) ((to)[0] = (d)[0])
#define ROW_FROM_POINTS(to, m) ((to)[0] = (m)[0])
#endif
#if POINTS_P > 1
#define COLUMN_AT_POINTS(to, d) at_points(to, d, POINTS_Q)
#define COLUMN_FROM_POINTS(to, m) from_points(SIDE_P, to, m, 1)
#else
#define COLUMN_AT_POINTS(to, d) ((to)[0] = (d)[0])
#define COLUMN_FROM_POINTS(to, m) ((to)[0] = (m)[0])
#endif

// Where V and M have element e of channel c and tile t: images of ELEMENTS groups of channels.
#define PRODUCT_AT(e, c, t, channels, nhwc) (nhwc ? ((offset_t)(t) * ELEMENTS + (e)) * (channels) + (c) \
                                                  : ((offset_t)(e) * (channels) + (c)) * TILES + (t))

// The first tile of the slab.
INLINE int first_tile(const GLOBAL unsigned *drawn) {
    return SLABS == 1 ? 0 : (int)(*(const volatile GLOBAL unsigned *)drawn / BLOCKS_OUT) * SLAB_TILES;
}

BOUNDED_KERNEL(transform_input, THREADS, 1)
(const GLOBAL float *RESTRICT x, GLOBAL float *RESTRICT tiles, const GLOBAL unsigned *drawn) {
    offset_t item = (offset_t)GROUP(0) * THREADS + THREAD(0);
    CHAIN_WAIT();
    CHAIN_NEXT();
    int c = X_NHWC ? item % SIZE_C : item / SLAB_TILES, in_slab = X_NHWC ? item / SIZE_C : item % SLAB_TILES;
    int t = first_tile(drawn) + in_slab;
    if (item >= (offset_t)SIZE_C * SLAB_TILES || t >= TILES_ALL) return;
    int n = t / (TILES_P * TILES_Q), h0 = ROW_OF(t / TILES_Q % TILES_P) - PAD_TOP,
        w0 = COLUMN_OF(t % TILES_Q) - PAD_LEFT;
    float d[POINTS_P][POINTS_Q], half_way[POINTS_P][POINTS_Q], v[POINTS_P];
    UNROLL for (int i = 0; i < POINTS_P; i++)
        UNROLL for (int j = 0; j < POINTS_Q; j++) {
            int h = h0 + i * DILATION_H, w = w0 + j * DILATION_W, inside = (unsigned)h < SIZE_H && (unsigned)w < SIZE_W;
            d[i][j] = inside ? x[X_AT(n, c, h, w)] : 0.0f;
        }
    UNROLL for (int i = 0; i < POINTS_P; i++) ROW_AT_POINTS(half_way[i], d[i]);
    UNROLL for (int j = 0; j < POINTS_Q; j++) {
        COLUMN_AT_POINTS(v, &half_way[0][j]);
        UNROLL for (int i = 0; i < POINTS_P; i++) {
            int e = i * POINTS_Q + j;
            tiles[PRODUCT_AT(e, c, in_slab, SIZE_C, X_NHWC)] = v[i];
        }
    }
}

// One tile of sums, finished and stored; a pool's windows lie within it.
INLINE void store_tile(Epilogue ep, int n, int k, int p0, int q0, float sums[SIDE_P][SIDE_Q]) {
#if POOL
    UNROLL for (int i = 0; i < SIDE_P; i += POOL_SIZE)
        UNROLL for (int j = 0; j < SIDE_Q; j += POOL_SIZE) {
            if ((p0 + i) / POOL_SIZE >= Y_P || (q0 + j) / POOL_SIZE >= Y_Q) continue;
            acc_t pooled = POOL_NOTHING;
            UNROLL for (int a = 0; a < POOL_SIZE; a++)
                UNROLL for (int b = 0; b < POOL_SIZE; b++)
                    pool_take(&pooled, before_pool(sums[i + a][j + b], ep, k, Z_AT(n, k, p0 + i + a, q0 + j + b)));
            ep.y[Y_AT(n, k, (p0 + i) / POOL_SIZE, (q0 + j) / POOL_SIZE)] = pool_mean(pooled);
        }
#else
    UNROLL for (int i = 0; i < SIDE_P; i++) {
        if (p0 + i * DILATION_H >= SIZE_P) return;
        offset_t at = Z_AT(n, k, p0 + i * DILATION_H, q0);
        int apart = DILATION_W * (Y_NHWC ? SIZE_K : 1);
        float row[SIDE_Q];
        UNROLL for (int j = 0; j < SIDE_Q; j++)
            row[j] = q0 + j * DILATION_W < SIZE_Q ? before_pool(sums[i][j], ep, k, at + j * apart) : 0.0f;
        if (Y_ROWS) store_run(SIDE_Q, ep.y + at, row);
        else UNROLL for (int j = 0; j < SIDE_Q; j++) if (q0 + j * DILATION_W < SIZE_Q) ep.y[at + j * apart] = row[j];
    }
#endif
}

BOUNDED_KERNEL(transform_output, THREADS, 1)
(const GLOBAL float *RESTRICT products, const GLOBAL float *RESTRICT bias, const GLOBAL float *RESTRICT z,
 GLOBAL float *RESTRICT y, GLOBAL unsigned *drawn) {
    offset_t item = (offset_t)GROUP(0) * THREADS + THREAD(0);
    CHAIN_WAIT();
    int k = Y_NHWC ? item % SIZE_K : item / SLAB_TILES, in_slab = Y_NHWC ? item / SIZE_K : item % SLAB_TILES;
    int t = first_tile(drawn) + in_slab;
#if SLABS > 1
    BARRIER_ALL();  // all know their slab before this block counts
    if (THREAD(0) == 0 && atomic_count(drawn) == SLABS * BLOCKS_OUT - 1) *drawn = 0;  // ready for the next run
#endif
    if (item >= (offset_t)SIZE_K * SLAB_TILES || t >= TILES_ALL) return;
    float half_way[SIDE_P][POINTS_Q], sums[SIDE_P][SIDE_Q], column[SIDE_P];
    UNROLL for (int j = 0; j < POINTS_Q; j++) {
        float m[POINTS_P];
        UNROLL for (int i = 0; i < POINTS_P; i++) {
            int e = i * POINTS_Q + j;
            m[i] = load_made(products + PRODUCT_AT(e, k, in_slab, SIZE_K, Y_NHWC));
        }
        COLUMN_FROM_POINTS(column, m);
        UNROLL for (int i = 0; i < SIDE_P; i++) half_way[i][j] = column[i];
    }
    UNROLL for (int i = 0; i < SIDE_P; i++) ROW_FROM_POINTS(sums[i], half_way[i]);
    int p0 = ROW_OF(t / TILES_Q % TILES_P), q0 = COLUMN_OF(t % TILES_Q);
    const Epilogue ep = {bias, z, y};
    store_tile(ep, t / (TILES_P * TILES_Q), k, p0, q0, sums);
}
