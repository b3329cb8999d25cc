// direct: the sum over c,r,s of x[n,c,p*u+r*d-pad,q*u+s*d-pad] * w[k,c,r,s], then its epilogue (epilogue.h)
//
// x, y: nchw or nhwc (X_NHWC, Y_NHWC).  w: packed [group][k tile][c][r][s][KB], zero padded in K and C.
// Channels c are words of DTYPE (word.h): one each, or four of i8.  This is the GPU's kernel; a CPU's: direct_cpu.h.
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
//
//   global --(stage.h)--> x tile and filter in shared memory --> row, tap in registers --> acc --(direct_store.h)--> y
//
// Knobs (gpu.py has their values and rules, docs/families.md what each buys):
//   VECTOR TK TH TW   v 1 2 4, tk 1 .. 8, th, tw: the thread tile. Each word from shared memory takes an issue slot, as
//                     a multiply-add does: 4x8 sums reach 0.73 of the f32 peak, 16x8 0.85
//   BK BH BW          threads of a block over K, rows and columns; W_FASTEST (wfast): which way neighbours lie
//   CS STAGES         cs 1 .. 64 channels of a step, stages 1 .. 8 buffers
//   X_SHARED F_SHARED x, f: staged in shared memory (0: read in place; f = 2: by the copy engine, pipe.h)
//   CV                cv: 4 channels of nhwc read at once, 16 bytes
//   SW SB SC SG       sw, sb, sc 1 .. 8, sg: shares of C; COMBINE: how those of the grid meet (tile.h)
//   OUT OUT_PAD       out, pad: sums go by way of shared memory; sums between its rows
// Example: R12 (C = 512), SC = 8, SG = 4, CS = 8: a block sums 512 / 32 = 16 channels in 2 steps.

#define KB (VECTOR * TK * BK)
#define HB (TH * BH)
#define WB (TW * BW)
#define TILE_PIXELS (HB * WB)
#define TEAM (BK * BH * BW)                              // threads that share one run of channels
#define SHARES (SW * SB)                                 // runs of channels inside a block
#define THREADS (TEAM * SHARES)
#define RS (R * S)
#define SEEN_W ((TW - 1) * STR_W + (S - 1) * DIL_W + 1)  // inputs under one thread's output row
#define SEEN_W4 ((SEEN_W + 3) / 4 * 4)
#define VECTOR_ROWS (CV == 1 && TX_W == 1 && (TW * STR_W) % 4 == 0 && TX_H % 4 == 0 && TX_C % 4 == 0)
// Whether it is worth to read four from column i on.
#define QUAD(i) ((i) >= 0 && (i) + 4 <= SEEN_W4 && (X_LEAD == 0 || (i) + 3 <= SEEN_W))
#define STAGE_FLOATS (X_FLOATS + F_FLOATS)  // X_FLOATS, F_FLOATS: extent of the staged tiles
#define STAGED (X_SHARED || F_SHARED)
#define OUT_SHARED (OUT || SB > 1 || SC > 1)
#define POOLED_PIXELS (WINDOWS(HB) * WINDOWS(WB))
#define FAST (Y_NHWC ? KB : TILE_PIXELS)         // the output tile in shared memory: [SLOW][PITCH]
#define SLOW (Y_NHWC ? TILE_PIXELS : KB)
#define PITCH (FAST + OUT_PAD)
#define WARP (THREADS < 32 ? THREADS : 32)
#define FOR_TILE(a, b, i)                                   \
    UNROLL for (int a = 0; a < TK; a++)                     \
        UNROLL for (int b = 0; b < TH; b++)                 \
            UNROLL for (int i = 0; i < TW; i++)

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
INLINE void load_row(acc_t row[SEEN_W4][CV], const GLOBAL in_t *x, const SHARED acc_t *xs, Place at, Lane me, int c0,
                     int cc, int b, int r) {
#if X_SHARED
    const SHARED acc_t *from = xs + cc * TX_C + ((me.h + b) * STR_H + r * DIL_H) * TX_H + me.w * STR_W * TX_W + X_LEAD;
    if (CV == 4) {
        UNROLL for (int i = 0; i < SEEN_W; i++) load4(row[i], from + i * TX_W);
    } else if (VECTOR_ROWS) {
        UNROLL for (int i = 0; i < SEEN_W; i++) {  // four at a time from where they are aligned
            const int quad = i - (X_LEAD + i) % 4;
            if (!QUAD(quad)) row[i][0] = from[i];
            else if (i == quad) load4(&row[0][0] + i, from + i);
        }
    } else {
        UNROLL for (int i = 0; i < SEEN_W; i++) row[i][0] = from[i * TX_W];
    }
#else
    int h = (at.p0 + me.h + b) * STR_H + r * DIL_H - PAD_T;
    UNROLL for (int i = 0; i < SEEN_W; i++) {
        int w = (at.q0 + me.w) * STR_W + i - PAD_L;
        UNROLL for (int u = 0; u < CV; u++) {
            int c = c0 + cc + u;
            int keep = c < C && (unsigned)h < H && (unsigned)w < W;
            row[i][u] = keep ? load_word(x + X_AT(at.n, at.group * CG + CHANNEL(c), h, w), c) : 0;
        }
    }
#endif
}

