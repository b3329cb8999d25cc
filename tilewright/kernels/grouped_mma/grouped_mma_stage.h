// How the grouped_mma family stages pixels: pieces of 16 bytes of their channels, of all the block's bundles.
//
// Columns that are STR_W apart lie side by side, LENGTH of them, since a tap reads such. So that eight of them lie in
// different banks, SWIZZLE pieces of a pixel are exchanged; halves of 32 bytes stay together.

#define ALL_PIECES (WN / PARTS * BW * PIECES)
#define COLUMNS ((TW - 1) * STR_W + (S - 1) * DIL_W + 1)
#define ROWS ((TH - 1) * STR_H + (R - 1) * DIL_H + 1)
#define ROW_PIECES (LENGTH * STR_W * ALL_PIECES)
#define COPIES ((COLUMNS * ALL_PIECES + LINE - 1) / LINE)  // of a row, by a thread
#define LINES (THREADS / LINE)                             // threads that share a row: LINE, a power of two

// Where a piece of a pixel lies in its row.
INLINE int placed(int column, int piece) {
    return column * ALL_PIECES + (piece ^ column / (8 / SWIZZLE) % SWIZZLE);
}

INLINE void copy_piece(SHARED acc_t *to, const GLOBAL in_t *from, int keep) {
#if VECTORS
    async_copy4(to, (const GLOBAL acc_t *)from, keep);
#else
    unsigned words[4] = {0, 0, 0, 0};
    UNROLL for (int i = 0; i < NUMBERS; i++)
        if (keep) words[i * NUMBER_BYTES / 4] |= BITS_OF(from[i]) << i * NUMBER_BYTES % 4 * 8;
    store_run(4, (SHARED unsigned *)to, words);
#endif
}

INLINE void stage_x(SHARED acc_t *tile, const GLOBAL in_t *x, Place at) {
    const int mine = THREAD(0) % LINE, h0 = at.p0 * STR_H - PAD_T, w0 = at.q0 * STR_W - PAD_L;
    x += (offset_t)at.n * (H * W) * C + at.k0 / (8 * NT * PARTS) * (PIECES * NUMBERS);
    UNROLL for (int copy = 0; copy < COPIES; copy++) {
        const int e = copy * LINE + mine, column = e / ALL_PIECES, piece = e % ALL_PIECES, w = w0 + column;
        const int inside = (unsigned)w < W, at_column = column % STR_W * LENGTH + column / STR_W;
        if (COLUMNS * ALL_PIECES % LINE != 0 && e >= COLUMNS * ALL_PIECES) continue;
        SHARED acc_t *to = tile + 4 * placed(at_column, piece);
        const GLOBAL in_t *from = x + (inside ? (offset_t)w * C + piece * NUMBERS : 0);
        UNROLL_BY(8) for (int row = THREAD(0) / LINE; row < ROWS; row += LINES) {
            const int keep = inside && (unsigned)(h0 + row) < H;
            copy_piece(to + 4 * ROW_PIECES * row, from + (keep ? (offset_t)(h0 + row) * W * C : 0), keep);
        }
    }
}
