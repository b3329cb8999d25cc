// winograd: 3x3, stride 1, by F(2x2, 3x3): 16 multiply-adds for 4 outputs where direct takes 36.
//
//   y tile (2x2) = A' [ sum over c of (G g G') * (B' d B) ] A      d: input tile (4x4), g: filter (3x3)
//
// x, y: nchw or nhwc.  w: packed [group][k tile][c][16][KB], transformed by pack.cu, zero padded.
//
//   block tile: KB channels x HT x WT tiles of 2x2 outputs         elements 0..15 of a transformed tile
//                                                                  are shared out among EG teams of threads:
//     x tile, CS channels        V: CS x 16 x TILES                each team is a matrix product
//     +--------------+   B'dB    +--+--+--+--+                     KB x TILES of its 16 / EG elements,
//     | 2HT+2 x 2WT+2| ------->  |  |  |  |  | 16                  a thread VECTOR*TK x TT of each
//     +--------------+           +--+--+--+--+
//
// The order of the adds differs from the direct sum and a NaN or infinity in x spreads over its tile.
//
// Knobs (fused.py has their values and rules, docs/families.md what each buys): VECTOR (v), TK (tk), TT (tt 4 .. 16): a
// thread's channels and tiles; EG (eg 4 8 16) teams, BK, BT (bk, bt) threads of a team; HT (ht) rows of tiles; CS, CV,
// STAGES (cs, cv, stages): as in stage.h; SG, COMBINE: shares of C across the grid (tile.h).
// Example: 256 threads, EG = 8, BK = 8, BT = 4, VECTOR = 4, TK = 2, TT = 8: 64 channels x 32 tiles,
// 2 * 8 * 8 = 128 accumulators a thread.

#define KB (VECTOR * TK * BK)
#define TILES (TT * BT)
#define WT (TILES / HT)
#define HB (2 * HT)
#define WB (2 * WT)
#define TEAM (BK * BT)
#define THREADS (TEAM * EG)
#define TEAM_ELEMENTS (16 / EG)             // elements of a team
#define RS 16                               // what stage() copies of the filter for each channel
#define V_PITCH (16 * TILES + 4)            // of a channel in V, floats: channels meet different banks
#define STAGE_FLOATS (X_FLOATS + F_FLOATS)
#define KC (VECTOR * BK)                    // channels whose outputs are stored at once
#define M_PITCH (TILES + 1)                 // of a channel in M, floats
#define FOR_ACC(e, a, i)                           \
    UNROLL for (int e = 0; e < TEAM_ELEMENTS; e++) \
        UNROLL for (int a = 0; a < TK; a++)        \
            UNROLL for (int i = 0; i < TT; i++)

#include "tile.h"
#include "stage.h"

// V = B' d B for every channel and tile of the step.
INLINE void transform_input(SHARED float *to, const SHARED float *xs) {
    for (int item = THREAD(0); item < CS * TILES; item += THREADS) {
        int c = X_NHWC ? item % CS : item / TILES;
        int t = X_NHWC ? item / CS : item % TILES;
        const SHARED float *d = xs + c * TX_C + t / WT * 2 * TX_H + t % WT * 2 * TX_W + X_LEAD;
        float rows[4][4];
        UNROLL for (int j = 0; j < 4; j++) {
            float d0 = d[j * TX_W], d1 = d[TX_H + j * TX_W], d2 = d[2 * TX_H + j * TX_W], d3 = d[3 * TX_H + j * TX_W];
            rows[0][j] = d0 - d2, rows[1][j] = d1 + d2, rows[2][j] = d2 - d1, rows[3][j] = d1 - d3;
        }
        SHARED float *v = to + c * V_PITCH + t;
        UNROLL for (int i = 0; i < 4; i++) {
            v[(4 * i + 0) * TILES] = rows[i][0] - rows[i][2];
            v[(4 * i + 1) * TILES] = rows[i][1] + rows[i][2];
            v[(4 * i + 2) * TILES] = rows[i][2] - rows[i][1];
            v[(4 * i + 3) * TILES] = rows[i][1] - rows[i][3];
        }
    }
}

