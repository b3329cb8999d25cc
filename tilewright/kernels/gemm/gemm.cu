// gemm: y[k, px] = act(alpha * sum over c of w[k, c] * x[c, px] + beta * z[k, px] + bias[k])
//
// A convolution with 1x1 filters is a product of the filter (K x C) and the input (C x PIXELS); PIXELS
// counts the outputs of all images. x: nchw or nhwc, as is y; or the columns that im2col.cu wrote. Each tap of a larger
// filter is a product of pixels that lie elsewhere in x, and a thread's sums are those of all taps (implicit GEMM):
// gemm_taps.h and gemm_flat.h stage their input, all else is the same. w: packed [group][k tile][c][tap][KB], zero
// padded in K and C.
//
//   block tile KB x PB, of warps WK x WP;  warp tile: lanes LK x LP;  a thread holds KT x PT sums
//
//             PB pixels                  what one thread holds of its warp's tile (LK = 4, LP = 8):
//         +------+------+                pieces of 4 channels and VECTOR pixels, so that the lanes of
//     KB  | warp | warp |   WK = 2       a warp read neighbouring 16 bytes of shared memory
//         +------+------+   WP = 2         ##......##......
//         | warp | warp |                  ................
//         +------+------+                  ##......##......
//
// Each 32-bit word that comes from shared memory takes an issue slot, as a multiply-add does: KT + PT words
// for KT * PT multiply-adds, so 16 x 8 reaches 84% of peak. CS channels are staged at a time, STAGES steps
// in flight; the first words of the next step are read before the last multiply-adds of this one.
// The sum over C is split SB ways inside the block, and over the grid in SG shares of each tile; or by STREAM
// (stream-K): the steps of the tiles that are left after the last full wave of blocks (2), or of these and that
// wave's (1), are divided evenly among the blocks of one wave, wherever in a tile a share begins and ends.
//
//   global --(gemm_stage.h)--> [CS][KB] filter, [CS][X_PITCH] input in shared memory --> a, b in registers --> acc
//          --(gemm_store.h: SB shares meet in shared memory, SG in memory)--> y
//
// Knobs (spec.py has their values and rules, docs/families.md what each buys):
//   TK VECTOR TP      tk 1 .. 4, v 1 2 4, tp 1 .. 20: a thread's tile, 4 TK channels by VECTOR TP pixels
//   LK WK WP SB       lk 1 .. 32 lanes over channels, wk 1 .. 4, wp 1 .. 8 warps, sb 1 .. 8 shares of C
//   FRAGMENTS         fd: 2: the next words are read before the multiply-adds of these are done
//   CV CS STAGES      cv 1 4 channels read at once (nhwc), cs 4 .. 64 of a step, stages 2 .. 4 buffers
//   STREAM SG COMBINE stream, sg, combine: how tiles and shares are dealt out to blocks, and meet (tile.h)
// Example: 4096^3, TK = 4, TP = 2, VECTOR = 4, WK = WP = 2: tiles of 128 x 128, 1024 of them; 264 blocks
// at once would take 4 turns for 3.88 turns of work; with STREAM 2, 792 blocks take a tile, then 264 take 0.88.

#define KT (4 * TK)
#define PT (VECTOR * TP)
#define LP (32 / LK)
#define KB (WK * LK * KT)
#define PB (WP * LP * PT)
#define HB 1                                // the tile of pixels, as tile.h has it: one row
#define WB PB
#define TEAM (32 * WK * WP)
#define THREADS (TEAM * SB)
#define CHANNELS (CS / SB)                  // of a step, for one thread; UNROLLED of them are unrolled
#define STAGE_FLOATS (CS * KB + X_FLOATS)   // the filter, then the input: [c][X_PITCH], or with CV = 4 [px][X_PITCH]
#define COPY (CV == 4 || X_QUADS ? 4 : 1)   // floats a copy
#define PIXELS (N * P * Q)
#define RUN_OUT (Y_NHWC ? 4 : VECTOR)       // neighbours in y that a thread holds
#define OUTS (KT * PT / RUN_OUT)
#define MY_OUTS CEIL_DIV(OUTS, SB)          // outputs that a thread finishes, or one fewer
#define FINISHES(me, g) (OUTS % SB == 0 || (g) * SB + (me).share < OUTS)

#include "tile.h"
#include "pixels.h"

typedef struct {
    int k, px;        // this thread's first output in the block tile
    int share, team;  // its share of a step's channels; its number among the threads of that share
    int w, x;         // what it reads first of a staged filter and of the staged input behind it
} Lane;

INLINE Lane find_lane(void) {
    Lane me;
    int warp = THREAD(0) / 32, lane = THREAD(0) % 32;
    me.share = SB > 1 ? warp / (WK * WP) : 0;  // known to be 0: all that follows is, too
    me.team = SB > 1 ? THREAD(0) % TEAM : THREAD(0);
    me.k = warp % WK * (LK * KT) + lane % LK * 4;
    me.px = warp / WK % WP * (LP * PT) + lane / LK * VECTOR;
    me.w = me.share * CHANNELS * KB + me.k;
    me.x = CS * KB + (CV == 4 ? me.px * X_PITCH + me.share * CHANNELS : me.share * CHANNELS * X_PITCH + me.px);
    return me;
}

