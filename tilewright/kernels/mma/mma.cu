// mma: the sum over r,s,c of x[n,p*u+r*d-pad,q*u+s*d-pad,c] * w[k,r,s,c], then its epilogue, on tensor cores
//
// Implicit GEMM: pixels (n, p, q) of all images against filters, summed over the taps (r, s) and channels, without
// the columns ever being written. f16, bf16, tf32, f8: sums of f32. i8: sums of i32; f64: of f64. See
// mma_product.h.
//
//   M x N is pixels x channels where y is nhwc, else channels x pixels: neighbours in y lie along N
//
//            NB = 16 NT WN                one piece of 16 x 16 outputs takes one fragment of each side and two
//         +-------+-------+               products m16n8 for every 32 bytes of the sum; a warp holds MT x NT
//     MB  | warp  | warp  |  WM = 2       pieces. A fragment is 512 bytes of shared memory: MT + NT of them for
//   16 MT +-------+-------+  WN = 2       2 MT NT products, so 4 x 4 pieces keep the tensor cores of any device
//     WM  | warp  | warp  |               busy where 2 x 2 do not.
//         +-------+-------+
//
// CHUNKS * 16 bytes of the sum are staged at a time, STAGES steps in flight; with FRAGMENTS = 2 the next fragments are
// read before the products of these are done. The sum is split SB ways inside the block, SC across a cluster and SG
// across the grid.
//
//   global --(mma_stage.h)--> chunks in shared memory (swizzle.h) --> fragments in registers --(mma_product.h)--> acc
//          --(SB and SC shares meet in shared memory, SG in memory; mma_finish.h)--> y
//
// Knobs (spec.py has their values and rules, docs/families.md what each buys):
//   MT NT WM WN       mt, nt 1 .. 8 pieces of a warp, wm, wn 1 .. 8 warps: the tile of a block, rows and columns
//   CHUNKS STAGES     chunks 2 .. 16 of a step, stages 2 .. 8 buffers
//   FRAGMENTS         fd 1 2: buffers of the fragments that a warp holds
//   X_WAY X_L1        x, l1: how the input is read (mma_stage.h), past or through the L1 cache
//   SB SC SG COMBINE  sb 1 2 4, sc 1 .. 8, sg: shares of the sum; combine: how those of the grid meet (tile.h)
// Example: n1c256h34w34k512r3s3p1 in f16, 1,156 pixels x 512 channels, a sum of 2,304: tiles of 128 x 64 are 80
// blocks; CHUNKS = 8 is 64 channels of one tap: 36 steps.

#define MB (16 * MT * WM)
#define NB (16 * NT * WN)
#define KB (Y_NHWC ? NB : MB)
#define PB (Y_NHWC ? MB : NB)
#define HB 1  // the tile of pixels, as tile.h has it: one row
#define WB PB
#define TEAM (32 * WM * WN)
#define THREADS (TEAM * SB)
#define W_BYTES (KB * ROW_BYTES)
#define STAGE_BYTES (X_BYTES + W_BYTES)     // the input, then the filter
#define STEPS_K (CHUNKS / 2 / SB)           // fragments along the sum, of a step, for one warp
#define OUTS (MT * NT * 2)                  // of a thread: runs of 4 neighbours in y
#define PIXELS (ONE_IMAGE ? P * Q : N * P * Q)  // that are tiled together
#define WAITS_LATE 1                        // the filter is there before the kernel that copies x is done

#include "tile.h"
#include "tensor.h"
#include "mma_product.h"
#include "mma_stage.h"
#include "mma_finish.h"

typedef struct {
    int lane, share, team;  // its lane, share of a step, and number among the threads of that share
    int m, n;               // first output in the block tile
    int m_place, n_place;   // where it reads in the tiles
#if X_WAY == PLANES
    Rows rows;              // the same, of the input
#endif
} Lane;

