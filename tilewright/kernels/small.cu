// small: few input channels under a small filter, and many images: first layers, LeNet's.
//
//   y[n,k,p,q] = epilogue(sum over c,r,s of x[n,c,p*u+r*d-pad,q*u+s*d-pad] * w[c][r][s][k])
//
// x, y: nchw or nhwc.  w: packed [c][r][s][KP], zero padded in K.
//
//   an item: BAND output rows of IMAGES images    a thread's unit: TW outputs of TH rows, TK channels
//
//     +--------------------+                        an input row in registers is slid under S taps of TK channels:
//     | rows under item 0  | --> buffer 0           x0 x1 x2 x3 x4 x5      TW = 4, S = 3: 6 words of each of TH rows,
//     +--------------------+                           [s=0: x0..x3]       P_PARTS apart, and 3 * TK taps feed
//     | rows under item 1  | --> buffer 1                 [s=1: x1..x4]    12 * TK * TH multiply-adds
//     +--------------------+                                 [s=2: x2..x5]
//
// As many blocks as the device holds at once go from item to item; while they compute one, the next is on its
// way into the other buffer. Padding stays in shared memory as zeros that no copy touches. Taps come from
// constant memory (F_CONSTANT) or from a copy of the filter in shared memory. Neighbouring lanes have
// neighbouring columns (nchw) or channels (nhwc): with TW = 4 or TK = 4 they store 16 bytes each, of one line.
// With OUT the sums of an item pass through shared memory and are stored as one line, however rows are cut.
// Knobs (small.py; docs/families.md has what each buys): TK, TH, TW (tk, th, tw) of a unit, THREADS, BAND (bands) and
// IMAGES (ni) of an item, STAGES (stages 1 2), F_CONSTANT (f), OUT (out).
// Example: LeNet 1 (86 x 86, 7x7, 4 channels): TW = TH = TK = 4: 19 loads of 16 bytes for 448 multiply-adds.

#include "bands.h"

#define UNITS (IMAGES * P_PARTS * Q_PARTS * K_GROUPS)
#define PLANE (XH * XP)
#define LINES (X_NHWC ? XH : C * XH)    // runs of neighbours in memory, of an image
#define LINE (X_NHWC ? W * C : W)
#define SEEN_W ((TW - 1) * STR_W + (S - 1) * DIL_W + 1)
#define SEEN_W4 ((SEEN_W + 3) / 4 * 4)
#define BAND_PIXELS (BAND * Q)

#if F_CONSTANT
CONSTANT_FILTER(C * R * S * KP)
#define FILTER_SPACE CONSTANT
#else
#define FILTER_SPACE const GLOBAL
#endif

// Copy the input rows under an item; nothing if there is no such item.
INLINE void stage(SHARED float *to, const GLOBAL float *x, int item) {
    const int n0 = item / BANDS * IMAGES, h0 = item % BANDS * (BAND * STR_H) - PAD_T, lane = THREAD(0) % 32;
    if (item < ITEMS)
        NO_UNROLL for (int line = THREAD(0) / 32; line < IMAGES * LINES; line += THREADS / 32) {
            int i = line / LINES, c = X_NHWC ? 0 : line / XH % C, h = line % XH;
            int keep = (unsigned)(h0 + h) < H && n0 + i < N;
            const GLOBAL float *from = x + (keep ? X_AT(n0 + i, c, h0 + h, 0) : 0);
            SHARED float *row = to + (i * C + c) * PLANE + h * XP + PAD_L;
            UNROLL_BY(8) for (int e = 0; e < LINE; e += 32) {
                int at = e + lane;
                if (LINE % 32 == 0 || at < LINE)
                    async_copy1(row + (X_NHWC ? at % C * PLANE + at / C : at), from + (keep ? at : 0), keep);
            }
        }
    ASYNC_COMMIT();
}

INLINE void load_row(float row[SEEN_W4], const SHARED float *from) {
#if ALIGNED_WORDS == 4
    UNROLL for (int i = 0; i < SEEN_W4; i += 4) load4(row + i, from + i);
#elif ALIGNED_WORDS == 2
    UNROLL for (int i = 0; i < (SEEN_W + 1) / 2 * 2; i += 2) load_run(2, row + i, from + i);
#else
    UNROLL for (int i = 0; i < SEEN_W; i++) row[i] = from[i];
#endif
}

