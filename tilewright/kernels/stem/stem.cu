// stem: convolution of few input channels on tensor cores, as networks begin with, in f16, bf16, tf32 and i8.
//
//   y[n,k,p,q] = epilogue(sum over c,r,s of x[n,c,p*u+r*d-pad,q*u+s-pad] * w[k][c][r][s])
//
// What a row of the filter sees of an image is a run of neighbours in memory: S C numbers in nhwc, S in nchw. A block
// stages the rows under its tile of HB x WB outputs as they are (in pieces of up to 16 bytes; number by number where
// rows of the image are no whole words), and a fragment's registers, of four bytes each, are read from there.
//
//     a run, 21 numbers of f16            words    0   1   2   3   4   5   6   7   8   9  10  11
//     (7 taps of 3 channels)              lane's   0   1   2   3   0   1   2   3   0   1   2   3
//
// The four lanes that share a pixel of a fragment take every fourth word of a run; or, where runs are short, words of
// as many rows or planes (FAN_P, FAN_R, FAN_W). The filter is packed in the same order (stem_pack.cu). Where a run
// begins inside a word, it either does so for all pixels, and the filter has zeros before its first tap (SHIFT), or a
// word is made of two (UNALIGNED). Numbers of a word that meet no tap are masked, so that a NaN reaches only outputs
// that depend on it. Columns of whole pieces of 16 bytes are staged GAP bytes apart, and pairs of pieces are read as
// matrices (ldmatrix.h).
//
//   M x N is pixels x channels where y is nhwc, else channels x pixels. A warp has PT x KT pieces of a product m16n8;
//   the channels (pixels) of neighbouring pieces alternate, so that a thread's sums are neighbours in y: runs of up
//   to 16 bytes of outputs. A thread may have all four sums of a pool's windows (POOL_HELD); otherwise the sums of a
//   window meet in shared memory first (piece_store.h).
//
// Knobs (spec.py has their values and rules, docs/families.md what each buys):
//   HB WB        th, tw: the block's tile of outputs; shared memory has its rows of x, XH of each plane
//   KT PT        kt 1 .. 16, pt 1 .. 8: pieces of channels of a warp, and of pixels that it takes at once
//   WN WM        wn, wm: warps over channels, SLICE each, and over pixels
//   F_SHARED     f: the filter in shared memory, or a lane's registers of all KSTEPS products
// Example: n1c3h224w224k64r7s7p3u2 in f16: 11 words of a row make 3 for each of four lanes, 7 rows 11 products of 16.

#define THREADS (32 * WM * WN)
#define PIXELS_OF (Y_NHWC ? 16 : 8)    // a piece
#define CHANNELS_OF (Y_NHWC ? 8 : 16)
#define SLICE (KT * CHANNELS_OF)       // channels of a warp
#define KB (SLICE * WN)
#define TILE_PIXELS (HB * WB)
#define HALVES_OF (PIXELS_OF / 8)      // pixels of a lane in a piece
#define GROUP_OF (RUN_OUT / 2)         // pieces of a product whose channels, or pixels, alternate
#define POOL_MEETS (POOL_HERE && !POOL_HELD)

// the input: rows of planes
#define UNIT (X_NHWC ? C : 1)          // numbers of a column
#define PLANES (X_NHWC ? 1 : C)
#define COLUMN_BYTES (UNIT * NUMBER_BYTES)
#define X_ROW_BYTES (W * COLUMN_BYTES)
#define XH ((HB - 1) * STR_H + (R - 1) * DIL_H + 1)
#define X_WORDS ((PLANES * XH * PITCH / 4 + 31) / 32 * 32)

// the sum
#define LANE_WORDS (PLANES / FAN_P * (R / FAN_R) * QUARTERS)
#define KSTEPS ((LANE_WORDS + 1) / 2)
#define W_REGS W_REGS_OF(Y_NHWC)
#define W_WORDS (KSTEPS * WN * KT * W_REGS * 32)
#define W_STAGED (F_SHARED ? W_WORDS : 0)

#include "tile.h"
#include "stem_order.h"
#include "stem_stage.h"
#include "stem_product.h"
#include "piece_store.h"

// w: packed words, by their bits
BOUNDED_KERNEL(stem, THREADS, MIN_BLOCKS)
(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y SCALE_PARAMETER) {
    SHARED_ARRAY(shared);
    const Epilogue ep = {bias, z, y SCALE_ARGUMENT};
    SHARED acc_t *tile = shared + W_STAGED, *sums = tile + X_WORDS;
    const Place at = find_place(GROUP(0));
    const int lane = THREAD(0) % 32, warp = THREAD(0) / 32, slice = warp / WM, k = slice * SLICE;
    w += (offset_t)(at.k0 / KB) * W_WORDS;
    stage_w(shared, w);
    stage_x(tile, x, at);
    ASYNC_COMMIT();
    FIND_FILTER(filter, shared, w, slice, lane);
    const Channels its = find_channels(ep, at.k0 + k, lane);
    ASYNC_WAIT(0);
    BARRIER();
    NO_UNROLL for (int first = warp % WM * (PT * PIXELS_OF); first < TILE_PIXELS; first += PT * PIXELS_OF * WM) {
        acc_t acc[PT][KT][4];
        sum_up(acc, (const SHARED unsigned *)tile, filter, first, slice, lane);
        store_sums(ep, sums, at, k, first, lane, acc, &its);
    }
#if POOL_MEETS
    BARRIER();
    store_pooled(ep, sums, at);
#endif
}
