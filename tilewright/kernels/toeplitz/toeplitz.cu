// toeplitz: depthwise convolution on tensor cores, in f16, bf16 and tf32 with sums of f32; i8 and f8 are staged as f16.
//
//   y[n,k,p,q] = epilogue(sum over r,s of x[n,k,p*u+r*d-pad,q*u+s*d-pad] * w[k][r][s])
//
// A row of the filter against a row of the image is a product with a Toeplitz matrix: eight neighbouring outputs
// are a window of DEPTH KS inputs times T, where T[i][j] = w[r][i - j] (stride and dilation 1), or 0 outside it.
//
//     window of x, 3 taps           T                       8 outputs     DEPTH: 16, of tf32 8
//     x0 x1 x2 x3 .. x15     *   w0  0   0  ..         =    y0 .. y7
//                                w1  w0  0  ..
//                                w2  w1  w0 ..      of its 16 x 8 numbers 8 S count: 44% of 7x7's, 65% of 31x31's
//                                0   w2  w1 ..      with KS = 3; an instruction still does 900 useful products
//
// A product has 16 windows: those of 16 rows, a band, for the same eight outputs. 16 inputs of each row of a band are
// one fragment of a warp (ldmatrix). Windows begin at every eighth input, fragments at every sixteenth: a window that
// begins in the middle of a fragment is KS - 1 whole fragments and an eight at either end. These two eights make one
// more fragment, the last eight in front, with the rows of T in that order. So each input is loaded once for up to 2 KS
// windows. In tf32 a fragment is one eight, and windows begin where fragments do.
//
// A block takes CB channels of a tile of HB x 8 WBT outputs of an image: it stages the tile's inputs channel by channel
// in shared memory, and its warps take one channel after the other. In nhwc sums go back through the same place, so
// that channels that are neighbours in memory are stored together.
//
// f16 holds any i8 and any e4m3, and f32 any sum of 1,024 products of i8: sums of i8 are exact.
//
// Zeros of T are multiplied by inputs that an output does not depend on: a NaN or an infinity spreads to its neighbours
// (Family.plain).
// Knobs (spec.py; docs/families.md has what each buys): CB (cb 1 .. 32) channels of a block, HB (th 16 32 48) its rows,
// WBT (wb 1 .. 14) its columns, in eights, WARPS (warps 1 .. 16) that share out its channels.
// Example: n1c96h56w56k96r7s7p3g96, CB = 16, HB = 16, WBT = 7: KS = 1, NC = 8; 24 blocks, 56 KB each.

#define THREADS (32 * WARPS)
#define KB CB
#define WB (8 * WBT)
#define BANDS (HB / 16)
#define BAND_FRAGMENTS CEIL_DIV(NC, FRAGMENT)
#define XH ((HB - 1) * STR_H + (R - 1) * DIL_H + 1)  // of the image under the tile
#define XW (8 * NC)
#define SLOPE (7 * STR_W)                            // zeros before a row of the filter
#define Y_PITCH (8 * (WBT | 1))                      // an odd number of eights: rows in other banks

#include "tile.h"

#include "mma_tf32.h"

#define OF_BYTES (DTYPE == 4 || DTYPE == 5)  // x and w: i8 or e4m3
#define OF_TF32 (DTYPE == 1)
#if OF_BYTES
#define FACTORS 2
#endif
#if OF_TF32
typedef unsigned staged_t;  // tf32, by its bits
#define FRAGMENT 1          // eights of inputs that a fragment has, and a product
#else
typedef unsigned short staged_t;  // f16 or bf16, by its bits
#define FRAGMENT 2
#endif
#define PIECE (4 * FRAGMENT)  // numbers of 16 bytes

// A number of x as it is staged, and what is multiplied of one that is.
#if OF_BYTES
INLINE staged_t staged(in_t v) { return float_half(widened(v)); }
INLINE float factor(staged_t v) { return half_float(v); }
#elif OF_TF32
INLINE staged_t staged(in_t v) { return tf32_of(float_bits(v)); }
INLINE float factor(staged_t v) { return bits_float(v); }
#else
INLINE staged_t staged(in_t v) { return v; }
INLINE float factor(staged_t v) { return widened(v); }
#endif

// Where a channel of the tile lies; eights of channels are SKEW apart from where their planes end.
INLINE int plane_at(int c) { return c * PLANE + c / 8 * SKEW; }

#include "ldmatrix.h"
#include "mma_sync.h"
#include "toeplitz_stage.h"

