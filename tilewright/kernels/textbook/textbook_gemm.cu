// textbook_gemm: a matrix product as one first writes it, and the first steps that make it faster.
//
//   y[px, k] = epilogue(sum over c of x[px, c] * w[k, c])      a convolution with 1x1 filters
//
// x, y: nchw or nhwc.  w: [k][c], as given.  A thread makes one element of y, a block T x T of them;
// neighbouring threads lie along k, so what they read of w lies C floats apart: a memory transaction each.
//
//   STEP 3 naive         both matrices straight from global memory
//   STEP 4 uncoalesced   tiles of T x T of both in shared memory, C in steps of T
//   STEP 5 coalesced     the same, of the transposed filter, [c][k]: what neighbours read are neighbours.
//                        A first launch writes it to the workspace `turned`.
//
// The product's blocks may start while the transpose still runs (CHAIN_NEXT) and then wait for it (CHAIN_WAIT);
// load_made reads what it wrote. These, and THREAD, GROUP, BARRIER: dialect.h.
// Knobs (spec.py): STEP (step), T (bw). K_TILES: blocks along K.
// Example: T = 32, C = 4096: a thread reads 2 x 128 floats of global memory, in place of 2 x 4096.

#include "epilogue.h"
#include "sizes.h"

#define T BW
#define THREADS (T * T)
#define PITCH (T + 1)  // a column of the tile meets all banks
#define PIXELS ((offset_t)SIZE_N * SIZE_P * SIZE_Q)

// Channel c of the input of pixel px of all images; 0 beyond the end of either.
INLINE float input_at(const GLOBAL float *x, offset_t px, int c) {
    offset_t n = px / (SIZE_P * SIZE_Q), h = px / SIZE_Q % SIZE_P * STRIDE_H, w = px % SIZE_Q * STRIDE_W;
    if (px >= PIXELS || c >= SIZE_C) return 0.0f;
    return x[PLACE(n, c, h, w, SIZE_C, SIZE_H, SIZE_W, X_ROWS)];
}

#if STEP == 5
#define W_AT(k, c) ((offset_t)(c) * SIZE_K + (k))
#define FROM load_made

// turned[c][k] = w[k][c], through a tile: read along c, written along k.
BOUNDED_KERNEL(transpose, THREADS, 1)(const GLOBAL float *RESTRICT w, GLOBAL float *RESTRICT turned) {
    SHARED_ARRAY(tile);
    const int across = THREAD(0) % T, down = THREAD(0) / T;
    const int k0 = GROUP(0) % K_TILES * T, c0 = GROUP(0) / K_TILES * T;
    CHAIN_WAIT();
    CHAIN_NEXT();
    if (k0 + down < SIZE_K && c0 + across < SIZE_C)
        tile[down * PITCH + across] = w[(offset_t)(k0 + down) * SIZE_C + c0 + across];
    BARRIER();
    if (k0 + across < SIZE_K && c0 + down < SIZE_C) turned[W_AT(k0 + across, c0 + down)] = tile[across * PITCH + down];
}
#else
#define W_AT(k, c) ((offset_t)(k) * SIZE_C + (c))
#define FROM(p) (*(p))
#endif

INLINE float weight_at(const GLOBAL float *w, int k, int c) {
    return k < SIZE_K && c < SIZE_C ? FROM(w + W_AT(k, c)) : 0.0f;
}

BOUNDED_KERNEL(textbook_gemm, THREADS, 1)
(const GLOBAL float *RESTRICT x, const GLOBAL float *RESTRICT w, const GLOBAL float *RESTRICT bias,
 const GLOBAL float *RESTRICT z, GLOBAL float *RESTRICT y) {
    const int across = THREAD(0) % T, down = THREAD(0) / T;
    const int k0 = GROUP(0) % K_TILES * T, k = k0 + across;
    const offset_t px0 = (offset_t)(GROUP(0) / K_TILES) * T, px = px0 + down;
    float sum = 0.0f;
    const Epilogue ep = {bias, z, y};
    CHAIN_WAIT();
#if STEP == 3
    for (int c = 0; c < SIZE_C; c++) sum += weight_at(w, k, c) * input_at(x, px, c);
#else
    SHARED_ARRAY(tiles);  // of the filter [c][k], then of the input [px][c]
    SHARED float *ws = tiles, *xs = tiles + T * PITCH;
    for (int c0 = 0; c0 < SIZE_C; c0 += T) {
        ws[down * PITCH + across] = weight_at(w, k, c0 + down);
        if (X_ROWS) xs[down * PITCH + across] = input_at(x, px, c0 + across);
        else xs[across * PITCH + down] = input_at(x, px0 + across, c0 + down);
        BARRIER();
        UNROLL for (int i = 0; i < T; i++) sum += ws[i * PITCH + across] * xs[down * PITCH + i];
        BARRIER();
    }
#endif
    if (k >= SIZE_K || px >= PIXELS) return;
    const offset_t to = Z_AT(px / (SIZE_P * SIZE_Q), k, 0, px % (SIZE_P * SIZE_Q));
    finish_one(ep, k, to, sum);
}
