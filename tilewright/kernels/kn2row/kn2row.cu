// kn2row: convolution of few output channels on tensor cores, as networks end with that make images, in f16, bf16, tf32
// and i8.
//
//   y[n,k,p,q] = epilogue(sum over r,s of taps[n,p+r*d-pad,q+s*d-pad][k,r,s])
//   taps[n,h,w][k,r,s] = sum over c of x[n,c,h,w] * w[k,c,r,s]
//
// As an implicit GEMM such a layer has 1 to 4 columns, of which tensor cores have 8 or more, and an input is read once
// for each tap. Here a product has all K R S taps (3x3 to 3 channels: 27 of 32), an input is read once, straight from
// global memory into a fragment, and what is left is R S adds for an output. Of a large filter a product has the K S
// taps of one row (9x9 to 3 channels: 27 of 32); the products of its R rows, which read an input each, are summed in
// registers, and S adds are left. TAP_R is how many rows of the filter have taps, R or 1. ROWS rows of these are made
// at once, which have all but ROWS - 1 of their pixels in common.
//
//     x, a row of pixels      taps of a pixel, in shared memory        an output
//     C channels       *      27 = 3 channels of 3x3            ->     9 of them, of 9 neighbouring pixels
//
// A block makes HB x WB outputs, RB rows of taps at a time. These lie in a ring of RING rows of COLUMNS pixels, from
// where every thread adds up outputs whose last row came with this step. A step has one barrier: the ring has RB rows
// more than are read.
//
// M x N of a product m16n8 is taps x pixels. A lane's words of x are 16 bytes of a pixel in nhwc; in nchw VX neighbours
// of 4 IN_WORD channels each, turned in registers, and then the pixels of neighbouring products alternate:
//
//     nhwc   product i has pixels 8 i .. 8 i + 7            nchw, VX = 4   product i has pixels i, 4 + i, 8 + i ..
//
// Knobs (spec.py has their values and rules, docs/families.md what each buys):
//   HB WB        th, tw: the block's tile of outputs
//   RB           rb 1 .. 24: rows of taps in a step
//   PT VX        pt 1 .. 8: products of a warp side by side; vx 1 .. 8: pixels that a lane loads at once
//   F_SHARED     f: the filter in shared memory, or a lane's registers
//   SPLIT WARPS  split 1 .. 8, warps 1 .. 16: shares of C in a block, and its warps
// Example: n1c32h256w256k1r5s5p2 in f16, HB = 32, WB = 60, RB = 4: rows of 64 pixels with 25 taps each, a ring of 12.

#define THREADS (32 * WARPS)
#define KB K
#define TAPS (K * TAP_R * S)
#define SUM_R (R / TAP_R)                  // rows of the filter whose products are summed
#define MT ((TAPS + 15) / 16)              // pieces of a product
#define XH (HB + (TAP_R - 1) * DIL_H)      // rows of taps of the tile
#define TURNS CEIL_DIV(XH, RB)
#define PIXELS (RB / ROWS * COLUMNS)       // of a step; each begins a column of ROWS
#define UNIT (8 * PT)                      // pixels that a warp takes at once
#define CHUNK (16 * IN_WORD)               // channels of two products
#define CHUNKS CEIL_DIV(C, CHUNK)
#define W_WORDS (SUM_R * CHUNKS * 2 * MT * 128)
#define W_STAGED (F_SHARED ? W_WORDS : 0)

#include "tile.h"
#include "kn2row_product.h"

// Where a pixel's taps of a row of the ring begin, those of share `share`.
INLINE int taps_at(int slot, int share) { return (slot * SPLIT + share) * (TAPS * PITCH); }

// Keep a warp's taps: lanes have two columns of each product, and of these the rows lane / 4 and lane / 4 + 8.
INLINE void keep_taps(SHARED acc_t *ring, acc_t acc[MT][PT][4], int row0, int first, int share, int lane) {
    UNROLL for (int i = 0; i < PT; i += VX)
        UNROLL for (int pair = 0; pair < 2; pair++) {  // of nhwc, both at once
            const int pixel = first + 8 * i + (lane % 4 * 2 + pair) * VX;
            if ((X_NHWC && pair) || (PIXELS % UNIT && pixel >= PIXELS)) continue;
            SHARED acc_t *to = ring + taps_at((row0 + pixel / COLUMNS * ROWS) % RING, share) + pixel % COLUMNS;
            UNROLL for (int m = 0; m < (TAPS + 7) / 8; m++) {
                const int tap = 8 * m + lane / 4;
                acc_t run[RUN];
                if (TAPS % 8 && tap >= TAPS) continue;
#if X_NHWC
                run[0] = acc[m / 2][i][m % 2 * 2], run[1] = acc[m / 2][i][m % 2 * 2 + 1];
#else
                UNROLL for (int j = 0; j < VX; j++) run[j] = acc[m / 2][i + j][m % 2 * 2 + pair];
#endif
                STORE_RUN(to + tap * PITCH, run);
            }
        }
}

// Finish the outputs whose last row of x came with this step.
INLINE void add_up(Epilogue ep, const SHARED acc_t *ring, Place at, int row0) {
    NO_UNROLL for (int item = THREAD(0); item < K * RB * WB; item += THREADS) {
        const int k = item / (RB * WB), q = item % WB, p = row0 + item / WB % RB - (TAP_R - 1) * DIL_H;
        if (p < 0 || p >= HB) continue;
        const SHARED acc_t *column = ring + k * (TAP_R * S) * PITCH + q + LEAD;
        int slot = p % RING;
        acc_t sum = 0;
        UNROLL for (int r = 0; r < TAP_R; r++) {
            UNROLL for (int share = 0; share < SPLIT; share++)
                UNROLL for (int s = 0; s < S; s++)
                    sum += column[taps_at(slot, share) + (r * S + s) * PITCH + s * DIL_W];
            slot += DIL_H;
            if (slot >= RING) slot -= RING;
        }
        finish(ep, at, k, p, q, sum);
    }
}

// w: packed words, by their bits
BOUNDED_KERNEL(kn2row, THREADS, MIN_BLOCKS)
(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y SCALE_PARAMETER) {
    SHARED_ARRAY(shared);
    const Epilogue ep = {bias, z, y SCALE_ARGUMENT};
    SHARED acc_t *ring = shared + W_STAGED;
    const Place at = find_place(GROUP(0));
    const int lane = THREAD(0) % 32, warp = THREAD(0) / 32, share = warp % SPLIT;
    const GLOBAL in_t *zeros = (const GLOBAL in_t *)(w + W_WORDS);  // for pixels and channels that do not exist
    stage_w(shared, w);
    FIND_FILTER(filter, shared, w, share, lane);
    if (F_SHARED) {
        ASYNC_WAIT(0);
        BARRIER();
    }
    NO_UNROLL for (int turn = 0; turn < TURNS; turn++) {
        NO_UNROLL for (int first = warp / SPLIT * UNIT; first < PIXELS; first += WARPS / SPLIT * UNIT) {
            acc_t acc[ROWS][MT][PT][4];
            sum_up(acc, x, zeros, filter, at, turn * RB, first, share, lane);
            UNROLL for (int i = 0; i < ROWS; i++) keep_taps(ring, acc[i], turn * RB + i, first, share, lane);
        }
        BARRIER();
        add_up(ep, ring, at, turn * RB);
    }
}
