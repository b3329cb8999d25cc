// direct: the sum over c,r,s of x[n,c,p*u+r*d-pad,q*u+s*d-pad] * w[k,c,r,s], then its epilogue (epilogue.h)
//
// x, y: nchw or nhwc (X_NHWC, Y_NHWC).  w: packed [group][k tile][c][r][s][KB], zero padded in K and C.
// Channels c are words of DTYPE (word.h): one each, or four of i8.
//
//   block tile  KB x HB x WB outputs        thread tile  (VECTOR*TK) x TH x TW accumulators
//
//        K                                   a thread keeps one input row of each output row and
//        |   +-----------+                   slides it under the S taps of a filter row:
//        |  /  HB x WB  /|
//        | +-----------+ |  KB               row: x0 x1 x2 x3 x4 x5       TW = 4, S = 3:
//        | |           | |                        [s=0: x0..x3]           6 loads feed
//        | |           | +                           [s=1: x1..x4]        4*3*VECTOR*TK
//        | |           |/                               [s=2: x2..x5]     multiply-adds
//        | +-----------+
//
// The sum over C is split SW ways inside a warp, SB inside the block, SC across a cluster and SG
// across the grid; each share is a run of channels, CS of them staged at a time, CV read at once.
// Example: R12 (C = 512), SC = 8, SG = 4, CS = 8: a block sums 512 / 32 = 16 channels in 2 steps.

#define KB (VECTOR * TK * BK)
#define HB (TH * BH)
#define WB (TW * BW)
#define PIXELS (HB * WB)
#define TEAM (BK * BH * BW)                 // threads that share one run of channels
#define SHARES (SW * SB)                    // runs of channels inside a block
#define THREADS (TEAM * SHARES)
#define RS (R * S)
#define ROW ((TW - 1) * STR_W + (S - 1) * DIL_W + 1)  // inputs under one thread's output row
#define ROW4 ((ROW + 3) / 4 * 4)
#define VECTOR_ROWS (CV == 1 && TX_W == 1 && (TW * STR_W) % 4 == 0 && TX_H % 4 == 0 && TX_C % 4 == 0)
#define STAGE_FLOATS (X_FLOATS + F_FLOATS)  // X_FLOATS, F_FLOATS: extent of the staged tiles
#define STAGED (X_SHARED || F_SHARED)
#define OUT_SHARED (OUT || SB > 1 || SC > 1)
#define POOLED_PIXELS (WINDOWS(HB) * WINDOWS(WB))
#define FAST (Y_NHWC ? KB : PIXELS)         // the output tile in shared memory: [SLOW][PITCH]
#define SLOW (Y_NHWC ? PIXELS : KB)
#define PITCH (FAST + OUT_PAD)
#define WARP (THREADS < 32 ? THREADS : 32)
#define FOR_TILE(a, b, i)                                   \
    UNROLL for (int a = 0; a < TK; a++)                     \
        UNROLL for (int b = 0; b < TH; b++)                 \
            UNROLL for (int i = 0; i < TW; i++)

#define WAITS_LATE (COMBINE == ATOMIC)
#include "tile.h"
#include "word.h"
#ifdef ONE_LANE  // a CPU core: another body for the same formula
#include "direct_cpu.h"
#else
#include "stage.h"

typedef struct {
    int k, h, w;     // this thread's first output in the block tile
    int share, in_warp, in_block;  // its run of channels: number, and numbers at both levels
    int team;        // number among the threads of the run
} Lane;

// Threads that split a warp's channels sit 32 / SW lanes apart; the rest tile K, P and Q.
INLINE Lane find_lane(void) {
    Lane me;
    int id = THREAD(0);
    me.in_warp = SW > 1 ? id % 32 / (32 / SW) : 0;
    int t = SW > 1 ? id / 32 * (32 / SW) + id % (32 / SW) : id;
    me.in_block = t / TEAM;
    me.share = me.in_block * SW + me.in_warp;
    me.team = t %= TEAM;
    me.k = (W_FASTEST ? t / (BW * BH) : t % BK) * VECTOR;
    me.w = (W_FASTEST ? t % BW : t / BK % BW) * TW;
    me.h = (W_FASTEST ? t / BW % BH : t / (BK * BW)) * TH;
    return me;
}