INLINE vec load_tap(FILTER_SPACE float *w, const SHARED float *filter, int at) {
#if F_CONSTANT
    float one[VECTOR];
    UNROLL for (int v = 0; v < VECTOR; v++) one[v] = FILTER[at + v];
    return vec_pack(one);
#else
    return vec_load_shared(filter + at);
#endif
}

typedef struct {
    int i, p, q, k;  // image of the item, first row of the band, first column, first channel
} Unit;

// Neighbouring lanes make what are neighbours in y.
INLINE Unit find_unit(int unit) {
    const int places = Q_PARTS * P_PARTS * IMAGES, k = Y_NHWC ? unit % K_GROUPS : unit / places;
    const int place = Y_NHWC ? unit / K_GROUPS : unit % places;
    Unit at = {place / (Q_PARTS * P_PARTS), place / Q_PARTS % P_PARTS, place % Q_PARTS * TW, k * TK};
    return at;
}

// One sum of the band: store it, finished, or leave it in shared memory.
INLINE void store_one(Epilogue ep, SHARED float *out, Unit at, int n, int p, float v) {
    if (at.k >= K || at.q >= Q || at.p >= BAND) return;
#if OUT
    out[Y_NHWC ? (at.i * BAND_PIXELS + at.p * Q + at.q) * K + at.k
               : (at.i * K + at.k) * BAND_PIXELS + at.p * Q + at.q] = v;
#else
    if (n >= N || p >= P) return;
    finish_one(ep, at.k, Z_AT(n, at.k, p, at.q), v);
#endif
}

// The sums of one row of a unit.
INLINE void store_row(Epilogue ep, SHARED float *out, Unit at, int n0, int p0, const vec acc[TW]) {
    const int n = n0 + at.i, p = p0 + at.p;
#if Y_WORDS > 1 && !OUT  // nchw: rows of aligned quads or pairs
    UNROLL for (int j = 0; j < TW; j += Y_WORDS) {
        float sums[Y_WORDS][VECTOR];
        UNROLL for (int i = 0; i < Y_WORDS; i++) vec_unpack(sums[i], acc[j + i]);
        UNROLL for (int v = 0; v < VECTOR; v++) {
            int k = at.k + v;
            if (k >= K || at.q + j >= Q || n >= N || at.p >= BAND || p >= P) continue;
            offset_t to = Z_AT(n, k, p, at.q + j);
            float one[Y_WORDS];
            UNROLL for (int i = 0; i < Y_WORDS; i++) one[i] = epilogue(sums[i][v], ep, k, to + i);
            store_run(Y_WORDS, ep.y + to, one);
        }
    }
#else
    UNROLL for (int j = 0; j < TW; j++) {
        float one[VECTOR];
        vec_unpack(one, acc[j]);
#if Y_VECTOR && !OUT  // nhwc: neighbouring channels
        if (at.k >= K || at.q + j >= Q || n >= N || at.p >= BAND || p >= P) continue;
        offset_t to = Z_AT(n, at.k, p, at.q + j);
        UNROLL for (int v = 0; v < VECTOR; v++) one[v] = epilogue(one[v], ep, at.k + v, to + v);
        vec_store(ep.y + to, vec_pack(one));
#else
        UNROLL for (int v = 0; v < VECTOR; v++) {
            Unit mine = {at.i, at.p, at.q + j, at.k + v};
            store_one(ep, out, mine, n, p, one[v]);
        }
#endif
    }
#endif
}

// Store the sums of an item as lines of quads, pairs or single words.
INLINE void store_lines(Epilogue ep, const SHARED float *out, int n0, int p0) {
    for (int e = THREAD(0) * Y_WORDS; e < IMAGES * K * BAND_PIXELS; e += THREADS * Y_WORDS) {
        int k = Y_NHWC ? e % K : e / BAND_PIXELS % K, n = n0 + e / (K * BAND_PIXELS);
        int pixel = p0 * Q + (Y_NHWC ? e / K % BAND_PIXELS : e % BAND_PIXELS);
        if (n >= N || pixel >= P * Q) continue;
        offset_t to = Y_NHWC ? ((offset_t)n * (P * Q) + pixel) * K + k : ((offset_t)n * K + k) * (P * Q) + pixel;
        float one[Y_WORDS];
        UNROLL for (int i = 0; i < Y_WORDS; i++) one[i] = epilogue(out[e + i], ep, k + (Y_NHWC ? i : 0), to + i);
        store_run(Y_WORDS, ep.y + to, one);
    }
}

