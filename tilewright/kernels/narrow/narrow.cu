// narrow: convolution of few output channels in f32 on CUDA cores, as networks end with that make images.
//
//   y[n,k,p,q] = epilogue(sum over c,r,s of x[n,c,p+r-pad,q+s-pad] * w[k,c,r,s])     x in nchw
//
// Such a layer reads many numbers for few outputs: memory is as much of its time as multiply-adds are. A thread makes
// TH x TW outputs of all channels and goes down the rows of x under them, channel by channel. A row comes straight from
// global memory, DEPTH rows ahead; the columns beside it are neighbouring lanes', or are loaded where there is none.
//
//        lane - 1    lane      lane + 1          row i meets the taps of filter row r for output row i - r:
//       . . . . x | x x x x | x . . . .          TW = 4, S = 3: a row of x and K R S taps (in registers, from shared
//                 seen: 6                        memory once a channel) feed 4 K R S multiply-adds
//
// A block makes HB x WB outputs: BW threads across, TEAM / BW down; SPLIT teams have a share of C each, and what they
// have summed up meets in shared memory.
// Knobs (spec.py has their values and rules, docs/families.md what each buys):
//   TH TW      th, tw: rows and columns of a thread's outputs
//   DEPTH      depth: rows of x that are on their way, a divisor of those under a thread
//   BW SPLIT   bw, split: threads across; shares of C in a block, of TEAM threads each (warps)
// Example: n16c128h256w256k3r3s3p1, TH = 8, DEPTH = 5: 96 sums, 10 rows a channel, 864 multiply-adds for 87 words.

#define THREADS (SPLIT * TEAM)
#define KB K
#define HB (TEAM / BW * TH)
#define WB (BW * TW)
#define TAPS (K * R * S)
#define TAPS4 ((TAPS + 3) / 4 * 4)
#define REACH (S - 1)
#define SEEN (TW + REACH)
#define RIGHT (REACH - PAD_L)                  // columns that a thread needs to the right of its own; to the left PAD_L
#define EDGE (PAD_L > RIGHT ? PAD_L : RIGHT)
#define ROWS (TH + R - 1)                      // of x, under a thread
#define SHARE_C (C / SPLIT)
#define SUMS (K * TH * TW)
#define LEAST(n) ((n) > 0 ? (n) : 1)
#define FOR_SUMS(k, b, j)                    \
    UNROLL for (int k = 0; k < K; k++)       \
        UNROLL for (int b = 0; b < TH; b++)  \
            UNROLL for (int j = 0; j < TW; j++)

#include "tile.h"
#include "fetch.h"

#ifdef __CUDACC__
INLINE acc_t fetch1(const in_t *from) {  // as fetch4
    acc_t v;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(from));
    return v;
}
INLINE void fetch_if(acc_t *to, const in_t *from, int keep) {  // what is there stays, unless `keep`
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.nc.f32 %0, [%1]; }"
                 : "+f"(*to) : "l"(from), "r"(keep));
}
#else
#define fetch1(from) (*(from))
#endif

typedef struct {
    const GLOBAL in_t *from, *zeros;  // the first row under the thread, at its first column, in the channel at hand
    int q;                            // that column
    unsigned rows;                    // which rows there are, as bits
    int left, right;                  // whether no lane has the columns there for it
    int edge;                         // where these begin, from its first column on
    unsigned edges;                   // which of them there are, as bits
} Lane;

typedef struct {
    acc_t own[TW], edge[LEAST(EDGE)];  // columns of the thread, and beside them
} Row;

INLINE Lane find_lane(const GLOBAL in_t *x, const GLOBAL in_t *zeros, Place at, int team, int share) {
    Lane me;
    const int across = team % BW, h = at.p0 + team / BW * TH - PAD_T, lane = THREAD(0) % 32;
    me.q = at.q0 + across * TW;
    me.left = lane == 0 || across == 0, me.right = lane == 31 || across == BW - 1;
    me.from = x + ((offset_t)at.n * C + share * SHARE_C) * (H * W) + h * W + me.q;
    me.zeros = zeros;
    me.edge = me.left ? -PAD_L : TW;
    me.edges = me.rows = 0;
    UNROLL for (int j = 0; j < EDGE; j++)
        me.edges |= (unsigned)((me.left || me.right) && (unsigned)(me.q + me.edge + j) < W) << j;
    UNROLL for (int i = 0; i < ROWS; i++) me.rows |= (unsigned)((unsigned)(h + i) < H) << i;
    return me;
}

// The number that is `off` further on than the thread's first one in row i; 0 where there is none, or unless `keep`.
INLINE acc_t number_at(Lane me, const GLOBAL in_t *row, int i, int off, int keep) {
    const int there = keep && (me.rows >> i & 1) && (unsigned)(me.q + off) < W;
    return fetch1(there ? row + off : me.zeros);
}

// Ask for row i, of the channel that is `further` on; zeros unless `keep`. `midst`: no lane of the warp lacks a row or
// column of its own, and nothing is looked at but whether a lane has an edge, which was 0 before.
INLINE void ask_for(Row *to, Lane me, int i, int further, int keep, int midst) {
    const GLOBAL in_t *row = me.from + (offset_t)(further && (keep || !midst)) * (H * W) + i * W;
#ifdef __CUDACC__
    if (midst) {
        UNROLL for (int j = 0; j < TW; j += 4) fetch4((unsigned *)to->own + j, (const unsigned *)row + j);
        UNROLL for (int j = 0; j < EDGE; j++) fetch_if(&to->edge[j], row + me.edge + j, me.edges >> j & 1);
        return;
    }
#if WHOLE
    const in_t *own = keep && (me.rows >> i & 1) && me.q < W ? row : me.zeros;
    UNROLL for (int j = 0; j < TW; j += 4) fetch4((unsigned *)to->own + j, (const unsigned *)own + j);
#else
    UNROLL for (int j = 0; j < TW; j++) to->own[j] = number_at(me, row, i, j, keep);
#endif
    UNROLL for (int j = 0; j < EDGE; j++)
        to->edge[j] = number_at(me, row, i, me.edge + j, keep && (me.edges >> j & 1));
#else
    UNROLL for (int j = 0; j < TW; j++) to->own[j] = number_at(me, row, i, j, keep);
#endif
}

