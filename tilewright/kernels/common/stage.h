// Staging: CS channels of the input tile and of the filter, from global into shared memory.
//
// Three ways to read the input, best first:
//   CV = 4      nhwc, four channels a copy
//   X_COPIES    nchw, or nhwc with all of its few channels: runs of X_RUN neighbours in a row, from addresses that a
//               thread works out once (X_COPIES of them); a row begins X_LEAD numbers before the first needed, where a
//               run does
//   otherwise   a word a copy, addresses worked out at every step
// The staged input has strides TX_C, TX_H, TX_W and rows of XW numbers; padding is staged as zeros.

#include "word.h"
#include "pipe.h"

#define PER_PIXEL (X_NHWC && CV == 1 ? C : 1)  // numbers of a pixel in a row, where X_COPIES
#define XH ((HB - 1) * STR_H + (R - 1) * DIL_H + 1)

typedef struct {
    int at[X_COPIES > 0 ? X_COPIES : 1];  // offset from the first channel of the step, or -1: zero
} Source;

INLINE Source find_source(Place at) {
    Source from = {{0}};
#if X_SHARED && X_COPIES > 0
    int h0 = at.p0 * STR_H - PAD_T, w0 = (at.q0 * STR_W - PAD_L) * PER_PIXEL - (CV == 1 ? X_LEAD : 0);
    UNROLL for (int j = 0; j < X_COPIES; j++) {
        int e = (j * THREADS + THREAD(0)) * X_RUN;
#if CV == 4
        int c = e % CS, i = e / CS;
#else
        int c = e / (XH * XW), i = e % (XH * XW);
#endif
        int h = h0 + i / XW, w = w0 + i % XW;
        int inside = c < CS && i < XH * XW && (unsigned)h < H && (unsigned)w < W * PER_PIXEL;
        from.at[j] = inside ? (int)(PER_PIXEL > 1 ? X_AT(0, 0, h, 0) + w : X_AT(0, CHANNEL(c), h, w)) : -1;
    }
#endif
    return from;
}

// Copy word c of a group, or zero.
INLINE void copy_word(SHARED acc_t *to, const GLOBAL in_t *from, int c, int keep) {
#if AS_WORDS
    async_copy1(to, (const GLOBAL acc_t *)from, keep);
#else
    *to = keep ? load_word(from, c) : 0;
#endif
}

// Copy two or four words that are neighbours in memory, or zeros. Words of i8 that are gathered have no neighbours.
#if AS_WORDS
#define copy_run(count, to, from, keep) TW_JOIN(async_copy, count)(to, (const GLOBAL acc_t *)(from), keep)
#elif DTYPE != 4
#define copy_run(count, to, from, keep)                                     \
    do {                                                                    \
        in_t held_[count] = {0};                                            \
        acc_t words_[count];                                                \
        if (keep) load_run(count, held_, from);                             \
        UNROLL for (int i_ = 0; i_ < count; i_++) words_[i_] = widened(held_[i_]); \
        store_run(count, to, words_);                                       \
    } while (0)
#else
#define copy_run(count, to, from, keep)
#endif

// The buffer of a step: CS channels of the input tile, then of the filter.
#define BUFFER(shared, step) ((shared) + (step) % STAGES * STAGE_FLOATS)

INLINE void stage_filter(pipe_t pipe, SHARED acc_t *shared, const GLOBAL acc_t *filter, Place at, int step) {
#if F_SHARED
    const GLOBAL acc_t *from = filter + (offset_t)(at.c0 + step * CS) * RS * KB;
    pipe_run(pipe, step, BUFFER(shared, step) + X_FLOATS, from, CS * RS * KB);
#endif
}

INLINE void stage_input(SHARED acc_t *shared, const GLOBAL in_t *x, Place at, Source from, int step) {
    SHARED acc_t *to = BUFFER(shared, step);
    const int c0 = at.c0 + step * CS;
#if X_SHARED && X_COPIES > 0
    const GLOBAL in_t *base = x + X_AT(at.n, at.group * CG + CHANNEL(c0), 0, 0);
    UNROLL for (int j = 0; j < X_COPIES; j++) {
        int item = j * THREADS + THREAD(0), e = item * X_RUN, keep = from.at[j] >= 0;
#if CV == 4
        if (C_PADDED != C) keep = keep && c0 + e % CS < C;
        if (X_ITEMS % THREADS == 0 || item < X_ITEMS)
            copy_run(4, to + e / CS * TX_W + e % CS, base + (keep ? from.at[j] : 0), keep);
#else
        if (C_PADDED != C && PER_PIXEL == 1) keep = keep && c0 + e / (XH * XW) < C;
        if (X_RUN > 1) copy_run(X_RUN, to + e, base + (keep ? from.at[j] : 0), keep);
        else copy_word(to + e, base + (keep ? from.at[j] : 0), c0 + e / (XH * XW), keep);
#endif
    }
#elif X_SHARED
    int h0 = at.p0 * STR_H - PAD_T, w0 = at.q0 * STR_W - PAD_L;
    for (int e = THREAD(0); e < CS * XH * XW; e += THREADS) {
        int c = X_NHWC ? e % CS : e / (XH * XW);
        int i = X_NHWC ? e / CS : e % (XH * XW);
        int h = h0 + i / XW, ww = w0 + i % XW;
        int keep = c0 + c < C && (unsigned)h < H && (unsigned)ww < W;
        copy_word(to + c * TX_C + i / XW * TX_H + i % XW * TX_W,
                  x + (keep ? X_AT(at.n, at.group * CG + CHANNEL(c0 + c), h, ww) : 0), c0 + c, keep);
    }
#endif
}

#define FILTER_FIRST (!K_FASTEST || F_FLOATS > 2 * X_FLOATS)  // where it is the more of the two to come

// Begin the copies of a step, if there is one, into a buffer that is free.
INLINE void stage(pipe_t pipe, SHARED acc_t *shared, const GLOBAL in_t *x, const GLOBAL acc_t *filter, Place at,
                  Source from, int step) {
    if (step < STEPS) {
        if (FILTER_FIRST) stage_filter(pipe, shared, filter, at, step);
        stage_input(shared, x, at, from, step);
        if (!FILTER_FIRST) stage_filter(pipe, shared, filter, at, step);
    }
    pipe_sent();
}

// Begin those of the first steps; the copy engine, which needs no addresses worked out, begins with all of the filter.
INLINE Source stage_first(pipe_t pipe, SHARED acc_t *shared, const GLOBAL in_t *x, const GLOBAL acc_t *filter,
                          Place at) {
    pipe_begin(pipe);
    if (PIPE_ENGINE)
        UNROLL for (int i = 0; i < STAGES - 1; i++) if (i < STEPS) stage_filter(pipe, shared, filter, at, i);
    Source from = find_source(at);
    UNROLL for (int i = 0; i < STAGES - 1; i++) {
        if (!PIPE_ENGINE) {
            stage(pipe, shared, x, filter, at, from, i);
            continue;
        }
        if (i < STEPS) stage_input(shared, x, at, from, i);
        pipe_sent();
    }
    return from;
}
