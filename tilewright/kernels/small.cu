// small: few input channels under a small filter, and many images: first layers, LeNet's.
//
//   y[n,k,p,q] = epilogue(sum over c,r,s of x[n,c,p*u+r*d-pad,q*u+s*d-pad] * w[c][r][s][k])
//
// x, y: nchw or nhwc.  w: packed [c][r][s][KP], zero padded in K.
//
//   an item: BAND output rows of IMAGES images      a thread's unit: TW outputs of a row, TK channels
//
//     +--------------------+                          one input row in registers feeds S taps of TK channels:
//     | rows under item 0  | --> buffer 0             x0 x1 x2 x3 x4 x5      TW = 4, S = 3:
//     +--------------------+                             [s=0: x0..x3]       6 words feed 12 * TK multiply-adds
//     | rows under item 1  | --> buffer 1                   [s=1: x1..x4]
//     +--------------------+                                   [s=2: x2..x5]
//
// As many blocks as the device holds at once go from item to item; while they compute one, the next is on its
// way into the other buffer. Padding stays in shared memory as zeros that no copy touches. A multiply-add takes
// its tap straight from constant memory (F_CONSTANT: the body is unrolled whole, so that addresses are constants)
// or from a copy of the filter in shared memory. With OUT the sums of an item pass through shared memory,
// so that they are stored as one line, however rows are cut.
// Example: LeNet 1 (86 x 86, 7x7, 4 channels): TW = 4, TK = 4: 21 loads of 16 bytes for 784 multiply-adds.

#define KB 1
#define HB 1
#define WB 1
#define SC 1
#define SG 1
#define VK (TK / VECTOR)
#define KP (K_GROUPS * TK)
#define UNITS (IMAGES * BAND * Q_PARTS * K_GROUPS)
#define ITEMS (ceil_div(N, IMAGES) * BANDS)
#define XH ((BAND - 1) * STR_H + (R - 1) * DIL_H + 1)
#define PLANE (XH * XP)
#define LINES (X_NHWC ? XH : C * XH)    // runs of neighbours in memory, of an image
#define LINE (X_NHWC ? W * C : W)
#define ROW ((TW - 1) * STR_W + (S - 1) * DIL_W + 1)
#define ROW4 ((ROW + 3) / 4 * 4)
#define BAND_PIXELS (BAND * Q)
#define ceil_div(a, b) (((a) + (b) - 1) / (b))

#include "tile.h"

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
                    async_copy4(row + (X_NHWC ? at % C * PLANE + at / C : at), from + (keep ? at : 0), keep);
            }
        }
    ASYNC_COMMIT();
}

INLINE void load_row(float row[ROW4], const SHARED float *from) {
#if ALIGNED_WORDS == 4
    UNROLL for (int i = 0; i < ROW4; i += 4) load4(row + i, from + i);
#elif ALIGNED_WORDS == 2
    UNROLL for (int i = 0; i < (ROW + 1) / 2 * 2; i += 2) load2(row + i, from + i);
#else
    UNROLL for (int i = 0; i < ROW; i++) row[i] = from[i];
#endif
}

typedef struct {
    int i, p, q, k;  // image of the item, row of the band, first column, first channel
} Unit;

// One sum of the band: store it, finished, or leave it in shared memory.
INLINE void store_one(GLOBAL float *y, const GLOBAL float *bias, const GLOBAL float *z, SHARED float *out, Unit at,
                      int n, int p, float v) {
    if (at.k >= K || at.q >= Q) return;
#if OUT
    out[Y_NHWC ? (at.i * BAND_PIXELS + at.p * Q + at.q) * K + at.k : (at.i * K + at.k) * BAND_PIXELS + at.p * Q + at.q] = v;
#else
    if (n >= N || p >= P) return;
    offset_t to = Z_AT(n, at.k, p, at.q);
    y[to] = epilogue(v, bias, at.k, z, to);
#endif
}

