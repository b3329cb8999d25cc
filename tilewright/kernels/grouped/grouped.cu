// grouped: convolutions of small groups, each of CG input and KG output channels; depthwise is CG = 1.
//
//   y[n,k,p,q] = epilogue(sum over c,r,s of x[n,group(k)*CG+c,p*u+r*d-pad,q*u+s*d-pad] * w[c][r][s][k])
//
// x, y: nchw or nhwc.  w: packed [c][r][s][K], so that neighbouring channels are neighbours. Channels c are
// words of DTYPE (word.h), CW of them in a group: one each, or four of i8; one of i8 in a depthwise layer.
//
//   nhwc: lanes over channels                  nchw: lanes over columns
//     lane 0   lane 1   lane 2                   lane 0   lane 1   lane 2
//     k0..k3   k4..k7   k8..k11                  q0..q3   q4..q7   q8..q11     of one channel (or VECTOR)
//
// A thread makes TH x TW pixels of VECTOR channels and reads each of its input rows once: row h0 + i feeds
// every output row b and filter row r with b * STR_H + r * DIL_H = i. Nothing is shared between threads but
// the cache, and no step waits for another: at batch 1 these layers are one round trip to memory.
// In a depthwise layer in nhwc the vector lies over the groups (ACROSS): products are element by element.
// REQUANT: sums of i8 become i8, by the scale of their channel (epilogue.h).
// X_QUADS, Y_QUADS (nchw): columns are read and stored four at a time.
// Knobs (spec.py; docs/families.md has what each buys): VECTOR (v 1 2 4), TH, TW: a thread's tile, SEEN_H x SEEN_W
// inputs under it; MAX_THREADS (threads 32 .. 256), MIN_BLOCKS (mb). A row's loads are all under way before one is
// converted: 7x7 at 56x56 in f16 took 15.2 us one by one, 5.9 so.
// Example: 3x3, stride 1, TH = 2, TW = 4, VECTOR = 4: 4 x 6 vectors read, 9 taps, 8 x 36 multiply-adds.

#include "loop.h"

#define KB 1
#define HB 1
#define WB 1
#define SEEN_W ((TW - 1) * STR_W + (S - 1) * DIL_W + 1)   // inputs of a row under a thread's outputs
#define SEEN_H ((TH - 1) * STR_H + (R - 1) * DIL_H + 1)  // rows under them
#define ITEMS ((offset_t)N * (K / VECTOR) * P_BLOCKS * Q_BLOCKS)

#include "tile.h"
#include "word.h"

#define CPU_LANES (CHUNKED && VECTOR > 1)           // a CPU's: many elements at once
#define NUMBER_LANES (CPU_LANES && ACROSS && DTYPE == 4)  // i8: lanes hold a number each, not a word of four
#if CPU_LANES
#include "lanes_memory.h"
#endif

typedef struct {
    int n, k, p, q;
} Item;

INLINE Item find_item(offset_t i) {
    Item at;
#if Y_NHWC
    at.k = i % (K / VECTOR) * VECTOR;
    i /= K / VECTOR;
#endif
    at.q = i % Q_BLOCKS * TW;
    i /= Q_BLOCKS;
    at.p = i % P_BLOCKS * TH;
    i /= P_BLOCKS;
#if !Y_NHWC
    at.k = i % (K / VECTOR) * VECTOR;
    i /= K / VECTOR;
#endif
    at.n = i;
    return at;
}

#include "grouped_load.h"

// sums += the products of an input row and row r of the filter.
INLINE void add_taps(vec sums[TW], const vec row[SEEN_W], const GLOBAL acc_t *w, int c, int r) {
    UNROLL for (int s = 0; s < S; s++) {
#if ACROSS
        vec tap = vec_load(w + (r * S + s) * K);
#if NUMBER_LANES
        tap = tap << 24 >> 24;
        UNROLL for (int j = 0; j < TW; j++) sums[j] += tap * row[j * STR_W + s * DIL_W];
#else
        UNROLL for (int j = 0; j < TW; j++) vec_mul_add(&sums[j], tap, row[j * STR_W + s * DIL_W]);
#endif
#else
        UNROLL for (int u = 0; u < CV; u++) {
            vec tap = vec_load(w + (((c + u) * R + r) * S + s) * K);
            UNROLL for (int j = 0; j < TW; j++) {
                acc_t one[VECTOR];
                vec_unpack(one, row[j * STR_W + s * DIL_W]);
                vec_fma(&sums[j], tap, one[u]);
            }
        }
#endif
    }
}

