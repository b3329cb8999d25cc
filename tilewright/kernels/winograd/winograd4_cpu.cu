// winograd and winograd4 on CPU cores: as in winograd4.cu, the transforms in vectors of VECTOR lanes.
//
//   V[e][c][t] = (B' d B)[e]      transform_input: t is innermost, so that the products broadcast neighbours
//   M[t][e][k] = sum over c of U[e][k][c] V[e][c][t]     36 (or 16) matrix products, by another family
//   y tile t   = A' M[t][.][k] A  transform_output: lanes are channels k
//
// x, y: nchw or nhwc; V and M are as above for both. A work-item draws items from a counter, as in direct_cpu.h.
// The three are launched for one slab of tiles after the other, SLAB_ROWS rows of them, so that V and M stay in
// the last cache; drawn[2] is the slab.
//
//   x nchw   an item is RUN_C channels and RUN_ROWS rows of tiles. The columns go through B' first, whole
//            vectors of them; then every fourth value of a line is a lane:
//               line   a0 a1 a2 a3 | b0 b1 b2 b3 | c0 ...     0 of tiles a b c ..., 1 of them, 2, 3;
//               4 and 5 of a tile are 0 and 1 of the next one  (5 taps: every second value)
//            dilated: the values of neighbouring lanes are neighbours
//   x nhwc   an item is VECTOR tiles of VECTOR channels; lanes are channels, and are turned at the end
//   y        an item is RUN_TILES tiles of RUN_K channels. nchw: the values of a row of a tile are
//            gathered by shuffles
//
// Channels that hang over (19 = 16 + 3) are done again: the last vector starts at 19 - 16.
// Example: Y12 (34x34, C = 256, K = 512) nchw, 4 cores: 32 items in, 8 channels each; 11 * 8 items out.

#define LINE (TILES_Q * SIDE_Q + 6 * VECTOR + 6 * DILATION_W)  // of transformed columns: what hangs over is never used
#define SLAB_TILES (SLAB_ROWS * TILES_Q)
#define SLABS CEIL_DIV(TILES_ALL, SLAB_TILES)
#define PARTS_IN (X_NHWC ? CEIL_DIV(SLAB_TILES, VECTOR) : CEIL_DIV(SLAB_ROWS, RUN_ROWS))
#define ITEMS_IN (PARTS_IN * (X_NHWC ? CEIL_DIV(SIZE_C, VECTOR) : CEIL_DIV(SIZE_C, RUN_C)))
#define PARTS_K CEIL_DIV(SIZE_K, RUN_K)
#define ITEMS_OUT (CEIL_DIV(SLAB_TILES, RUN_TILES) * PARTS_K)

#include "epilogue.h"
#include "lanes.h"
#include "shuffles.h"

typedef wide value_t;
typedef int whole __attribute__((ext_vector_type(VECTOR)));
typedef float quad __attribute__((ext_vector_type(4), aligned(4)));
#include "winograd4.h"
typedef float some __attribute__((ext_vector_type(SIDE_Q), aligned(4)));  // a row of a tile

#include "winograd4_cpu_input.h"

// VECTOR channels from k on, at output (p, q) of image n: what goes into the pool, or is y.
INLINE wide finish_vector(wide v, Epilogue ep, int n, int k, int p, int q) {
    wide more = (wide)(0);
    if (ADD && Y_NHWC) more = *(const GLOBAL wide *)(ep.z + Z_AT(n, k, p, q));
    else if (ADD) UNROLL for (int u = 0; u < VECTOR; u++) more[u] = ep.z[Z_AT(n, k + u, p, q)];
    return before_pool_lanes(v, BIAS ? *(const GLOBAL wide *)(ep.bias + k) : (wide)(0), more);
}

#if POOL
#define STEP POOL_SIZE
#else
#define STEP 1
#endif