// Sum up a unit, of staged rows from `from` on and taps from `filter` on.
INLINE void sum_unit(vec acc[VK][TH][TW], FILTER_SPACE float *w, const SHARED float *from, const SHARED float *filter) {
    UNROLL for (int a = 0; a < VK; a++)
        UNROLL for (int b = 0; b < TH; b++) UNROLL for (int j = 0; j < TW; j++) vec_zero(&acc[a][b][j]);
    UNROLL_BY(CHANNEL_UNROLL_BY) for (int c = 0; c < C; c++) {
        UNROLL_BY(ROW_UNROLL_BY) for (int r = 0; r < R; r++) {
            float row[TH][SEEN_W4];
            UNROLL for (int b = 0; b < TH; b++)
                load_row(row[b], from + c * PLANE + (r * DIL_H + b * (P_PARTS * STR_H)) * XP);
            UNROLL for (int s = 0; s < S; s++)
                UNROLL for (int a = 0; a < VK; a++) {
                    vec tap = load_tap(w, filter, ((c * R + r) * S + s) * KP + a * VECTOR);
                    UNROLL for (int b = 0; b < TH; b++)
                        UNROLL for (int j = 0; j < TW; j++)
                            vec_fma_turn(j, &acc[a][b][j], tap, row[b][j * STR_W + s * DIL_W]);
                }
        }
    }
}

BOUNDED_KERNEL(small, THREADS, MIN_BLOCKS)
(const GLOBAL float *RESTRICT x, FILTER_SPACE float *RESTRICT w, const GLOBAL float *RESTRICT bias,
 const GLOBAL float *RESTRICT z, GLOBAL float *RESTRICT y) {
    SHARED_ARRAY(shared);  // [STAGES][IMAGES][C][XH][XP], then the filter, then the item's sums
    SHARED float *filter = shared + STAGES * X_FLOATS, *out = filter + F_FLOATS;
    const Epilogue ep = {bias, z, y};
    CHAIN_WAIT();

    // zeros around the rows, and the filter
    for (int e = THREAD(0); e < STAGES * X_FLOATS; e += THREADS) shared[e] = 0.0f;
    BARRIER();
#if !F_CONSTANT
    for (int e = THREAD(0); e < C * R * S * KP; e += THREADS) async_copy1(filter + e, w + e, 1);
#endif
    if (STAGES == 2) stage(shared, x, GROUP(0));

    NO_UNROLL for (int item = GROUP(0), turn = 0; item < ITEMS; item += GRID, turn++) {
        SHARED float *xs = shared + (STAGES == 2 ? turn % 2 : 0) * X_FLOATS;
        if (STAGES == 1) {
            BARRIER();
            stage(xs, x, item);
        }
        ASYNC_WAIT(0);
        BARRIER();  // the item is there, and all are done with the other buffer and the last sums
        if (STAGES == 2) stage(shared + (turn + 1) % 2 * X_FLOATS, x, item + GRID);
        const int n0 = item / BANDS * IMAGES, p0 = item % BANDS * BAND;

        NO_UNROLL for (int unit = THREAD(0); unit < UNITS; unit += THREADS) {
            Unit at = find_unit(unit);
            const SHARED float *from = xs + at.i * (C * PLANE) + at.p * (STR_H * XP) + at.q * STR_W;
            vec acc[VK][TH][TW];
            sum_unit(acc, w, from, filter + at.k);
            UNROLL for (int b = 0; b < TH; b++)
                UNROLL for (int a = 0; a < VK; a++) {
                    Unit mine = {at.i, at.p + b * P_PARTS, at.q, at.k + a * VECTOR};
                    store_row(ep, out, mine, n0, p0, acc[a][b]);
                }
        }
#if OUT
        BARRIER();
        store_lines(ep, out, n0, p0);
#endif
    }
}
