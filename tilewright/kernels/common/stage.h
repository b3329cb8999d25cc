// Staging: CS channels of the input tile and of the filter, from global into shared memory.
//
// Three ways to read the input, best first:
//   CV = 4      nhwc, four channels a copy
//   X_COPIES    nchw, or nhwc with all of its few channels: runs of X_RUN neighbours in a row, from addresses that a
//               thread works out once (X_COPIES of them); a row begins X_LEAD numbers before the first needed, where a
//               run does
//   otherwise   a word a copy, addresses worked out at every step
// The staged input has strides TX_C, TX_H, TX_W and rows of XW numbers; padding is staged as zeros.
//
// needs tile.h before it, and:
//   THREADS                     of a block
//   STAGES STAGE_FLOATS         buffers, and words of one: X_FLOATS + F_FLOATS
//   X_SHARED F_SHARED           whether the input and the filter are staged (F_SHARED 2: by the copy engine)
//   X_FLOATS F_FLOATS           words of the staged tiles of a step
//   C_PADDED RS                 words of C that the packed filter has; its words of a channel and a filter: R * S
//   R STR_H STR_W DIL_H PAD_T PAD_L      [layer_defines]
//   TX_C TX_H TX_W XW CV        strides and row of the staged input, channels of a copy
//   X_COPIES X_ITEMS X_RUN X_LEAD        copies of a thread and of a block; a run and what lies before it [row_runs]

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

// What a copy moves: X_RUN words (or four channels) that are neighbours in memory, as words; else (word.h) it is held
// in registers until several have come, and then made into words.
#if CV == 4
#define COPY_WORDS 4
#elif X_COPIES > 0
#define COPY_WORDS X_RUN
#else
#define COPY_WORDS 1
#endif
#if AS_WORDS
#define copy_run(count, to, from, keep) TW_JOIN(async_copy, count)(to, (const GLOBAL acc_t *)(from), keep)
#define AT_ONCE 1
#else
#define AT_ONCE 8  // copies of a thread that are under way
#if DTYPE == 4
#define HOLDS 4
#else
#define HOLDS HELD(COPY_WORDS)
#endif

// Word c of a group and its neighbours, or zeros.
INLINE void hold_copy(unsigned held[HOLDS], const GLOBAL in_t *from, int c, int keep) {
    UNROLL for (int i = 0; i < HOLDS; i++) held[i] = 0;
#if DTYPE == 4
    UNROLL for (int j = 0; j < 4; j++)
        if (keep && (CG % 4 == 0 || c * 4 + j < CG)) held[j] = (unsigned char)from[j * PLANE_STEP];
#else
    if (keep) hold_run(COPY_WORDS, held, from);
#endif
}

INLINE void write_copy(SHARED acc_t *to, const unsigned held[HOLDS]) {
#if DTYPE == 4
    *to = (acc_t)(held[0] | held[1] << 8 | held[2] << 16 | held[3] << 24);
#else
    acc_t words[COPY_WORDS];
    UNROLL for (int i = 0; i < COPY_WORDS; i++) words[i] = held_number(held, i);
    store_run(COPY_WORDS, to, words);
#endif
}
#endif

// The buffer of a step: CS channels of the input tile, then of the filter.
#define BUFFER(shared, step) ((shared) + (step) % STAGES * STAGE_FLOATS)

INLINE void stage_filter(pipe_t pipe, SHARED acc_t *shared, const GLOBAL acc_t *filter, Place at, int step) {
#if F_SHARED
    const GLOBAL acc_t *from = filter + (offset_t)(FIRST_CHANNEL(at) + step * CS) * RS * KB;
    pipe_run(pipe, step, BUFFER(shared, step) + X_FLOATS, from, CS * RS * KB);
#endif
}

typedef struct {
    SHARED acc_t *to;
    const GLOBAL in_t *from;
    int c, keep, mine;  // the channel; whether it is in x, and there is such a copy
} Copy;

#if X_COPIES > 0
#define ALL_COPIES X_COPIES
#define UNROLL_COPIES UNROLL

// Copy j of this thread, of channels from c0 on; `base`: the first of them in x.
INLINE Copy find_copy(SHARED acc_t *to, const GLOBAL in_t *base, Place at, Source from, int c0, int j) {
    const int item = j * THREADS + THREAD(0), e = item * X_RUN;
    Copy copy;
    copy.keep = from.at[j] >= 0;
#if CV == 4
    copy.c = c0 + e % CS;
    if (C_PADDED != C) copy.keep = copy.keep && copy.c < C;
    copy.mine = X_ITEMS % THREADS == 0 || item < X_ITEMS;
    copy.to = to + e / CS * TX_W + e % CS;
#else
    copy.c = c0 + e / (XH * XW);
    if (C_PADDED != C && PER_PIXEL == 1) copy.keep = copy.keep && copy.c < C;
    copy.mine = 1;
    copy.to = to + e;
#endif
    copy.from = base + (copy.keep ? from.at[j] : 0);
    return copy;
}
#else
#define ALL_COPIES CEIL_DIV(CS * XH * XW, THREADS)
#define UNROLL_COPIES

// The same; `base`: x.
INLINE Copy find_copy(SHARED acc_t *to, const GLOBAL in_t *base, Place at, Source from, int c0, int j) {
    const int e = THREAD(0) + j * THREADS, c = X_NHWC ? e % CS : e / (XH * XW), i = X_NHWC ? e / CS : e % (XH * XW);
    const int h = at.p0 * STR_H - PAD_T + i / XW, w = at.q0 * STR_W - PAD_L + i % XW;
    Copy copy;
    copy.c = c0 + c;
    copy.mine = e < CS * XH * XW;
    copy.keep = copy.mine && copy.c < C && (unsigned)h < H && (unsigned)w < W;
    copy.to = to + c * TX_C + i / XW * TX_H + i % XW * TX_W;
    copy.from = base + (copy.keep ? X_AT(at.n, at.group * CG + CHANNEL(copy.c), h, w) : 0);
    return copy;
}
#endif

INLINE void stage_input(SHARED acc_t *shared, const GLOBAL in_t *x, Place at, Source from, int step) {
#if X_SHARED
    SHARED acc_t *to = BUFFER(shared, step);
    const int c0 = FIRST_CHANNEL(at) + step * CS;
    const GLOBAL in_t *base = X_COPIES > 0 ? x + X_AT(at.n, at.group * CG + CHANNEL(c0), 0, 0) : x;
    UNROLL_COPIES for (int first = 0; first < ALL_COPIES; first += AT_ONCE) {
#if AS_WORDS
        const Copy copy = find_copy(to, base, at, from, c0, first);
        if (copy.mine) copy_run(COPY_WORDS, copy.to, copy.from, copy.keep);
#else
        unsigned held[AT_ONCE][HOLDS];
        UNROLL for (int i = 0; i < AT_ONCE && first + i < ALL_COPIES; i++) {
            const Copy copy = find_copy(to, base, at, from, c0, first + i);
            hold_copy(held[i], copy.from, copy.c, copy.keep);
        }
        UNROLL for (int i = 0; i < AT_ONCE && first + i < ALL_COPIES; i++) {
            const Copy copy = find_copy(to, base, at, from, c0, first + i);
            if (copy.mine) write_copy(copy.to, held[i]);
        }
#endif
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
    UNROLL for (int i = 0; i < STAGES - 1; i++)
        if (PIPE_ENGINE && i < STEPS) stage_filter(pipe, shared, filter, at, i);
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