INLINE Lane find_lane(void) {
    Lane me;
    int warp = THREAD(0) / 32, m = warp % WM * (16 * MT), n = warp / WM % WN * (16 * NT);
    me.lane = THREAD(0) % 32;
    me.share = SB > 1 ? warp / (WM * WN) : 0;
    me.team = SB > 1 ? THREAD(0) % TEAM : THREAD(0);
    me.m = m + SUM_ROW(me.lane, 0);
    me.n = n + me.lane % 4 * 4;
    me.m_place = place_m(m, me.lane);
    me.n_place = place_n(n, me.lane);
    return me;
}

INLINE void read_fragments(Fragment a[MT], Fragment b[NT], shared_t stage, Lane me, int k) {
    const int at = me.share * STEPS_K + k;
    UNROLL for (int i = 0; i < MT; i++) read_m(a + i, stage + (Y_NHWC ? 0 : X_BYTES), me.m_place, i, at, me.lane);
#if X_WAY == PLANES
    UNROLL for (int j = 0; j < NT; j++) read_planes(b + j, stage, &me.rows, j, at);
#else
    UNROLL for (int j = 0; j < NT; j++) read_n(b + j, stage + (Y_NHWC ? X_BYTES : 0), me.n_place, j, at, me.lane);
#endif
}

// Sum up the steps from `first` to before `last`.
INLINE void sum_up(acc_t acc[MT][NT][8], shared_t shared, const GLOBAL x_t *x, const GLOBAL unsigned char *w, Place at,
                   Lane me, int first, int last) {
    Fragment a[FRAGMENTS][MT], b[FRAGMENTS][NT];
    FilterSource filter = find_filter(w, at, first);
    UNROLL for (int i = 0; i < STAGES - 1; i++) stage_w(shared + i * STAGE_BYTES, &filter, first + i, last);
    CHAIN_WAIT();
    InputSource input = find_input(x, at);  // takes as long as the first filters to come
    int slot = 0;
    UNROLL for (int i = 0; i < MT; i++)
        UNROLL for (int j = 0; j < NT; j++) UNROLL for (int e = 0; e < 8; e++) acc[i][j][e] = 0;
    UNROLL for (int i = 0; i < STAGES - 1; i++) {
        stage_x(shared + i * STAGE_BYTES, &input, first + i, last);
        ASYNC_COMMIT();
    }
    ASYNC_WAIT(STAGES - 2);
    BARRIER();
    if (FRAGMENTS == 2) read_fragments(a[0], b[0], shared, me, 0);
    UNROLL_BY(X_WAY == GATHERED ? STEPS : 1) for (int step = first; step < last; step++) {
        const int free = slot == 0 ? STAGES - 1 : slot - 1;
        shared_t here = shared + slot * STAGE_BYTES;
        stage_x(shared + free * STAGE_BYTES, &input, step + STAGES - 1, last);
        stage_w(shared + free * STAGE_BYTES, &filter, step + STAGES - 1, last);
        ASYNC_COMMIT();
        UNROLL_BY(PROMOTED && FRAGMENTS == 1 ? 1 : STEPS_K) for (int k = 0; k < STEPS_K; k++) {
            const int next = k + FRAGMENTS - 1;
            if (next == STEPS_K) {
                ASYNC_WAIT(STAGES - 2);
                BARRIER();
                slot = slot + 1 == STAGES ? 0 : slot + 1;
                here = shared + slot * STAGE_BYTES;
            }
            read_fragments(a[next % FRAGMENTS], b[next % FRAGMENTS], here, me, next % STEPS_K);
            PREPARE();
            UNROLL for (int i = 0; i < MT; i++)
                UNROLL for (int j = 0; j < NT; j++) {
                    const int jj = i & 1 ? NT - 1 - j : j;
                    MULTIPLIED(acc[i][jj], i, jj);
                }
        }
        if (FRAGMENTS == 1) {
            ASYNC_WAIT(STAGES - 2);
            BARRIER();
            slot = slot + 1 == STAGES ? 0 : slot + 1;
        }
    }
}