// --------------------------------------------------------------------------------------- products

#ifdef __CUDACC__

#define WARP_BARRIER() __syncwarp()

typedef struct {
    unsigned r[4];  // lanes hold a word of rows lane / 4 and lane / 4 + 8, first of one piece, then of the next
} Fragment;

INLINE void read_band(Fragment to[BAND_FRAGMENTS], const SHARED staged_t *band, int lane) {
    const unsigned from = (unsigned)__cvta_generic_to_shared(band + lane % 16 * (STR_H * PITCH) + lane / 16 * PIECE);
    UNROLL for (int i = 0; i < BAND_FRAGMENTS; i++) read_matrices(to[i].r, from + 32 * i);
}

// acc += the products of a row of the filter with a band's rows; t: its T, a register for eight rows.
INLINE void add_row(sum_t acc[WBT][4], const Fragment x[BAND_FRAGMENTS], const unsigned t[2 * KS]) {
    UNROLL for (int i = 0; i < WBT; i++) {
        const int at = i * STR_W / FRAGMENT;
        if (i * STR_W % FRAGMENT == 0) {
            UNROLL for (int k = 0; k < KS; k++) mma_sync(acc[i], x[at + k].r, t[2 * k], t[2 * k + 1]);
        } else {
            UNROLL for (int k = 1; k < KS; k++) mma_sync(acc[i], x[at + k].r, t[2 * k - 1], t[2 * k]);
            Fragment ends = x[at];  // the window's first eight stay where they are, its last replace what is before
            ends.r[0] = x[at + KS].r[0], ends.r[1] = x[at + KS].r[1];
            mma_sync(acc[i], ends.r, t[2 * KS - 1], t[0]);
        }
    }
}

// T of a row of the filter, of column lane / 4: of each piece of its rows a lane's are word lane % 4.
INLINE void read_taps(unsigned t[2 * KS], const SHARED staged_t *taps, int lane) {
    const SHARED staged_t *from = taps + SLOPE + lane % 4 * FRAGMENT - lane / 4 * STR_W;
    UNROLL for (int i = 0; i < 2 * KS; i++) {
        t[i] = from[PIECE * i];
        if (FRAGMENT == 2) t[i] |= (unsigned)from[PIECE * i + 1] << 16;
    }
}

INLINE void sum_up(sum_t acc[BANDS][WBT][4], const SHARED staged_t *plane, const SHARED staged_t *taps, int lane) {
    UNROLL_BY(R_UNROLLED) for (int r = 0; r < R; r++) {
        unsigned t[2 * KS];
        read_taps(t, taps + r * W_PITCH, lane);
        UNROLL for (int b = 0; b < BANDS; b++) {
            Fragment x[BAND_FRAGMENTS];
            read_band(x, plane + (16 * b * STR_H + r * DIL_H) * PITCH, lane);
            add_row(acc[b], x, t);
        }
    }
}

#else  // the same sums, each by itself

#define WARP_BARRIER() BARRIER()
INLINE void sum_up(sum_t acc[BANDS][WBT][4], const SHARED staged_t *plane, const SHARED staged_t *taps, int lane) {
    for (int b = 0; b < BANDS; b++)
        for (int i = 0; i < WBT; i++)
            for (int e = 0; e < 4; e++) {
                const int row = (16 * b + e / 2 * 8 + lane / 4) * STR_H;
                const int column = (8 * i + lane % 4 * 2 + e % 2) * STR_W;
                for (int r = 0; r < R; r++)
                    for (int s = 0; s < S; s++)
                        acc[b][i][e] += factor(plane[(row + r * DIL_H) * PITCH + column + s * DIL_W]) *
                                        factor(taps[r * W_PITCH + SLOPE + s * DIL_W]);
            }
}

#endif

// ---------------------------------------------------------------------------------------- outputs

typedef struct {
    acc_t bias;
    float scale;
} Channel;

// What every sum of channel k of all is finished with.
INLINE Channel channel_of(Epilogue ep, int k) {
    Channel its = {BIAS && EPILOGUE_HERE ? out_load(ep.bias + k) : 0, SCALE_OF(ep, k)};
    return its;
}

// The sum for channel k of all at pixel (p, q), finished; where there is none, anything.
INLINE done_t finished(sum_t sum, Channel its, Epilogue ep, Place at, int k, int p, int q) {
    acc_t v = sum;
    if (EPILOGUE_HERE && (!ADD || (p < P && q < Q))) v = before_pool_by(v, its.bias, ep, Z_AT(at.n, k, p, q));
    return done_by(v, its.scale);
}