// acc += the products of a channel (or CV of them): each input row is read once, i rows below the thread's first.
INLINE void add_channel(vec acc[TH][TW], const GLOBAL in_t *x, const GLOBAL acc_t *w, Item at, int c0, int c, int h0,
                        int w0) {
#if ROLLED && CPU_LANES  // a loop over a large filter's rows
    NO_UNROLL for (int r = 0; r < R; r++) {
        vec row[SEEN_W];
        load_row(row, x, at, c0 + CHANNEL(c), c, h0 + r * DIL_H, w0);
        add_taps(acc[0], row, w, c, r);
    }
#elif ROLLED  // on a GPU with the next row on its way while one is multiplied
    vec row[2][SEEN_W];
    load_row(row[0], x, at, c0 + CHANNEL(c), c, h0, w0);
    NO_UNROLL for (int first = 0; first < R; first += 2)
        UNROLL for (int turn = 0; turn < 2; turn++) {
            const int r = first + turn;
            if (r + 1 < R) load_row(row[1 - turn], x, at, c0 + CHANNEL(c), c, h0 + (r + 1) * DIL_H, w0);
            if (r < R) add_taps(acc[0], row[turn], w, c, r);
        }
#else
    UNROLL for (int i = 0; i < SEEN_H; i++) {
        vec row[SEEN_W];
        load_row(row, x, at, c0 + CHANNEL(c), c, h0 + i, w0);
        UNROLL for (int b = 0; b < TH; b++)
            UNROLL for (int r = 0; r < R; r++)
                if (b * STR_H + r * DIL_H == i) add_taps(acc[b], row, w, c, r);
    }
#endif
}

// Store the sums of VECTOR channels of a pixel, finished unless a second kernel does that.
INLINE void store_pixel(Epilogue ep, Item at, int p, int q, vec v) {
#if CPU_LANES && Y_VECTOR
    finish_channels(ep, at.k, Z_AT(at.n, at.k, p, q), &v);
#else
    acc_t one[VECTOR];
    vec_unpack(one, v);
#if Y_VECTOR
    finish_run(VECTOR, ep, at.k, 1, Z_AT(at.n, at.k, p, q), one);
#else
    UNROLL for (int i = 0; i < VECTOR; i++) finish_one(ep, at.k + i, Z_AT(at.n, at.k + i, p, q), one[i]);
#endif
#endif
}

// Store four sums of a row (nchw, one channel).
INLINE void store_quad(Epilogue ep, Item at, int p, int q, const vec *sums) {
    acc_t v[4];
    UNROLL for (int j = 0; j < 4; j++) {
        acc_t one[VECTOR];
        vec_unpack(one, sums[j]);
        v[j] = one[0];
    }
    finish_run(4, ep, at.k, 0, Z_AT(at.n, at.k, p, q), v);
}

INLINE void store_item(Epilogue ep, Item at, vec acc[TH][TW]) {
    UNROLL for (int b = 0; b < TH; b++)
        UNROLL for (int j = 0; j < TW; j += Y_QUADS ? 4 : 1) {
            if (at.p + b >= P || at.q + j >= Q) continue;
            if (Y_QUADS) store_quad(ep, at, at.p + b, at.q + j, &acc[b][j]);
            else store_pixel(ep, at, at.p + b, at.q + j, acc[b][j]);
        }
}

BOUNDED_KERNEL(grouped, MAX_THREADS, MIN_BLOCKS)
(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y SCALE_PARAMETER) {
    const Epilogue ep = {bias, z, y SCALE_ARGUMENT};
    CHAIN_WAIT();
    FOR_EACH(item, ITEMS) {
        Item at = find_item(item);
        int c0 = ACROSS ? at.k : at.k / KG * CG, h0 = at.p * STR_H - PAD_T, w0 = at.q * STR_W - PAD_L;
        vec acc[TH][TW];
        UNROLL for (int b = 0; b < TH; b++) UNROLL for (int j = 0; j < TW; j++) vec_zero(&acc[b][j]);
        NO_UNROLL for (int c = 0; c < CW; c += ACROSS ? 1 : CV) add_channel(acc, x, w + at.k, at, c0, c, h0, w0);
        store_item(ep, at, acc);
    }
}
