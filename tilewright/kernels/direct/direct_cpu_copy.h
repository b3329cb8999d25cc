// How a CPU core copies the input of a block of direct_cpu.h, with zeros as padding, where it is not read in place.

// Copy 16 words that are neighbours in memory, the first of them word c of the group, or zeros.
INLINE void copy_line(SHARED acc_t *to, const GLOBAL in_t *from, int c, int inside) {
#if AS_WORDS
    typedef acc_t line __attribute__((ext_vector_type(16), aligned(ACC_BYTES)));
    *(SHARED line *)to = COPIED(inside ? *(const GLOBAL line *)from : (line)(0));
#else
    UNROLL for (int i = 0; i < 16; i++) to[i] = COPIED(inside ? load_word(from + CHANNEL(i), c + i) : 0);
#endif
}

// Where row i of the copy lies in the image.
INLINE int copied_row(int i) {
    int tap = i / TAP_H < R ? i / TAP_H : R - 1;
    return i + tap * (DIL_H - TAP_H);
}

#define COPY_VECTORS (DTYPE != 4 && (S == 1 ? STR_W : 1) == 1)
#define COPY_ROWS (X_NHWC && COPY_VECTORS && CB == C_ALL)  // all channels: a row is copied as it is
#define TOGETHER (COPY_ROWS ? C : 1)  // numbers of a pixel that are neighbours
#if COPY_VECTORS
// VECTOR elements of x from `at` on; those past its end are not used.
INLINE wide load_inputs(const GLOBAL in_t *x, offset_t at) {
    if (at + VECTOR <= X_ALL) return load_lanes(x + at);
    wide v = (wide)(0);
    UNROLL for (int i = 0; i < VECTOR; i++) if (at + i < X_ALL) v[i] = widened(x[at + i]);
    return v;
}
#endif

// Copy `count` channels of the block's input from channel c0 on.
INLINE void copy_input(SHARED acc_t *to, const GLOBAL in_t *x, Place at, int c0, int count) {
    int h0 = at.p0 * STR_H - PAD_T, w0 = at.q0 * STR_W - PAD_L;
    int skip_h = R == 1 ? STR_H : 1, skip_w = S == 1 ? STR_W : 1;
#if X_NHWC && !COPY_ROWS
    NO_UNROLL for (int i = 0; i < XH * XW; i++) {
        int h = h0 + copied_row(i / XW) * skip_h, w = w0 + i % XW * skip_w;
        int inside = (unsigned)h < H && (unsigned)w < W;
        const GLOBAL in_t *from = x + (inside ? X_AT(at.n, at.group * CG + CHANNEL(c0), h, w) : 0);
        SHARED acc_t *d = to + i * CB;
#if C % 16 == 0  // then so is CB: whole runs
        NO_UNROLL for (int c = 0; c < count; c += CB, d += TX_RUN)
            UNROLL for (int u = 0; u < CB; u += 16) copy_line(d + u, from + CHANNEL(c + u), c0 + c + u, inside);
#else  // one run, whose last words are copied one by one: behind those of the last pixel x ends
        int c = 0;
        NO_UNROLL for (; c + 16 <= count; c += 16) copy_line(d + c, from + CHANNEL(c), c0 + c, inside);
        for (; c < count; c++) d[c] = COPIED(inside ? load_word(from + CHANNEL(c), c0 + c) : 0);
#endif
    }
#else
    int left = w0 < 0 ? CEIL_DIV(-w0, skip_w) : 0;  // columns [left, right) lie in the image
    int right = W <= w0 ? 0 : CEIL_DIV(W - w0, skip_w);
    left = left < XW ? left : XW, right = right < XW ? right : XW;
    right = right < left ? left : right;
    NO_UNROLL for (int c = 0; c < (COPY_ROWS ? 1 : count); c++)
        NO_UNROLL for (int i = 0; i < XH; i++) {
            int h = h0 + copied_row(i) * skip_h, inside = (unsigned)h < H;
            SHARED acc_t *d = to + (c * XH + i) * (XW * TOGETHER);
            offset_t row = X_AT(at.n, at.group * CG + CHANNEL(c0 + c), inside ? h : 0, 0) + w0 * TOGETHER;
            int begin = (inside ? left : XW) * TOGETHER, end = (inside ? right : XW) * TOGETHER;
#if AHEAD && !X_NHWC
            int line = 1 + (LINE_BYTES / (int)sizeof(in_t) - 1) / skip_w;
            NO_UNROLL for (int j = begin; j < end; j += line)
                ASK_FOR(x + row + H * W + j * skip_w);  // the same row of the next channel
#endif
#if COPY_VECTORS
            NO_UNROLL for (int j = 0; j < begin; j += VECTOR) *(SHARED wide *)(d + j) = (wide)(0);
            NO_UNROLL for (int j = begin; j < end; j += VECTOR) *(SHARED wide *)(d + j) = load_inputs(x, row + j);
            NO_UNROLL for (int j = end; j < XW * TOGETHER; j += VECTOR) *(SHARED wide *)(d + j) = (wide)(0);
#else
            for (int j = 0; j < begin; j++) d[j] = COPIED(0);
            for (int j = begin; j < end; j++) d[j] = COPIED(load_word(x + row + j * skip_w, c0 + c));
            for (int j = end; j < XW; j++) d[j] = COPIED(0);
#endif
        }
#endif
}