// Input row r of output row b: CV channels from cc on, of the staged tile or in place.
INLINE void load_row(acc_t row[ROW4][CV], const GLOBAL in_t *x, const SHARED acc_t *xs, Place at, Lane me, int c0,
                     int cc, int b, int r) {
#if X_SHARED
    const SHARED acc_t *from = xs + cc * TX_C + ((me.h + b) * STR_H + r * DIL_H) * TX_H + me.w * STR_W * TX_W;
    if (CV == 4) {
        UNROLL for (int i = 0; i < ROW; i++) load4(row[i], from + i * TX_W);
    } else if (VECTOR_ROWS) {
        UNROLL for (int i = 0; i < ROW4; i += 4) load4(&row[0][0] + i, from + i);
    } else {
        UNROLL for (int i = 0; i < ROW; i++) row[i][0] = from[i * TX_W];
    }
#else
    int h = (at.p0 + me.h + b) * STR_H + r * DIL_H - PAD_T;
    UNROLL for (int i = 0; i < ROW; i++) {
        int w = (at.q0 + me.w) * STR_W + i - PAD_L;
        UNROLL for (int u = 0; u < CV; u++) {
            int c = c0 + cc + u;
            int keep = c < C && (unsigned)h < H && (unsigned)w < W;
            row[i][u] = keep ? load_word(x + X_AT(at.n, at.group * CG + CHANNEL(c), h, w), c) : 0;
        }
    }
#endif
}

#if OUT_SHARED
// One element of the output tile, summed over its shares: of block and cluster, or (pass 1) of the grid.
INLINE acc_t tile_sum(const SHARED acc_t *shared, const GLOBAL acc_t *parts, Place at, int slow, int fast, int pass) {
    acc_t sum = 0;
    if (pass == 1) {
        UNROLL for (int g = 0; g < SG; g++) sum += load_fresh(parts + (offset_t)g * (KB * PIXELS) + slow * FAST + fast);
        return sum;
    }
    const SHARED acc_t *tile = shared + slow * PITCH + fast;
    UNROLL for (int rank = 0; rank < SC; rank++)
        UNROLL for (int g = 0; g < (SC > 1 ? 1 : SB); g++) sum += cluster_load(tile + g * SLOW * PITCH, (rank + at.sc) % SC);
    return sum;
}

// Finish the elements under each window of the tile and store what the pool makes of them.
INLINE void store_pooled(GLOBAL y_t *y, const GLOBAL out_t *bias, const GLOBAL out_t *z, Place at,
                         const SHARED acc_t *shared, const GLOBAL acc_t *parts, int warp, int lane) {
#if POOL_HERE
    const int fast_count = Y_NHWC ? KB : POOLED_PIXELS, slow_count = Y_NHWC ? POOLED_PIXELS : KB;
    for (int fast = lane; fast < fast_count; fast += WARP)
        for (int slow = warp; slow < slow_count; slow += SC * (THREADS / WARP)) {
            int k = Y_NHWC ? fast : slow, window = Y_NHWC ? slow : fast, k_all = at.group * K + at.k0 + k, count = 0;
            int h = window / WINDOWS(WB), w = window % WINDOWS(WB);
            int p = (at.p0 + POOL_PAD) / POOL_STRIDE + h, q = (at.q0 + POOL_PAD) / POOL_STRIDE + w;
            if (at.k0 + k >= K || p >= YP || q >= YQ) continue;
            acc_t pooled = POOL_NOTHING;
            UNROLL for (int e = 0; e < POOL_SIZE * POOL_SIZE; e++) {
                int i = h * POOL_STRIDE + e / POOL_SIZE, j = w * POOL_STRIDE + e % POOL_SIZE, pixel = i * WB + j;
                if ((unsigned)(at.p0 + i) < P && (unsigned)(at.q0 + j) < Q) {
                    acc_t sum = tile_sum(shared, parts, at, Y_NHWC ? pixel : k, Y_NHWC ? k : pixel, COMBINE == LAST);
                    pool_take(&pooled, before_pool(sum, bias, k_all, z, Z_AT(at.n, k_all, at.p0 + i, at.q0 + j)));
                    count++;
                }
            }
            y[Y_AT(at.n, k_all, p, q)] = y_of(pool_mean(pooled, count));
        }
#endif
}
#endif