// One tile of sums, finished and stored; a pool's windows lie within it.
INLINE void store_tile(Epilogue ep, int n, int k, int p0, int q0, wide sums[SIDE_P][SIDE_Q]) {
    UNROLL for (int i = 0; i < SIDE_P; i += STEP) {
        if ((p0 + i * DILATION_H) / STEP >= Y_P) return;
        wide row[SIDE_Q];
        UNROLL for (int j = 0; j < SIDE_Q; j += STEP) {
            if ((q0 + j * DILATION_W) / STEP >= Y_Q) continue;
#if POOL
            wide pooled = (wide)(POOL_NOTHING);
            UNROLL for (int e = 0; e < STEP * STEP; e++) {
                int a = i + e / STEP, b = j + e % STEP;
                wide v = finish_vector(sums[a][b], ep, n, k, p0 + a, q0 + b);
                pool_take_lanes(&pooled, &v);
            }
            row[j / STEP] = pool_mean_lanes(pooled);
#else
            row[j] = finish_vector(sums[i][j], ep, n, k, p0 + i * DILATION_H, q0 + j * DILATION_W);
#endif
        }
        GLOBAL float *to = ep.y + Y_AT(n, k, (p0 + i * DILATION_H) / STEP, q0 / STEP);
#if Y_NHWC
        UNROLL for (int j = 0; j < SIDE_Q / STEP; j++)
            if (q0 / STEP + j * DILATION_W < Y_Q) *(GLOBAL wide *)(to + j * DILATION_W * SIZE_K) = row[j];
#elif STEP == 1 && DILATION_W == 1
        float turned[VECTOR * SIDE_Q];  // [k][columns]
#if SIDE_Q == 4
        wide low02 = LOW(row[0], row[2]), high02 = HIGH(row[0], row[2]);
        wide low13 = LOW(row[1], row[3]), high13 = HIGH(row[1], row[3]);
        ((wide *)turned)[0] = LOW(low02, low13), ((wide *)turned)[1] = HIGH(low02, low13);
        ((wide *)turned)[2] = LOW(high02, high13), ((wide *)turned)[3] = HIGH(high02, high13);
#else
        ((wide *)turned)[0] = LOW(row[0], row[1]), ((wide *)turned)[1] = HIGH(row[0], row[1]);
#endif
        UNROLL for (int u = 0; u < VECTOR; u++) {
            if (q0 + SIDE_Q <= SIZE_Q) *(GLOBAL some *)(to + u * (Y_P * Y_Q)) = *(some *)(turned + u * SIDE_Q);
            else for (int j = 0; q0 + j < SIZE_Q; j++) to[u * (Y_P * Y_Q) + j] = turned[u * SIDE_Q + j];
        }
#else
        UNROLL for (int j = 0; j < SIDE_Q / STEP; j++)
            if (q0 / STEP + j * DILATION_W < Y_Q)
                UNROLL for (int u = 0; u < VECTOR; u++) to[u * (Y_P * Y_Q) + j * DILATION_W] = row[j][u];
#endif
    }
}

INLINE void output_item(const GLOBAL float *RESTRICT products, const GLOBAL float *RESTRICT bias,
                     const GLOBAL float *RESTRICT z, GLOBAL float *RESTRICT y, int first, int item) {
    const Epilogue ep = {bias, z, y};
    int tiles = TILES_ALL - first < SLAB_TILES ? TILES_ALL - first : SLAB_TILES;
    int t0 = item / PARTS_K * RUN_TILES, t1 = t0 + RUN_TILES < tiles ? t0 + RUN_TILES : tiles;
    int k0 = item % PARTS_K * RUN_K, k1 = k0 + RUN_K < SIZE_K ? k0 + RUN_K : SIZE_K;
    NO_UNROLL for (int at = k0; at < k1; at += VECTOR) {
        int k = at < SIZE_K - VECTOR ? at : SIZE_K - VECTOR;
        NO_UNROLL for (int t = t0; t < t1; t++) {
            const GLOBAL float *from = products + (offset_t)t * ELEMENTS * SIZE_K + k;
            wide half_way[SIDE_P][POINTS], sums[SIDE_P][SIDE_Q], column[SIDE_P];
            UNROLL for (int j = 0; j < POINTS; j++) {
                wide m[POINTS];
                UNROLL for (int i = 0; i < POINTS; i++)
                    m[i] = *(const GLOBAL wide *)(from + (i * POINTS + j) * SIZE_K);
                from_points(SIDE_P, column, m, 1);
                UNROLL for (int i = 0; i < SIDE_P; i++) half_way[i][j] = column[i];
            }
            UNROLL for (int i = 0; i < SIDE_P; i++) from_points(SIDE_Q, sums[i], half_way[i], 1);
            int all = first + t;
            int p = ROW_OF(all / TILES_Q % TILES_P), q = COLUMN_OF(all % TILES_Q);
            store_tile(ep, all / TILES_IMAGE, k, p, q, sums);
        }
    }
}

// Vectors are not passed from here: code for AVX-512 and other code would pass them differently.
HOT void draw_inputs(const GLOBAL float *RESTRICT x, GLOBAL float *RESTRICT tiles, GLOBAL unsigned *RESTRICT drawn) {
    for (int item = atomic_count(&drawn[0]); item < ITEMS_IN; item = atomic_count(&drawn[0]))
        input_item(x, tiles, drawn[2] * SLAB_TILES, item);
}
HOT void draw_outputs(const GLOBAL float *RESTRICT products, const GLOBAL float *RESTRICT bias,
                      const GLOBAL float *RESTRICT z, GLOBAL float *RESTRICT y, GLOBAL unsigned *RESTRICT drawn) {
    for (int item = atomic_count(&drawn[0]); item < ITEMS_OUT; item = atomic_count(&drawn[0]))
        output_item(products, bias, z, y, drawn[2] * SLAB_TILES, item);
}

BOUNDED_KERNEL(transform_input, 1, 1)
(const GLOBAL float *RESTRICT x, GLOBAL float *RESTRICT tiles, GLOBAL unsigned *RESTRICT drawn) {
    draw_inputs(x, tiles, drawn);
    if (atomic_count(&drawn[1]) == WORKERS - 1) drawn[0] = drawn[1] = 0;  // ready for the next launch
}

BOUNDED_KERNEL(transform_output, 1, 1)
(const GLOBAL float *RESTRICT products, const GLOBAL float *RESTRICT bias, const GLOBAL float *RESTRICT z,
 GLOBAL float *RESTRICT y, GLOBAL unsigned *RESTRICT drawn) {
    draw_outputs(products, bias, z, y, drawn);
    if (atomic_count(&drawn[1]) == WORKERS - 1) drawn[0] = drawn[1] = 0, drawn[2] = (drawn[2] + 1) % SLABS;
}