// Where the input of pixel px lies, from its first channel on; C_STEP floats to the next channel.
#define C_STEP (X_NHWC ? 1 : X_PITCH_C)
INLINE offset_t x_at(int px) {
#if STRIDED
    int n = px / (P * Q), h = px / Q % P * STR_H - PAD_T, w = px % Q * STR_W - PAD_L;
    return X_AT(n, 0, h, w);
#elif X_NHWC
    return (offset_t)px * (GROUPS_ * C);
#else
    return X_ROWS ? px : (offset_t)(px / (P * Q)) * (GROUPS_ * C) * (P * Q) + px % (P * Q);
#endif
}

#include "gemm_stage.h"

INLINE void load_w(float a[KT], const SHARED float *from) {
    UNROLL for (int i = 0; i < TK; i++) load4(a + 4 * i, from + i * (4 * LK));
}

INLINE void load_x(float b[PT * CV], const SHARED float *from) {
#if CV == 4
    UNROLL for (int j = 0; j < PT; j++) load4(b + 4 * j, from + j * (LP * X_PITCH));
#else
    UNROLL for (int j = 0; j < TP; j++) vec_unpack(b + j * VECTOR, vec_load_shared(from + j * (LP * VECTOR)));
#endif
}

// Rows of channels there and back along the pixels: the input at the turn stays in the operand cache.
INLINE void multiply_add(vec acc[KT][TP], const float a[KT], const float b[PT * CV], int u) {
    UNROLL for (int i = 0; i < KT; i++)
        UNROLL for (int jj = 0; jj < TP; jj++) {
            const int j = i & 1 ? TP - 1 - jj : jj;
            vec_fma_turn(i, &acc[i][j], CV == 4 ? vec_pack(b + 4 * j + u) : vec_pack(b + j * VECTOR), a[i]);
        }
}

typedef struct {
    const SHARED float *w, *x;  // what this thread reads of the staged tiles, from its next channels on
    int slot;                   // which of the STAGES buffers
} Reader;

// Go on to the next UNROLLED channels; behind the last ones of a step wait for the next step's.
INLINE void advance(Reader *from, const SHARED float *shared, Lane me, int run) {
    if (run + UNROLLED < CHANNELS) {
        from->w += UNROLLED * KB, from->x += CV == 4 ? UNROLLED : UNROLLED * X_PITCH;
        return;
    }
    ASYNC_WAIT(STAGES - 2);
    BARRIER();
    from->slot = from->slot + 1 == STAGES ? 0 : from->slot + 1;
    from->w = shared + from->slot * STAGE_FLOATS + me.w;
    from->x = shared + from->slot * STAGE_FLOATS + me.x;
}

#if COMBINE == ATOMIC
// Put zeros where the shares of the tile will be added.
INLINE void zero_outputs(GLOBAL float *y, GLOBAL unsigned *arrived, Place at) {
    if (!ZEROES_TILE(at)) return;
    for (int e = THREAD(0); e < KB * PB; e += THREADS) {
        int k = at.k0 + (Y_NHWC ? e % KB : e / PB), px = at.q0 + (Y_NHWC ? e / KB : e % PB);
        if (k < K && px < PIXELS) y[pixel_at(at.group * K + k, px)] = 0;
    }
    zeros_written(arrived, at);
}
#else
#define zero_outputs(y, arrived, at)
#endif

// Sum up a tile's steps from `first` to before `last`.
INLINE void sum_up(vec acc[KT][TP], SHARED float *shared, const GLOBAL float *x, const GLOBAL float *w,
                   GLOBAL float *y, GLOBAL unsigned *arrived, Place at, Lane me, int first, int last) {
    float a[FRAGMENTS][KT], b[FRAGMENTS][PT * CV];
    Source source = find_source(x, w, at, first);
#if FLAT
    source.table = (const SHARED int *)(shared + TABLE_AT);
#endif
    Reader from = {shared, shared, -1};
    UNROLL for (int i = 0; i < KT; i++) UNROLL for (int j = 0; j < TP; j++) vec_zero(&acc[i][j]);
    UNROLL for (int i = 0; i < STAGES - 1; i++) stage(shared + i * STAGE_FLOATS, &source, at, first + i, last);
    zero_outputs(y, arrived, at);
    advance(&from, shared, me, CHANNELS);
    if (FRAGMENTS == 2) {
        load_w(a[0], from.w);
        load_x(b[0], from.x);
    }
    NO_UNROLL for (int step = first; step < last; step++) {
        int free = from.slot == 0 ? STAGES - 1 : from.slot - 1;
        stage(shared + free * STAGE_FLOATS, &source, at, step + STAGES - 1, last);
        NO_UNROLL for (int run = 0; run < CHANNELS; run += UNROLLED) {
            UNROLL for (int c = 0; c < UNROLLED; c++) {
                const int next = c + FRAGMENTS - 1, at_w = next % UNROLLED * KB;
                const int at_x = next % UNROLLED * (CV == 4 ? 1 : X_PITCH);
                if (next == UNROLLED) advance(&from, shared, me, run);
                load_w(a[next % FRAGMENTS], from.w + at_w);
                if (next % CV == 0) load_x(b[next / CV % FRAGMENTS], from.x + at_x);
                multiply_add(acc, a[c % FRAGMENTS], b[c / CV % FRAGMENTS], c % CV);
            }
            if (FRAGMENTS == 1) advance(&from, shared, me, run);
        }
    }
}