#include "direct_store.h"

// Sum up the CS channels from c0 on: of the staged tiles `xs`, or in place.
INLINE void multiply_add(vec acc[TK][TH][TW], const GLOBAL in_t *x, const GLOBAL acc_t *filter, const SHARED acc_t *xs,
                         Place at, Lane me, int c0) {
    const SHARED acc_t *fs = xs + X_FLOATS;
    UNROLL_BY(CHANNEL_UNROLL_BY) for (int cc = me.share * CV; cc < CS; cc += SHARES * CV) {
        UNROLL_BY(ROW_UNROLL_BY) for (int r = 0; r < R; r++) {
            acc_t row[TH][SEEN_W4][CV];
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

BOUNDED_KERNEL(direct, THREADS, MIN_BLOCKS)
(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y, GLOBAL acc_t *RESTRICT partial,
 GLOBAL unsigned *RESTRICT arrived SCALE_PARAMETER) {
    SHARED_ARRAY(shared);
    SHARED_FLAG(is_last);
    const Epilogue ep = {bias, z, y SCALE_ARGUMENT};

    // block and lane
    Place at = find_place(GROUP(0));
    Lane me = find_lane();
    const GLOBAL acc_t *filter = w + (offset_t)(at.group * K_TILES + at.k0 / KB) * C_PADDED * RS * KB;

    // registers
    vec acc[TK][TH][TW];
    FOR_TILE(a, b, i) vec_zero(&acc[a][b][i]);

    // main loop
#if STAGED
    PIPE(pipe);
    Source from = stage_first(pipe, shared, x, filter, at);
#endif
    zero_tile(y, arrived, at);
    NO_UNROLL for (int step = 0; step < STEPS; step++) {
#if STAGED
        if (STAGES == 1 && step > 0) BARRIER();
        if (STAGES == 1) stage(pipe, shared, x, filter, at, from, step);
        pipe_full(pipe, step);
        if (STAGES > 1) stage(pipe, shared, x, filter, at, from, step + STAGES - 1);
#endif
        multiply_add(acc, x, filter, BUFFER(shared, step), at, me, FIRST_CHANNEL(at) + step * CS);
    }

    // combine and store
#if SW > 1
    FOR_TILE(a, b, i) vec_sum_lanes(&acc[a][b][i], 32 / SW);
#endif
    zeros_awaited(arrived, at);
    if (COMBINE == ATOMIC && !OUT_SHARED) BARRIER();
    store_sums(ep, partial, arrived, is_last, shared, at, me, acc);
}
#endif
