// thin: the pixels of x that 1x1 filters with a stride meet, as planes of their own, which begin at multiples of 16
// bytes.
//
//   to[plane * PLANE_OUT + p * Q + q] = x[plane][p * STR_H][q * STR_W], planes of all images and channels
// A thread moves ITEMS times EACH neighbours of a row of y, which are WIDE of x (EACH * STR_W); all its loads are under
// way at once. Bits are moved: numbers are of SIZE bytes.
// Example: 56x56 of f16, stride 2: a thread loads 16 bytes, and stores 4 numbers of the 28 of a row.

#if SIZE == 4
typedef unsigned number_t;
#else
typedef unsigned short number_t;
#endif
#define OF_ROW (Q / EACH)  // items

BOUNDED_KERNEL(thin, 256, 1)(const GLOBAL number_t *RESTRICT x, GLOBAL number_t *RESTRICT to) {
    number_t rows[ITEMS][WIDE];
    const offset_t first = (offset_t)GROUP(0) * (256 * ITEMS) + THREAD(0);
    CHAIN_WAIT();
    CHAIN_NEXT();
    UNROLL for (int i = 0; i < ITEMS; i++) {
        const offset_t item = first + i * 256, row = item / OF_ROW;
        const GLOBAL number_t *from = x + (row / P * H + row % P * STR_H) * W + item % OF_ROW * WIDE;
        if (row >= PLANES * P) continue;
#if EACH > 1
        load_run(WIDE, rows[i], from);
#else
        rows[i][0] = from[0];
#endif
    }
    UNROLL for (int i = 0; i < ITEMS; i++) {
        const offset_t item = first + i * 256, row = item / OF_ROW;
        number_t kept[EACH];
        if (row >= PLANES * P) continue;
        UNROLL for (int j = 0; j < EACH; j++) kept[j] = rows[i][j * STR_W];
        store_run(EACH, to + row / P * PLANE_OUT + row % P * Q + item % OF_ROW * EACH, kept);
    }
}
