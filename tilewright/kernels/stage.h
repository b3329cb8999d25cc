// Staging: CS channels of the input tile and of the filter, from global into shared memory.
//
// Three ways to read the input, best first:
//   X_VECTOR    four words a copy: nhwc along the channels (CV = 4), or 1x1 nchw along the pixels
//   X_COPIES    a word a copy from addresses that a thread works out once (at most X_COPIES of them)
//   otherwise   a word a copy, addresses worked out at every step
// The staged input has strides TX_C, TX_H, TX_W and rows of XW columns; padding is staged as zeros.

#include "word.h"

#define XH ((HB - 1) * STR_H + (R - 1) * DIL_H + 1)

typedef struct {
    int at[X_COPIES > 0 ? X_COPIES : 1];  // offset from the first channel of the step, or -1: zero
} Source;

INLINE Source find_source(Place at) {
    Source from = {{0}};
#if X_SHARED && X_COPIES > 0
    int h0 = at.p0 * STR_H - PAD_T, w0 = at.q0 * STR_W - PAD_L;
    UNROLL for (int j = 0; j < X_COPIES; j++) {
        int e = (j * THREADS + THREAD(0)) * (X_VECTOR ? 4 : 1);
#if CV == 4
        int c = e % CS, i = e / CS;
#else
        int c = e / (XH * XW), i = e % (XH * XW);
#endif
        int h = h0 + i / XW, w = w0 + i % XW;
        int inside = c < CS && i < XH * XW && (unsigned)h < H && (unsigned)w < W;
        from.at[j] = inside ? (int)(X_AT(0, CHANNEL(c), h, w)) : -1;
    }
#endif
    return from;
}

// Copy word c of a group, or zero.
INLINE void copy_word(SHARED acc_t *to, const GLOBAL in_t *from, int c, int keep) {
#if AS_WORDS
    async_copy_word(to, (const GLOBAL acc_t *)from, keep);
#else
    *to = keep ? load_word(from, c) : 0;
#endif
}

// Copy four words that are neighbours in memory, or zeros. Words of i8 that are gathered have no neighbours.
INLINE void copy_quad(SHARED acc_t *to, const GLOBAL in_t *from, int keep) {
#if AS_WORDS
    async_copy_quad(to, (const GLOBAL acc_t *)from, keep);
#elif DTYPE != 4
    in_t held[4] = {0};
    acc_t words[4];
    if (keep) load_run(4, held, from);
    UNROLL for (int i = 0; i < 4; i++) words[i] = widened(held[i]);
    store4(to, words);
#endif
}

// Copy the tile of CS channels (words of them) from c0 on to `to`; nothing if `wanted` is 0.
INLINE void stage(SHARED acc_t *to, const GLOBAL in_t *x, const GLOBAL acc_t *w, Place at, Source from, int c0,
                  int wanted) {
    if (wanted) {
#if X_SHARED && X_COPIES > 0
        const GLOBAL in_t *base = x + X_AT(at.n, at.group * CG + CHANNEL(c0), 0, 0);
        UNROLL for (int j = 0; j < X_COPIES; j++) {
            int e = j * THREADS + THREAD(0);
            int keep = from.at[j] >= 0;
#if CV == 4
            if (C_PADDED != C) keep = keep && c0 + e * 4 % CS < C;
            if (X_ITEMS % THREADS == 0 || e < X_ITEMS)
                copy_quad(to + e * 4 / CS * TX_W + e * 4 % CS, base + (keep ? from.at[j] : 0), keep);
#elif X_VECTOR
            if (C_PADDED != C) keep = keep && c0 + e * 4 / (XH * XW) < C;
            copy_quad(to + e * 4, base + (keep ? from.at[j] : 0), keep);
#else
            if (C_PADDED != C) keep = keep && c0 + e / (XH * XW) < C;
            copy_word(to + e, base + (keep ? from.at[j] : 0), c0 + e / (XH * XW), keep);
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
#if F_SHARED
        const GLOBAL acc_t *filter = w + (offset_t)c0 * RS * KB + THREAD(0) * 4;
        SHARED acc_t *fs = to + X_FLOATS + THREAD(0) * 4;
        UNROLL for (int e = 0; e < CS * RS * KB; e += THREADS * 4)
            if (e + THREADS * 4 <= CS * RS * KB || e + THREAD(0) * 4 < CS * RS * KB) async_copy_quad(fs + e, filter + e, 1);
#endif
    }
    ASYNC_COMMIT();
}