BOUNDED_KERNEL(direct, THREADS, MIN_BLOCKS)
(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL y_t *RESTRICT y, GLOBAL acc_t *RESTRICT partial, GLOBAL unsigned *RESTRICT arrived) {
    SHARED_ARRAY(shared);
    SHARED_FLAG(is_last);

    // block and lane
    Place at = find_place(GROUP(0));
    Lane me = find_lane();
    const GLOBAL acc_t *filter = w + (offset_t)(at.group * K_TILES + at.k0 / KB) * C_PADDED * RS * KB;

    // registers
    vec acc[TK][TH][TW];
    FOR_TILE(a, b, i) vec_zero(&acc[a][b][i]);

    // main loop
#if STAGED
    Source from = find_source(at);
    UNROLL for (int i = 0; i < STAGES - 1; i++) stage(shared + i * STAGE_FLOATS, x, filter, at, from, at.c0 + i * CS, i < STEPS);
#endif
    NO_UNROLL for (int step = 0; step < STEPS; step++) {
        int c0 = at.c0 + step * CS;
#if STAGED && STAGES > 1
        ASYNC_WAIT(STAGES - 2);
        BARRIER();
        stage(shared + (step + STAGES - 1) % STAGES * STAGE_FLOATS, x, filter, at, from, c0 + (STAGES - 1) * CS,
              step + STAGES - 1 < STEPS);
#elif STAGED
        if (step > 0) BARRIER();
        stage(shared, x, filter, at, from, c0, 1);
        ASYNC_WAIT(0);
        BARRIER();
#endif
        const SHARED acc_t *xs = shared + step % STAGES * STAGE_FLOATS;
        const SHARED acc_t *fs = xs + X_FLOATS;
        UNROLL_BY(CHANNEL_UNROLL_BY) for (int cc = me.share * CV; cc < CS; cc += SHARES * CV) {
            UNROLL_BY(ROW_UNROLL_BY) for (int r = 0; r < R; r++) {
                acc_t row[TH][ROW4][CV];
                UNROLL for (int b = 0; b < TH; b++) load_row(row[b], x, xs, at, me, c0, cc, b, r);
                UNROLL for (int u = 0; u < CV; u++)
                    UNROLL for (int s = 0; s < S; s++)
                        UNROLL for (int a = 0; a < TK; a++) {
                            int f = (((cc + u) * R + r) * S + s) * KB + a * (BK * VECTOR) + me.k;
                            vec tap = F_SHARED ? vec_load_shared(fs + f) : vec_load(filter + (offset_t)c0 * RS * KB + f);
                            UNROLL for (int b = 0; b < TH; b++)
                                UNROLL for (int i = 0; i < TW; i++)
                                    vec_fma_turn(i, &acc[a][b][i], tap, row[b][i * STR_W + s * DIL_W][u]);
                        }
            }
        }
    }

    // combine and store
    if (WAITS_LATE) CHAIN_WAIT();
    if (SW > 1) FOR_TILE(a, b, i) vec_sum_lanes(&acc[a][b][i], 32 / SW);
#if !OUT_SHARED
#if COMBINE == LAST  // the block that arrives last adds up all shares, in a fixed order
    GLOBAL acc_t *mine = partial + (offset_t)at.tile * SG * (KB * PIXELS) + me.team * VECTOR;
#define PART(g, a, b, i) (mine + ((offset_t)(g) * (TK * TH * TW) + ((a) * TH + (b)) * TW + (i)) * (TEAM * VECTOR))
    if (me.in_warp == 0) FOR_TILE(a, b, i) vec_store(PART(at.sg, a, b, i), acc[a][b][i]);
    if (!arrive_last(arrived, at, SG, is_last)) return;
    FOR_TILE(a, b, i) {
        vec_zero(&acc[a][b][i]);
        UNROLL for (int g = 0; g < SG; g++) vec_add_fresh(&acc[a][b][i], PART(g, a, b, i));
    }
#endif
#if Y_ROWS  // nchw, rows of 16-byte aligned quads
    if (me.in_warp == 0) UNROLL for (int i = 0; i < TW; i += 4) UNROLL for (int a = 0; a < TK; a++) UNROLL for (int b = 0; b < TH; b++) {
        acc_t quad[4][VECTOR];
        UNROLL for (int j = 0; j < 4; j++) vec_unpack(quad[j], acc[a][b][i + j]);
        UNROLL for (int v = 0; v < VECTOR; v++) {
            int k = at.k0 + a * (BK * VECTOR) + me.k + v, p = at.p0 + me.h + b, q = at.q0 + me.w + i;
            if (k >= K || p >= P || q >= Q) continue;
            k += at.group * K;
            offset_t to = Z_AT(at.n, k, p, q);
            acc_t one[4];
            UNROLL for (int j = 0; j < 4; j++) one[j] = epilogue(quad[j][v], bias, k, z, to + j);
            Y_STORE(4, y + SHARE_AT(at) + to, one);
        }
    }
#else
    if (me.in_warp == 0) FOR_TILE(a, b, i) {
        acc_t one[VECTOR];
        vec_unpack(one, acc[a][b][i]);
#if Y_VECTOR
        int k = at.k0 + a * (BK * VECTOR) + me.k, p = at.p0 + me.h + b, q = at.q0 + me.w + i;
        if (k < K && p < P && q < Q) {
            k += at.group * K;
            offset_t to = Z_AT(at.n, k, p, q);
            UNROLL for (int v = 0; v < VECTOR; v++) one[v] = epilogue(one[v], bias, k + v, z, to + v);
            Y_STORE(VECTOR, y + SHARE_AT(at) + to, one);
        }
#else
        UNROLL for (int v = 0; v < VECTOR; v++)
            finish(y, bias, z, at, a * (BK * VECTOR) + me.k + v, me.h + b, me.w + i, one[v]);
#endif
    }
#endif
#else  // the shares of block and cluster meet in shared memory
    if (STAGED) ASYNC_WAIT(0);
    BARRIER();
    if (me.in_warp == 0) FOR_TILE(a, b, i) {
        acc_t one[VECTOR];
        vec_unpack(one, acc[a][b][i]);
        UNROLL for (int v = 0; v < VECTOR; v++) {
            int k = a * (BK * VECTOR) + me.k + v, pixel = (me.h + b) * WB + me.w + i;
            shared[me.in_block * SLOW * PITCH + (Y_NHWC ? pixel * PITCH + k : k * PITCH + pixel)] = one[v];
        }
    }
    if (SB > 1 && SC > 1) {
        BARRIER();
        for (int e = THREAD(0); e < SLOW * PITCH; e += THREADS) {
            acc_t sum = shared[e];
            UNROLL for (int g = 1; g < SB; g++) sum += shared[g * SLOW * PITCH + e];
            shared[e] = sum;
        }
    }
    CLUSTER_BARRIER();
    int warp = at.sc * (THREADS / WARP) + THREAD(0) / WARP, lane = THREAD(0) % WARP;
    GLOBAL acc_t *parts = partial + (offset_t)at.tile * SG * (KB * PIXELS);
    UNROLL for (int pass = 0; pass < (COMBINE == LAST ? 2 : 1); pass++) {
        if (pass == 1) {
            if (SC > 1) CLUSTER_BARRIER();
            if (!arrive_last(arrived, at, SG, is_last)) return;
        }
        if (POOL_HERE && pass == (COMBINE == LAST)) {
            store_pooled(y, bias, z, at, shared, parts, warp, lane);
            continue;
        }
        for (int fast = lane; fast < FAST; fast += WARP)
            UNROLL_BY(4) for (int slow = warp; slow < SLOW; slow += SC * (THREADS / WARP)) {
                int k = Y_NHWC ? fast : slow, pixel = Y_NHWC ? slow : fast;
                acc_t sum = tile_sum(shared, parts, at, slow, fast, pass);
                if (COMBINE == LAST && pass == 0) parts[(offset_t)at.sg * (KB * PIXELS) + slow * FAST + fast] = sum;
                else finish(y, bias, z, at, k, pixel / WB, pixel % WB, sum);
            }
    }
    if (SC > 1 && COMBINE != LAST) CLUSTER_BARRIER();  // a block's shared memory outlives its readers
#endif
}
#endif