#if STREAM
// FULL_TILES have a block each; the other blocks take STREAM_STEPS of the other tiles' steps, LONGER of them one more.
INLINE int first_work(int block) {
    const int stream = block - FULL_TILES;
    return stream < 0 ? block * STEPS : FULL_TILES * STEPS + stream * STREAM_STEPS + min(stream, LONGER);
}
INLINE int stream_of(int work) {  // who does a step of a shared tile
    work -= FULL_TILES * STEPS;
    return work < (STREAM_STEPS + 1) * LONGER ? work / (STREAM_STEPS + 1) : (work - LONGER) / STREAM_STEPS;
}
#endif

#include "gemm_store.h"

BOUNDED_KERNEL(gemm, THREADS, MIN_BLOCKS)
(const GLOBAL float *RESTRICT x, const GLOBAL float *RESTRICT w, const GLOBAL float *RESTRICT bias,
 const GLOBAL float *RESTRICT z, GLOBAL float *RESTRICT y, GLOBAL float *RESTRICT partial,
 GLOBAL unsigned *RESTRICT arrived) {
    SHARED_ARRAY(shared);
#if COMBINE == LAST
    SHARED_FLAG(is_last);
#endif
    const Epilogue ep = {bias, z, y};
    const int block = GROUP(0);
    Lane me = find_lane();
#if FLAT
    make_table(shared);
#endif
#if STREAM
    NO_UNROLL for (int work = first_work(block), end = first_work(block + 1); work < end;) {
        Place at = find_place(work / STEPS);
        int first = work % STEPS, last = min(STEPS, first + end - work);
        work += last - first;
        if (SB > 1) BARRIER();
#else
    {
        Place at = find_place(block);
        int first = FIRST_OF_SHARE(at.sg, STEPS), last = FIRST_OF_SHARE(at.sg + 1, STEPS);
#endif
        vec acc[KT][TP];
        sum_up(acc, shared, x, w, y, arrived, at, me, first, last);
        zeros_awaited(arrived, at);
        if (COMBINE == ATOMIC && SB == 1) BARRIER();

        // the shares of a block meet in shared memory; each finishes some outputs
        float mine[MY_OUTS][RUN_OUT];
#if SB > 1
        ASYNC_WAIT(0);
        BARRIER();
        UNROLL for (int g = 0; g < OUTS; g++) {
            float v[RUN_OUT];
            pick(v, acc, g);
            SHARED float *to = shared + ((me.share * OUTS + g) * TEAM + me.team) * RUN_OUT;
            STORE_OUT(to, v);
        }
        BARRIER();
        UNROLL for (int g = 0; g < MY_OUTS; g++) {
            UNROLL for (int i = 0; i < RUN_OUT; i++) mine[g][i] = 0.0f;
            if (FINISHES(me, g)) UNROLL for (int s = 0; s < SB; s++)
                UNROLL for (int i = 0; i < RUN_OUT; i++)
                    mine[g][i] += shared[((s * OUTS + g * SB + me.share) * TEAM + me.team) * RUN_OUT + i];
        }
#else
        UNROLL for (int g = 0; g < OUTS; g++) pick(mine[g], acc, g);
#endif

        // the shares of the grid meet in memory: the block that arrives last adds them up, in a fixed order
        int whole = 1;
#if COMBINE == LAST
#if STREAM  // worked out here, for the loop above needs all registers; a stream goes on with a tile, or begins one
        const int owner = stream_of(at.tile * STEPS), part0 = 2 * owner;
        const int part = 2 * (block - FULL_TILES) + (first == 0);
        const int parts = block < FULL_TILES ? 1 : stream_of(at.tile * STEPS + STEPS - 1) - owner + 1;
#else
        const int part0 = at.tile * SG, part = part0 + at.sg, parts = SG;
#endif
        if (parts > 1) {
            GLOBAL float *own = partial + (me.share * TEAM + me.team) * RUN_OUT, *to = own + (offset_t)part * (KB * PB);
            UNROLL for (int g = 0; g < MY_OUTS; g++)
                if (FINISHES(me, g)) STORE_OUT(to + g * (SB * TEAM * RUN_OUT), mine[g]);
            whole = arrive_last(arrived, at, parts, is_last);
            if (whole) add_parts(mine, own, me, part0, parts);
        }
#endif
        if (whole) UNROLL for (int g = 0; g < MY_OUTS; g++) {
            int out = g * SB + me.share;
            if (FINISHES(me, g)) finish_out(ep, at, out_k(me, out), out_px(me, out), mine[g]);
        }
    }
}
