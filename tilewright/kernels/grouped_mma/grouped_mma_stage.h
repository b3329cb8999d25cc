// How the grouped_mma family stages pixels: pieces of 16 bytes of their channels, of all the block's bundles.
//
// Columns that are STR_W apart lie side by side, LENGTH of them, since a tap reads such. So that eight of them lie in
// different banks, EXCHANGED pieces of a pixel are exchanged; halves of 32 bytes stay together.
//
// A row is shared out to ROW_THREADS threads, a power of two: no division by a row's pieces. Of nchw a thread loads a
// run of RUN_IN columns of each of a piece's channels, and turns them. Runs begin LEAD columns before the first that is
// needed, so that they lie inside a row of the image or outside.

#define ALL_PIECES (WN / PARTS * BW * PIECES)
#define XW ((WB - 1) * STR_W + (S - 1) * DIL_W + 1)
#define XH ((HB - 1) * STR_H + (R - 1) * DIL_H + 1)
#define ROW_PIECES (LENGTH * STR_W * ALL_PIECES)
#define ROW_RUNS (X_NHWC ? XW : CEIL_DIV(LEAD + XW, RUN_IN))
#define ITEMS (ROW_RUNS * ALL_PIECES)  // of a row
#define THREAD_COPIES CEIL_DIV(ITEMS, ROW_THREADS)  // of a row, by a thread
#define ROWS_AT_ONCE (THREADS / ROW_THREADS)

// Where a piece of a pixel lies in its row.
INLINE int placed(int column, int piece) {
    return column * ALL_PIECES + (piece ^ column / (8 / EXCHANGED) % EXCHANGED);
}
INLINE int staged_at(int column, int piece) { return placed(column % STR_W * LENGTH + column / STR_W, piece); }

#if X_NHWC
INLINE void copy_piece(SHARED acc_t *to, const GLOBAL in_t *from, int keep) {
#if VECTORS
    async_copy4(to, (const GLOBAL acc_t *)from, keep);
#else
    unsigned words[4] = {0, 0, 0, 0};
    UNROLL for (int i = 0; i < EACH; i++)
        if (keep) words[i * NUMBER_BYTES / 4] |= BITS_OF(from[i]) << i * NUMBER_BYTES % 4 * 8;
    store_run(4, (SHARED unsigned *)to, words);
#endif
}

INLINE void stage_x(SHARED acc_t *tile, const GLOBAL in_t *x, Place at) {
    const int mine = THREAD(0) % ROW_THREADS, h0 = at.p0 * STR_H - PAD_T, w0 = at.q0 * STR_W - PAD_L;
    x += (offset_t)at.n * (H * W) * C + at.k0 / (8 * NT * PARTS) * (PIECES * EACH);
    UNROLL for (int copy = 0; copy < THREAD_COPIES; copy++) {
        const int e = copy * ROW_THREADS + mine, column = e / ALL_PIECES, piece = e % ALL_PIECES, w = w0 + column;
        const int inside = (unsigned)w < W;
        if (ITEMS % ROW_THREADS != 0 && e >= ITEMS) continue;
        SHARED acc_t *to = tile + 4 * staged_at(column, piece);
        const GLOBAL in_t *from = x + (inside ? (offset_t)w * C + piece * EACH : 0);
        UNROLL_BY(8) for (int row = THREAD(0) / ROW_THREADS; row < XH; row += ROWS_AT_ONCE) {
            const int keep = inside && (unsigned)(h0 + row) < H;
            copy_piece(to + 4 * ROW_PIECES * row, from + (keep ? (offset_t)(h0 + row) * W * C : 0), keep);
        }
    }
}

#else
// RUN_IN numbers, the first in the lowest bits.
INLINE unsigned load_columns(const GLOBAL in_t *from) {
#if RUN_IN > 1
    return *(const GLOBAL unsigned *)from;
#else
    return BITS_OF(*from);
#endif
}

INLINE void stage_x(SHARED acc_t *tile, const GLOBAL in_t *x, Place at) {
    const int mine = THREAD(0) % ROW_THREADS, h0 = at.p0 * STR_H - PAD_T, w0 = at.q0 * STR_W - PAD_L - LEAD;
    x += ((offset_t)at.n * C + at.k0 / (8 * NT * PARTS) * (PIECES * EACH)) * H * W;
    UNROLL for (int copy = 0; copy < THREAD_COPIES; copy++) {
        const int e = copy * ROW_THREADS + mine, first = e % ROW_RUNS * RUN_IN, piece = e / ROW_RUNS, w = w0 + first;
        const int inside = (unsigned)w < W;
        if (ITEMS % ROW_THREADS != 0 && e >= ITEMS) continue;
        const GLOBAL in_t *from = x + (offset_t)piece * EACH * (H * W) + (inside ? w : 0);
        UNROLL_BY(2) for (int row = THREAD(0) / ROW_THREADS; row < XH; row += ROWS_AT_ONCE) {
            const int keep = inside && (unsigned)(h0 + row) < H;
            unsigned held[EACH];
            UNROLL for (int c = 0; c < EACH; c++)
                held[c] = keep ? load_columns(from + (offset_t)c * (H * W) + (h0 + row) * W) : 0;
            UNROLL for (int u = 0; u < RUN_IN; u++) {
                unsigned words[4] = {0, 0, 0, 0};
                if ((unsigned)(first + u - LEAD) >= XW) continue;
                UNROLL for (int c = 0; c < EACH; c++)
                    words[c * NUMBER_BYTES / 4] |= (held[c] >> 8 * NUMBER_BYTES * u & BITS_OF(-1))
                                                   << c * NUMBER_BYTES % 4 * 8;
                store_run(4, (SHARED unsigned *)tile + 4 * (staged_at(first + u - LEAD, piece) + ROW_PIECES * row),
                          words);
            }
        }
    }
}
#endif
