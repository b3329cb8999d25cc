// grouped_mma: convolution of many small groups on tensor cores, in f16, bf16 and i8.
//
//   y[n,k,p,q] = epilogue(sum over c,r,s of x[n, k's group + c, p*u+r*d-pad, q*u+s*d-pad] * w[k][c][r][s])
//
// 16 bytes of a pixel's channels are a row of a matrix, eight rows of any eight pixels one that a warp loads
// (ldmatrix). A block stages the pixels under its tile of HB x WB outputs once, and a product takes 16 of them at one
// tap: their rows by the filter's 16 bytes for 8 output channels, two taps of a row (or pieces of a wide group's
// channels) at once. An image in nchw is turned on its way to shared memory, sums on their way back.
//
//     x, 16 outputs' pixels at a tap     at the next one       filter
//     8 channels (f16) of q              8 of q + 1            w[0..7][8 channels][tap], [tap + 1]
//     ..                                 ..                =   16 pixels x 8 output channels
//     8 channels of q + 15               8 of q + 16
//
// Groups whose channels fill no 16 bytes are taken several together, a bundle: there an output's products with the
// others' channels are zeros of the filter, and a NaN or an infinity spreads to them (Family.plain).
//
// A warp keeps the filter of BW bundles (or of a part of one's outputs) in its registers and goes through the tile, PT
// rows of 16 pixels at a time; WN warps share out the block's bundles, WM its pixels.
//
// Knobs (spec.py has their values and rules, docs/families.md what each buys):
//   HB WB        th, tw: the block's tile of outputs; shared memory has the pixels under it, XH x XW
//   PT           pt 1 .. 8: rows of outputs that a row of the image is loaded once for
//   BW NT        bw 1 .. 4 bundles of a warp: whose lanes then store 16 bytes at once; nt: eights of outputs of one
//   WN WM        wn, wm: warps over bundles and over pixels
// Example: n1c224h56w56k224r3s3p1g28 in f16: for 16 pixels of a group three products of two taps, three of one; with
// PT = 4 six rows of the image are loaded for four of outputs, 1.5 matrices for each product instead of 4.

#define THREADS (32 * WM * WN)
#define KT (BW * NT)
#define SLICE (8 * KT)  // output channels of a warp
#define KB (SLICE * WN)
#define TILE_PIXELS (HB * WB)
#define TAPS (R * S)
#define M_IS_PIXELS 1
#define POOL_HELD 0
#define POOL_MEETS 0
#define PIXEL_AT(first, i, h, lane) ((first) + ((i) + DOWN * (h) * PT) * WB + (DOWN ? 0 : 8 * (h)) + (lane) / 4)

#include "tile.h"
#include "grouped_mma.h"
#include "grouped_mma_stage.h"
#include "grouped_mma_product.h"
#include "grouped_mma_store.h"

// w: packed words, by their bits
BOUNDED_KERNEL(grouped_mma, THREADS, MIN_BLOCKS)
(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y SCALE_PARAMETER) {
    SHARED_ARRAY(shared);
    const Epilogue ep = {bias, z, y SCALE_ARGUMENT};
    const Place at = find_place(GROUP(0));
    const int lane = THREAD(0) % 32, warp = THREAD(0) / 32, slice = warp / WM, k = slice * SLICE;
    Filter filter;
    stage_x(shared, x, at);
    ASYNC_COMMIT();
    find_filter(filter, w + (offset_t)(at.k0 / SLICE + slice) * (W_WORDS * 32), lane);
    const Channels its = find_channels(ep, at.k0 + k, lane);
    ASYNC_WAIT(0);
    BARRIER();
    NO_UNROLL for (int strip = warp % WM; strip < STRIPS; strip += WM) {
        acc_t acc[PT][KT][4];
        sum_up(acc, shared, filter, strip, slice, lane);
        store_strip(ep, shared, at, k, ROW_OF(strip) * WB + COLUMN_OF(strip), lane, acc, &its);
    }
}