// One tile of outputs: A' m A, finished.
INLINE void transform_output(Epilogue ep, Place at, const SHARED float *m, int k, int t) {
    float rows[2][4];
    UNROLL for (int j = 0; j < 4; j++) {
        float m0 = m[j * KC * M_PITCH], m1 = m[(4 + j) * KC * M_PITCH];
        float m2 = m[(8 + j) * KC * M_PITCH], m3 = m[(12 + j) * KC * M_PITCH];
        rows[0][j] = m0 + m1 + m2, rows[1][j] = m1 - m2 - m3;
    }
    int p = t / WT * 2, q = t % WT * 2;
#if POOL_HERE  // the tile is one window
    int k_all = at.group * K + at.k0 + k;
    p += at.p0, q += at.q0;
    if (at.k0 + k >= K || p / 2 >= YP || q / 2 >= YQ) return;
    acc_t pooled = POOL_NOTHING;
    UNROLL for (int i = 0; i < 2; i++) {
        offset_t to = Z_AT(at.n, k_all, p + i, q), next = Z_AT(at.n, k_all, p + i, q + 1);
        pool_take(&pooled, before_pool(rows[i][0] + rows[i][1] + rows[i][2], ep, k_all, to));
        pool_take(&pooled, before_pool(rows[i][1] - rows[i][2] - rows[i][3], ep, k_all, next));
    }
    ep.y[Y_AT(at.n, k_all, p / 2, q / 2)] = pool_mean(pooled);
#else
    UNROLL for (int i = 0; i < 2; i++) {
        finish(ep, at, k, p + i, q, rows[i][0] + rows[i][1] + rows[i][2]);
        finish(ep, at, k, p + i, q + 1, rows[i][1] - rows[i][2] - rows[i][3]);
    }
#endif
}

BOUNDED_KERNEL(winograd, THREADS, MIN_BLOCKS)
(const GLOBAL float *RESTRICT x, const GLOBAL float *RESTRICT w, const GLOBAL float *RESTRICT bias,
 const GLOBAL float *RESTRICT z, GLOBAL float *RESTRICT y, GLOBAL unsigned *RESTRICT arrived) {
    SHARED_ARRAY(shared);
    const Epilogue ep = {bias, z, y};

    // block and thread
    Place at = find_place(GROUP(0));
    int id = THREAD(0), t0 = id / BK % BT * TT, k0 = id % BK * VECTOR, e0 = id / TEAM * TEAM_ELEMENTS;
    const GLOBAL float *filter = w + (offset_t)(at.group * K_TILES + at.k0 / KB) * C_PADDED * RS * KB;
    SHARED float *vs = shared + STAGES * STAGE_FLOATS;

    // registers
    vec acc[TEAM_ELEMENTS][TK][TT];
    FOR_ACC(e, a, i) vec_zero(&acc[e][a][i]);

    // main loop
    PIPE(pipe);
    Source from = stage_first(pipe, shared, x, filter, at);
    zero_tile(y, arrived, at);
    NO_UNROLL for (int step = 0; step < STEPS; step++) {
        if (STAGES == 1 && step > 0) BARRIER();
        if (STAGES == 1) stage(pipe, shared, x, filter, at, from, step);
        pipe_full(pipe, step);
        const SHARED float *xs = BUFFER(shared, step);
        const SHARED float *us = xs + X_FLOATS;
        transform_input(vs, xs);
        if (STAGES > 1) stage(pipe, shared, x, filter, at, from, step + STAGES - 1);
        BARRIER();
        UNROLL_BY(CHANNEL_UNROLL_BY) for (int c = 0; c < CS; c++)
            UNROLL for (int e = 0; e < TEAM_ELEMENTS; e++) {
                float v[TT];
                const SHARED float *tiles = vs + c * V_PITCH + (e0 + e) * TILES + t0;
                UNROLL for (int i = 0; i < TT; i += 4) load4(&v[i], tiles + i);
                UNROLL for (int a = 0; a < TK; a++) {
                    vec u = vec_load_shared(us + (c * RS + e0 + e) * KB + a * KC + k0);
                    UNROLL for (int i = 0; i < TT; i++) vec_fma_turn(i, &acc[e][a][i], u, v[i]);
                }
            }
    }

    // transform and store, KC channels at a time
    zeros_awaited(arrived, at);
    ASYNC_WAIT(0);
    UNROLL for (int a = 0; a < TK; a++) {
        BARRIER();
        UNROLL for (int e = 0; e < TEAM_ELEMENTS; e++)
            UNROLL for (int i = 0; i < TT; i++) {
                float one[VECTOR];
                vec_unpack(one, acc[e][a][i]);
                UNROLL for (int v = 0; v < VECTOR; v++) shared[((e0 + e) * KC + k0 + v) * M_PITCH + t0 + i] = one[v];
            }
        BARRIER();
        for (int item = id; item < KC * TILES; item += THREADS) {
            int k = Y_NHWC ? item % KC : item / TILES, t = Y_NHWC ? item / KC : item % TILES;
            transform_output(ep, at, shared + k * M_PITCH + t, a * KC + k, t);
        }
    }
}