INLINE void store_unit(GLOBAL float *y, const GLOBAL float *bias, const GLOBAL float *z, SHARED float *out, Unit at,
                       int n0, int p0, const vec acc[VK][TW]) {
    const int n = n0 + at.i, p = p0 + at.p;
    UNROLL for (int a = 0; a < VK; a++) {
#if Y_QUADS && !OUT  // nchw: rows of 16-byte aligned quads
        UNROLL for (int j = 0; j < TW; j += 4) {
            float quad[4][VECTOR];
            UNROLL for (int i = 0; i < 4; i++) vec_unpack(quad[i], acc[a][j + i]);
            UNROLL for (int v = 0; v < VECTOR; v++) {
                int k = at.k + a * VECTOR + v;
                if (k >= K || at.q + j >= Q || n >= N || p >= P) continue;
                offset_t to = Z_AT(n, k, p, at.q + j);
                float one[4];
                UNROLL for (int i = 0; i < 4; i++) one[i] = epilogue(quad[i][v], bias, k, z, to + i);
                store4(y + to, one);
            }
        }
#else
        UNROLL for (int j = 0; j < TW; j++) {
            float one[VECTOR];
            vec_unpack(one, acc[a][j]);
#if Y_VECTOR && !OUT  // nhwc: neighbouring channels
            int k = at.k + a * VECTOR;
            if (k >= K || at.q + j >= Q || n >= N || p >= P) continue;
            offset_t to = Z_AT(n, k, p, at.q + j);
            UNROLL for (int v = 0; v < VECTOR; v++) one[v] = epilogue(one[v], bias, k + v, z, to + v);
            vec_store(y + to, vec_pack(one));
#else
            UNROLL for (int v = 0; v < VECTOR; v++) {
                Unit mine = {at.i, at.p, at.q + j, at.k + a * VECTOR + v};
                store_one(y, bias, z, out, mine, n, p, one[v]);
            }
#endif
        }
#endif
    }
}

// Store the sums of an item as lines of quads, or of single words.
INLINE void store_lines(GLOBAL float *y, const GLOBAL float *bias, const GLOBAL float *z, const SHARED float *out,
                        int n0, int p0) {
#define AT_ONCE (Y_QUADS ? 4 : 1)
    for (int e = THREAD(0) * AT_ONCE; e < IMAGES * K * BAND_PIXELS; e += THREADS * AT_ONCE) {
        int k = Y_NHWC ? e % K : e / BAND_PIXELS % K, n = n0 + e / (K * BAND_PIXELS);
        int pixel = p0 * Q + (Y_NHWC ? e / K % BAND_PIXELS : e % BAND_PIXELS);
        if (n >= N || pixel >= P * Q) continue;
        offset_t to = Y_NHWC ? ((offset_t)n * (P * Q) + pixel) * K + k : ((offset_t)n * K + k) * (P * Q) + pixel;
#if Y_QUADS
        float one[4];
        load4(one, out + e);
        UNROLL for (int i = 0; i < 4; i++) one[i] = epilogue(one[i], bias, k + (Y_NHWC ? i : 0), z, to + i);
        store4(y + to, one);
#else
        y[to] = epilogue(out[e], bias, k, z, to);
#endif
    }
}

BOUNDED_KERNEL(small, THREADS, MIN_BLOCKS)
(const GLOBAL float *RESTRICT x, FILTER_SPACE float *RESTRICT w, const GLOBAL float *RESTRICT bias,
 const GLOBAL float *RESTRICT z, GLOBAL float *RESTRICT y) {
    SHARED_ARRAY(shared);  // [STAGES][IMAGES][C][XH][XP], then the filter, then the item's sums
    SHARED float *filter = shared + STAGES * X_FLOATS, *out = filter + F_FLOATS;
    CHAIN();

    // zeros around the rows, and the filter
    for (int e = THREAD(0); e < STAGES * X_FLOATS; e += THREADS) shared[e] = 0.0f;
    BARRIER();
#if !F_CONSTANT
    for (int e = THREAD(0); e < C * R * S * KP; e += THREADS) async_copy4(filter + e, w + e, 1);
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
            Unit at = {unit / (Q_PARTS * BAND) % IMAGES, unit / Q_PARTS % BAND, unit % Q_PARTS * TW,
                       unit / (Q_PARTS * BAND * IMAGES) * TK};
            const SHARED float *from = xs + at.i * (C * PLANE) + at.p * (STR_H * XP) + at.q * STR_W;
            vec acc[VK][TW];
            UNROLL for (int a = 0; a < VK; a++) UNROLL for (int j = 0; j < TW; j++) vec_zero(&acc[a][j]);
            UNROLL_BY(CHANNEL_UNROLL) for (int c = 0; c < C; c++) {
                UNROLL_BY(ROW_UNROLL) for (int r = 0; r < R; r++) {
                    float row[ROW4];
                    load_row(row, from + c * PLANE + r * (DIL_H * XP));
                    UNROLL for (int s = 0; s < S; s++)
                        UNROLL for (int a = 0; a < VK; a++) {
                            int f = ((c * R + r) * S + s) * KP + a * VECTOR;
#if F_CONSTANT
                            float taps[VECTOR];
                            UNROLL for (int v = 0; v < VECTOR; v++) taps[v] = FILTER[f + v];
                            vec tap = vec_pack(taps);
#else
                            vec tap = vec_load_shared(filter + at.k + f);
#endif
                            UNROLL for (int j = 0; j < TW; j++)
                                vec_fma_turn(j, &acc[a][j], tap, row[j * STR_W + s * DIL_W]);
                        }
                }
            }
            store_unit(y, bias, z, out, at, n0, p0, acc);
        }
#if OUT
        BARRIER();
        store_lines(y, bias, z, out, n0, p0);
#endif
    }
}
