// textbook: a convolution as one first writes it, and the first steps that make it faster: to learn from.
//
//   y[n,k,p,q] = epilogue(sum over c,r,s of x[n,c,p*u+r*d-pad,q*u+s*d-pad] * w[k,c,r,s])
//
// x, y: nchw or nhwc.  w: kcrs, as given.  A thread makes one element of y, a block BW x BH x BK of them.
//
//   STEP 0 naive    inputs and taps straight from global memory
//   STEP 1 tile     the inputs under a block in shared memory,        TILE_W
//                   one channel at a time:                          +--------+
//   STEP 2 unroll   the same, the loops over the filter unrolled    | BW x BH| TILE_H
//                   (a compiler may do that by itself)              +--------+
//
// Under a pool an element of y takes a window of sums: one after the other (SIDE = 1, and the input is read
// again for each), or all at once (SIDE = POOL_SIZE, a register each). No pool is a pool of size 1.
// Knobs (spec.py): STEP (step), BW BH BK (bw, bh, bk), SIDE (pool). K_TILES P_TILES Q_TILES: blocks along each side.
// THREAD, GROUP, BARRIER and what else CUDA and OpenCL spell differently: dialect.h; SIZE_C, X_AT: sizes.h; POOL_SIZE,
// before_pool: epilogue.h.
// Example: 5x5 and a pool of 2, all at once, 16 x 16 x 4: tiles of 36 x 36 inputs for 32 x 32 sums, 5.2 kB.

#include "epilogue.h"
#include "sizes.h"

#define THREADS (BW * BH * BK)
#define PARTS (POOL_SIZE / SIDE)  // of a window's side, one after the other
#define TILE_H (((BH - 1) * POOL_STRIDE + SIDE - 1) * STRIDE_H + (SIZE_R - 1) * DILATION_H + 1)
#define TILE_W (((BW - 1) * POOL_STRIDE + SIDE - 1) * STRIDE_W + (SIZE_S - 1) * DILATION_W + 1)

#if STEP == 0
#define ROW_LOOP NO_UNROLL  // else the compiler has more loads under way than a block of 1024 has registers for
#define TAP_LOOP
#elif STEP == 1
#define ROW_LOOP
#define TAP_LOOP
#else
#define ROW_LOOP UNROLL
#define TAP_LOOP UNROLL
#endif

typedef struct {
    int n, k, p, q;   // this thread's element of y; k is the last one's where there is none
    int row, column;  // its place in the block
    int wanted;       // whether there is such an element
} Mine;

INLINE Mine find_mine(void) {
    Mine me;
    int thread = THREAD(0), block = GROUP(0);
    me.column = thread % BW, me.row = thread / BW % BH;
    me.q = block % Q_TILES * BW + me.column, block /= Q_TILES;
    me.p = block % P_TILES * BH + me.row, block /= P_TILES;
    me.k = block % K_TILES * BK + thread / (BW * BH), me.n = block / K_TILES;
    me.wanted = me.k < SIZE_K && me.p < Y_P && me.q < Y_Q;
    me.k = me.k < SIZE_K ? me.k : SIZE_K - 1;
    return me;
}

// An input, or 0 beyond the edge of the image.
INLINE float input_at(const GLOBAL float *x, int n, int c, int h, int w) {
    return (unsigned)h < SIZE_H && (unsigned)w < SIZE_W ? x[X_AT(n, c, h, w)] : 0.0f;
}

#if STEP == 0
#define INPUT(r, s) input_at(x, me.n, c, h0 + (r), w0 + (s))
#define STAGE()
#else
#define INPUT(r, s) tile[(r) * TILE_W + (s)]
#define STAGE() stage(tile, x, me.n, c, h0, w0)

// Copy the inputs of channel c under the block, from row h0 and column w0 on, once all are done with the last.
INLINE void stage(SHARED float *tile, const GLOBAL float *x, int n, int c, int h0, int w0) {
    BARRIER();
    for (int e = THREAD(0); e < TILE_H * TILE_W; e += THREADS)
        tile[e] = input_at(x, n, c, h0 + e / TILE_W, w0 + e % TILE_W);
    BARRIER();
}
#endif

// Finish the sum of pixel (p, q), and take it into the pool if it lies in the image.
INLINE void take(float *found, float sum, Epilogue ep, Mine me, int p, int q) {
    if ((unsigned)p >= SIZE_P || (unsigned)q >= SIZE_Q) return;
    sum = before_pool(sum, ep, me.k, Z_AT(me.n, me.k, p, q));
#if POOL
    pool_take(found, sum);
#else
    *found = sum;
#endif
}

BOUNDED_KERNEL(textbook, THREADS, 1)
(const GLOBAL float *RESTRICT x, const GLOBAL float *RESTRICT w, const GLOBAL float *RESTRICT bias,
 const GLOBAL float *RESTRICT z, GLOBAL float *RESTRICT y) {
#if STEP != 0
    SHARED_ARRAY(tile);
#endif
    const Epilogue ep = {bias, z, y};
    CHAIN_WAIT();
    const Mine me = find_mine();
    const int row = me.row * POOL_STRIDE * STRIDE_H, column = me.column * POOL_STRIDE * STRIDE_W;  // in the tile
    float found = POOL_NOTHING;
    NO_UNROLL for (int part = 0; part < PARTS * PARTS; part++) {
        const int p0 = me.p * POOL_STRIDE - POOL_PAD + part / PARTS, q0 = me.q * POOL_STRIDE - POOL_PAD + part % PARTS;
        const int h0 = p0 * STRIDE_H - PAD_TOP - row, w0 = q0 * STRIDE_W - PAD_LEFT - column;  // of the tile
        float sum[SIDE * SIDE];
        UNROLL for (int i = 0; i < SIDE * SIDE; i++) sum[i] = 0.0f;
        NO_UNROLL for (int c = 0; c < SIZE_C; c++) {
            const GLOBAL float *taps = w + ((offset_t)me.k * SIZE_C + c) * (SIZE_R * SIZE_S);
            STAGE();
            ROW_LOOP for (int r = 0; r < SIZE_R; r++)
                TAP_LOOP for (int s = 0; s < SIZE_S; s++)
                    UNROLL for (int i = 0; i < SIDE * SIDE; i++)
                        sum[i] += taps[r * SIZE_S + s] * INPUT(row + i / SIDE * STRIDE_H + r * DILATION_H,
                                                               column + i % SIDE * STRIDE_W + s * DILATION_W);
        }
        UNROLL for (int i = 0; i < SIDE * SIDE; i++)
            take(&found, sum[i], ep, me, p0 + i / SIDE, q0 + i % SIDE);
    }
    if (me.wanted) y[Y_AT(me.n, me.k, me.p, me.q)] = pool_mean(found);
}