// What row i shows the thread's outputs.
INLINE void see(acc_t seen[SEEN], const Row *row, Lane me, int i) {
    UNROLL for (int j = 0; j < TW; j++) seen[PAD_L + j] = row->own[j];
#ifdef __CUDACC__
    UNROLL for (int j = 0; j < PAD_L; j++) {
        const acc_t v = __shfl_up_sync(0xffffffffu, row->own[TW - PAD_L + j], 1);
        seen[j] = me.left ? row->edge[j] : v;
    }
    UNROLL for (int j = 0; j < RIGHT; j++) {
        const acc_t v = __shfl_down_sync(0xffffffffu, row->own[j], 1);
        seen[PAD_L + TW + j] = me.right ? row->edge[j] : v;
    }
#else
    UNROLL for (int j = 0; j < PAD_L; j++) seen[j] = number_at(me, me.from + i * W, i, j - PAD_L, 1);
    UNROLL for (int j = 0; j < RIGHT; j++) seen[PAD_L + TW + j] = number_at(me, me.from + i * W, i, TW + j, 1);
#endif
}

// Multiply row i by the taps of a channel.
INLINE void multiply_add(acc_t acc[K][TH][TW], const acc_t seen[SEEN], const acc_t tap[TAPS4], int i) {
    UNROLL for (int r = 0; r < R; r++)
        UNROLL for (int s = 0; s < S; s++)
            UNROLL for (int k = 0; k < K; k++)
                UNROLL for (int j = 0; j < TW; j++)
                    if (i - r >= 0 && i - r < TH)
                        acc[k][i - r][j] = mul_add(tap[(k * R + r) * S + s], seen[j + s], acc[k][i - r][j]);
}

// Sum up a share of the channels; `midst` is known to the compiler.
INLINE void sum_up(acc_t acc[K][TH][TW], Lane me, const SHARED acc_t *filter, int midst) {
    Row rows[DEPTH];
    FOR_SUMS(k, b, j) acc[k][b][j] = 0;
    UNROLL for (int i = 0; i < DEPTH; i++) {
        UNROLL for (int j = 0; j < EDGE; j++) rows[i].edge[j] = 0;
        ask_for(&rows[i], me, i, 0, 1, midst);
    }
    NO_UNROLL for (int c = 0; c < SHARE_C; c++) {
        acc_t tap[TAPS4];
        UNROLL for (int t = 0; t < TAPS4; t += 4) load4(tap + t, filter + c * TAPS4 + t);
        UNROLL for (int i = 0; i < ROWS; i++) {
            acc_t seen[SEEN];
            see(seen, &rows[i % DEPTH], me, i);
            const int next = (i + DEPTH) % ROWS, further = (i + DEPTH) / ROWS;
            ask_for(&rows[i % DEPTH], me, next, further, c + further < SHARE_C, midst);
            multiply_add(acc, seen, tap, i);
        }
        me.from += H * W;
    }
}

// Add up the shares of a block: into those of the first team.
INLINE void join_shares(acc_t acc[K][TH][TW], SHARED acc_t *sums, int team, int share) {
    NO_UNROLL for (int other = 1; other < SPLIT; other++) {
        BARRIER();
        SHARED acc_t *mine = sums + team;
        if (share == other) FOR_SUMS(k, b, j) mine[((k * TH + b) * TW + j) * TEAM] = acc[k][b][j];
        BARRIER();
        if (share == 0) FOR_SUMS(k, b, j) acc[k][b][j] += mine[((k * TH + b) * TW + j) * TEAM];
    }
}

// w: packed [channel][TAPS4], eight zeros behind it
BOUNDED_KERNEL(narrow, THREADS, MIN_BLOCKS)
(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y) {
    SHARED_ARRAY(shared);
    const Epilogue ep = {bias, z, y};
    const Place at = find_place(GROUP(0));
    const int share = THREAD(0) / TEAM, team = THREAD(0) % TEAM;
    UNROLL_BY(4) for (int i = THREAD(0) * 4; i < C * TAPS4; i += THREADS * 4) async_copy4(shared + i, w + i, 1);
    ASYNC_COMMIT();
    ASYNC_WAIT(0);
    BARRIER();
    acc_t acc[K][TH][TW];
    const Lane me = find_lane(x, w + C * TAPS4, at, team, share);
    const SHARED acc_t *filter = shared + share * (SHARE_C * TAPS4);
#if defined(__CUDACC__) && WHOLE
    const int midst = __all_sync(0xffffffffu, me.rows == (1u << ROWS) - 1 && me.q < W);
    if (midst) sum_up(acc, me, filter, 1);
    else
#endif
        sum_up(acc, me, filter, 0);
    join_shares(acc, shared, team, share);
    if (share > 0) return;
    FOR_SUMS(k, b, j) finish(ep, at, k, team / BW * TH + b, team % BW * TW + j, acc[k][b][j]);
}