// Output g of a thread: 4 neighbours along N, from row out_m and column out_n of the block tile on.
INLINE int out_m(Lane me, int g) { return me.m + g / 2 / NT * 16 + SUM_ROW(0, g % 2); }
INLINE int out_n(Lane me, int g) { return me.n + g / 2 % NT * 16; }
INLINE void pick(acc_t v[4], acc_t acc[MT][NT][8], int g) {
    UNROLL for (int i = 0; i < 4; i++) v[i] = acc[g / 2 / NT][g / 2 % NT][SUM_AT(g % 2, i)];
}

BOUNDED_KERNEL(mma, THREADS, MIN_BLOCKS)
(const GLOBAL x_t *RESTRICT x, const GLOBAL unsigned char *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y, GLOBAL acc_t *RESTRICT partial,
 GLOBAL unsigned *RESTRICT arrived SCALE_PARAMETER) {
    TILE_ARRAY(shared);
    const Epilogue ep = {bias, z, y SCALE_ARGUMENT};
    Lane me = find_lane();
    Place at = find_place(GROUP(0));
#if X_WAY == PLANES
    me.rows = find_rows(at, me.n - me.lane % 4 * 4, me.lane);
#endif
    const int share = at.sg * SC + at.sc;
    acc_t acc[MT][NT][8];
    sum_up(acc, shared, x, w, at, me, FIRST_OF_SHARE(share, STEPS), FIRST_OF_SHARE(share + 1, STEPS));

    // the shares of a block and of a cluster meet in shared memory; each finishes some outputs
    acc_t mine[OUTS / SB / SC][4];
#if SB * SC > 1
    ASYNC_WAIT(0);
    BARRIER();
    shared_t meet = shared + me.team * SUMS_BYTES;
    UNROLL for (int g = 0; g < OUTS; g++) {
        acc_t v[4];
        pick(v, acc, g);
        write_sums(meet + (me.share * OUTS + g) * (TEAM * SUMS_BYTES), v);
    }
    CLUSTER_BARRIER();
    UNROLL for (int g = 0; g < OUTS / SB / SC; g++) {
        UNROLL for (int i = 0; i < 4; i++) mine[g][i] = 0;
        UNROLL for (int s = 0; s < SB * SC; s++) {
            acc_t v[4];
            peer4(v, meet + (s % SB * OUTS + (g * SC + at.sc) * SB + me.share) * (TEAM * SUMS_BYTES), s / SB);
            UNROLL for (int i = 0; i < 4; i++) mine[g][i] += v[i];
        }
    }
    CLUSTER_READ();
#else
    UNROLL for (int g = 0; g < OUTS; g++) pick(mine[g], acc, g);
#endif

    // the shares of the grid meet in memory: the block that arrives last adds them up, in a fixed order
    int whole = 1;
#if COMBINE == LAST
    SHARED_FLAG(is_last);
    GLOBAL acc_t *own = partial + ((offset_t)(at.tile * SC + at.sc) * SG * (OUTS / SB / SC) * THREADS + THREAD(0)) * 4;
    UNROLL for (int g = 0; g < OUTS / SB / SC; g++)
        store4(own + (offset_t)(at.sg * (OUTS / SB / SC) + g) * (THREADS * 4), mine[g]);
    whole = arrive_last(arrived, at, SG, is_last);
    if (whole) {
        UNROLL for (int g = 0; g < OUTS / SB / SC; g++) UNROLL for (int i = 0; i < 4; i++) mine[g][i] = 0;
        NO_UNROLL for (int s = 0; s < SG; s++)
            UNROLL for (int g = 0; g < OUTS / SB / SC; g++) {
                acc_t v[4];
                load_fresh_run(4, v, own + (offset_t)(s * (OUTS / SB / SC) + g) * (THREADS * 4));
                UNROLL for (int i = 0; i < 4; i++) mine[g][i] += v[i];
            }
    }
#endif
    if (whole) UNROLL for (int g = 0; g < OUTS / SB / SC; g++) {
        int out = (g * SC + at.sc) * SB + me.share;
        finish_out(ep, at, out_m(me, out), out_n(me, out), mine[g]);
    }
    CLUSTER_LEAVE();
}