#if Y_NHWC
// A lane's sums into the place of the channel's inputs.
INLINE void keep_sums(SHARED done_t *plane, const sum_t acc[BANDS][WBT][4], Channel its, Epilogue ep, Place at, int k,
                      int lane) {
    UNROLL for (int octet = 0; octet < 2 * BANDS; octet++)
        UNROLL for (int i = 0; i < WBT; i++) {
            const int p = 8 * octet + lane / 4, q = 8 * i + lane % 4 * 2;
            done_t two[2];
            UNROLL for (int j = 0; j < 2; j++)
                two[j] = finished(acc[octet / 2][i][octet % 2 * 2 + j], its, ep, at, k, at.p0 + p, at.q0 + q + j);
            store_run(2, plane + p * Y_PITCH + q, two);
        }
}

// Store the tile, eight channels of a pixel at a time.
INLINE void store_tile(GLOBAL done_t *y, const SHARED staged_t *tile, Place at, int warp, int lane) {
    const int eight = lane % EIGHTS, column = lane / EIGHTS, q_end = (Q - at.q0 < WB ? Q - at.q0 : WB) - column;
    y += Z_AT(at.n, at.k0 + 8 * eight, at.p0, at.q0 + column);
    tile += EIGHT_AT(eight);
    NO_UNROLL for (int p = warp; p < HB && at.p0 + p < P; p += WARPS)
        UNROLL for (int q = 0; q < WB; q += PIXELS_AT_ONCE) {
            done_t run[8];
            if (q >= q_end) continue;
            UNROLL for (int i = 0; i < 8; i++)
                run[i] = ((const SHARED done_t *)(tile + i * PLANE))[p * Y_PITCH + column + q];
            GLOBAL done_t *to = y + ((offset_t)p * Q + q) * K;
#if VECTORS
            store_run(8, to, run);
#else
            UNROLL for (int i = 0; i < 8; i++) to[i] = run[i];
#endif
        }
}
#else
INLINE void store_sums(Epilogue ep, const sum_t acc[BANDS][WBT][4], Channel its, Place at, int k, int lane) {
    UNROLL for (int octet = 0; octet < 2 * BANDS; octet++)
        UNROLL for (int i = 0; i < WBT; i++) {
            const int p = at.p0 + 8 * octet + lane / 4, q = at.q0 + 8 * i + lane % 4 * 2;
            done_t two[2];
            if (p >= P || q >= Q) continue;
            UNROLL for (int j = 0; j < 2; j++)
                two[j] = finished(acc[octet / 2][i][octet % 2 * 2 + j], its, ep, at, k, p, q + j);
            GLOBAL done_t *to = ep.y + Z_AT(at.n, k, p, q);
#if VECTORS && Q % 2 == 0
            store_run(2, to, two);
#else
            to[0] = two[0];
            if (q + 1 < Q) to[1] = two[1];
#endif
        }
}
#endif

BOUNDED_KERNEL(toeplitz, THREADS, MIN_BLOCKS)
(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y SCALE_PARAMETER) {
    SHARED_ARRAY(shared);
    const Epilogue ep = {bias, z, y SCALE_ARGUMENT};
    SHARED staged_t *tile = (SHARED staged_t *)shared, *taps = tile + TILE;
    const Place at = find_place(GROUP(0));
    const int warp = THREAD(0) / 32, lane = THREAD(0) % 32;
    stage_w(taps, w, at);
    stage_x(tile, x, at, warp, lane);
    ASYNC_WAIT(0);
    BARRIER();
    NO_UNROLL for (int c = warp; c < CB; c += WARPS) {
        const Channel its = channel_of(ep, at.k0 + c);
        sum_t acc[BANDS][WBT][4];
        UNROLL for (int b = 0; b < BANDS; b++)
            UNROLL for (int i = 0; i < WBT; i++) UNROLL for (int e = 0; e < 4; e++) acc[b][i][e] = 0;
        sum_up(acc, tile + plane_at(c), taps + c * R * W_PITCH, lane);
#if Y_NHWC
        WARP_BARRIER();  // the channel's inputs are not needed any more
        keep_sums((SHARED done_t *)(tile + plane_at(c)), acc, its, ep, at, at.k0 + c, lane);
#else
        store_sums(ep, acc, its, at, at.k0 + c, lane);
#endif
    }
#if Y_NHWC
    BARRIER();
    store_tile(y, tile, at, warp, lane);
#endif
}
