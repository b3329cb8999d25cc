// textbook_tensor: the matrix product on tensor cores as one first writes it, then with tiles in shared memory.
//
//   y[px, k] = epilogue(sum over c of w[k, c] * x[px, c])      a convolution with 1x1 filters, f16 or bf16
//
// x, y: nchw or nhwc.  w: [k][c], as given.  A warp makes 16 MT channels x 8 NT pixels of y, in products of
// 16 x 8 outputs and 16 channels of the sum; a lane's operands are words of two channels.
//
//   STEP 6 naive    a block is one warp and one tile of 16 x 16; each product's operands come from global memory
//   STEP 7 shared   BK x BH warps of 32 x 32 outputs each: 32 channels of the sum at a time of all their rows in
//                   shared memory first, so that a row is read once for a block: 32 BK + 32 BH rows a step
//
// Knobs (spec.py): STEP (step), BK BH (bk, bh).
// Example: STEP 7 with 2 x 4 warps at 4096^3: tiles of 64 x 128, 2,048 blocks, 128 steps, 12 kB a step.

#include "epilogue.h"
#include "sizes.h"
#include "textbook_mma.h"

#define TILED (STEP == 7)
#define MT (TILED ? 2 : 1)
#define NT (TILED ? 4 : 2)
#define KB (16 * MT * BK)        // channels k of a block
#define PB (8 * NT * BH)         // pixels
#define THREADS (32 * BK * BH)
#define DEPTH (TILED ? 32 : 16)  // channels c of a step
#define PITCH (DEPTH / 2 + 4)    // words of a row: the rows of a product meet all banks
#define PIXELS ((offset_t)SIZE_N * SIZE_P * SIZE_Q)

// Channels c and c + 1 of a row that begins at `from`, `step` elements apart; zeros past the last channel.
INLINE unsigned pair_at(const GLOBAL in_t *from, int c, int step) {
    if (c >= SIZE_C) return 0;
    if (PAIRS && step == 1) return *(const GLOBAL unsigned *)(from + c);
    unsigned first = from[(offset_t)c * step], second = c + 1 < SIZE_C ? from[(offset_t)(c + 1) * step] : 0;
    return first | second << 16;
}
INLINE unsigned w_pair(const GLOBAL in_t *w, int k, int c) {
    return k < SIZE_K ? pair_at(w + (offset_t)k * SIZE_C, c, 1) : 0;
}
INLINE unsigned x_pair(const GLOBAL in_t *x, offset_t px, int c) {
    if (px >= PIXELS) return 0;
    offset_t n = px / (SIZE_P * SIZE_Q), h = px / SIZE_Q % SIZE_P * STRIDE_H, v = px % SIZE_Q * STRIDE_W;
    return X_ROWS ? pair_at(x + ((n * SIZE_H + h) * SIZE_W + v) * SIZE_C, c, 1)
                  : pair_at(x + (n * SIZE_C * SIZE_H + h) * SIZE_W + v, c, SIZE_H * SIZE_W);
}

// Copy channels c0 to c0 + DEPTH - 1 of the block's filters and pixels to shared memory, a word a thread.
INLINE void stage(SHARED unsigned *ws, SHARED unsigned *xs, const GLOBAL in_t *w, const GLOBAL in_t *x, int k0,
                  offset_t px0, int c0) {
    UNROLL for (int e = 0; e < KB * (DEPTH / 2); e += THREADS) {
        int i = e + THREAD(0);  // neighbours read neighbours: the words of a row
        ws[i / (DEPTH / 2) * PITCH + i % (DEPTH / 2)] = w_pair(w, k0 + i / (DEPTH / 2), c0 + i % (DEPTH / 2) * 2);
    }
    UNROLL for (int e = 0; e < PB * (DEPTH / 2); e += THREADS) {
        int i = e + THREAD(0), r = X_ROWS ? i / (DEPTH / 2) : i % PB, c = X_ROWS ? i % (DEPTH / 2) : i / PB;
        xs[r * PITCH + c] = x_pair(x, px0 + r, c0 + c * 2);
    }
}

BOUNDED_KERNEL(textbook_tensor, THREADS, 1)
(const GLOBAL in_t *RESTRICT x, const GLOBAL in_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL out_t *RESTRICT y) {
    const Epilogue ep = {bias, z, y};
    CHAIN_WAIT();
    const int lane = THREAD(0) % 32, warp = THREAD(0) / 32;
    const int row = warp % BK * (16 * MT), column = warp / BK * (8 * NT);  // of the warp's tile in the block's
    const int k0 = GROUP(0) % K_TILES * KB;
    const offset_t px0 = (offset_t)(GROUP(0) / K_TILES) * PB;
    float sum[MT][NT][4];
    UNROLL for (int i = 0; i < MT; i++)
        UNROLL for (int j = 0; j < NT; j++) UNROLL for (int e = 0; e < 4; e++) sum[i][j][e] = 0.0f;
#if TILED
    SHARED_ARRAY(tiles);  // words of w, then of x
    SHARED unsigned *ws = (SHARED unsigned *)tiles, *xs = ws + KB * PITCH;
#define W_WORD(r, i) ws[(r) * PITCH + part + (i)]
#define X_WORD(r, i) xs[(r) * PITCH + part + (i)]
#else
#define W_WORD(r, i) w_pair(w, k0 + (r), c0 + 2 * (i))
#define X_WORD(r, i) x_pair(x, px0 + (r), c0 + 2 * (i))
#endif
    for (int c0 = 0; c0 < SIZE_C; c0 += DEPTH) {
#if TILED
        BARRIER();
        stage(ws, xs, w, x, k0, px0, c0);
        BARRIER();
#endif
        UNROLL for (int part = 0; part < DEPTH / 2; part += 8) {
            Rows a[MT];
            Columns b[NT];
            UNROLL for (int i = 0; i < MT; i++) { READ_ROWS(a[i], W_WORD, row + 16 * i, lane); }
            UNROLL for (int j = 0; j < NT; j++) { READ_COLUMNS(b[j], X_WORD, column + 8 * j, lane); }
            UNROLL for (int i = 0; i < MT; i++) UNROLL for (int j = 0; j < NT; j++) multiply(sum[i][j], a[i], b[j]);
        }
    }
    UNROLL for (int i = 0; i < MT; i++)
        UNROLL for (int j = 0; j < NT; j++)
            UNROLL for (int e = 0; e < 4; e++) {
                const int k = k0 + row + 16 * i + lane / 4 + e / 2 * 8;
                const offset_t px = px0 + column + 8 * j + lane % 4 * 2 + e % 2;
                if (k < SIZE_K && px < PIXELS) {
                    const offset_t to = Z_AT(px / (SIZE_P * SIZE_Q), k, 0, px % (SIZE_P * SIZE_Q));
                    finish_one(ep, k, to, sum[i][j][e]);
                }
            }
}
