// How the toeplitz family stages its inputs and its filter in shared memory.
//
// A warp takes whole rows, so that where each of its lanes reads and writes follows from a few constants.
// ROWS_IN_FLIGHT are under way at once.

#if X_NHWC || Y_NHWC
// nhwc: eight channels of a pixel to a lane, PIXELS_AT_ONCE pixels to a warp at once
#define EIGHTS (CB / 8)
#define PIXELS_AT_ONCE (32 / EIGHTS)
#define EIGHT_AT(eight) ((eight) * (8 * PLANE + SKEW))
#endif

#if X_NHWC
#define ROW_COPIES CEIL_DIV(XW, PIXELS_AT_ONCE)  // of a row
#if OF_TF32
#define EIGHT_WORDS 8
#elif OF_BYTES
#define EIGHT_WORDS 2
#else
#define EIGHT_WORDS 4
#endif
#define IN_WORD (8 / EIGHT_WORDS)  // numbers of a word

#if OF_TF32
INLINE staged_t staged_of_word(unsigned word, int i) { return tf32_of(word); }
#else
INLINE staged_t staged_of_word(unsigned word, int i) { return staged((in_t)(word >> i * (32 / IN_WORD))); }
#endif

INLINE void stage_x(SHARED staged_t *tile, const GLOBAL in_t *x, Place at, int warp, int lane) {
    const int eight = lane % EIGHTS, column = lane / EIGHTS;
    const int h0 = at.p0 * STR_H - PAD_T, w0 = at.q0 * STR_W - PAD_L + column;
    x += X_AT(at.n, at.k0 + 8 * eight, 0, 0);
    tile += EIGHT_AT(eight) + column;
    NO_UNROLL for (int first = warp; first < XH; first += ROWS_IN_FLIGHT * WARPS) {
        unsigned held[ROWS_IN_FLIGHT][ROW_COPIES][EIGHT_WORDS];
        UNROLL for (int i = 0; i < ROWS_IN_FLIGHT; i++) {
            const int row = first + i * WARPS, inside = row < XH && (unsigned)(h0 + row) < H;
            const GLOBAL in_t *from = x + ((offset_t)(h0 + row) * W + w0) * C;
            UNROLL for (int j = 0; j < ROW_COPIES; j++) {
                UNROLL for (int u = 0; u < EIGHT_WORDS; u++) held[i][j][u] = 0;
                if (inside && (unsigned)(w0 + j * PIXELS_AT_ONCE) < W) {
                    const GLOBAL in_t *pixel = from + j * (PIXELS_AT_ONCE * C);
#if VECTORS
                    load_run(EIGHT_WORDS, held[i][j], (const GLOBAL unsigned *)pixel);
#elif OF_BYTES
                    UNROLL for (int u = 0; u < 8; u++)
                        held[i][j][u / 4] |= (unsigned)(unsigned char)pixel[u] << u % 4 * 8;
#elif OF_TF32
                    UNROLL for (int u = 0; u < 8; u++) held[i][j][u] = float_bits(pixel[u]);
#else
                    UNROLL for (int u = 0; u < 8; u++) held[i][j][u / 2] |= (unsigned)pixel[u] << u % 2 * 16;
#endif
                }
            }
        }
        UNROLL for (int i = 0; i < ROWS_IN_FLIGHT; i++)
            UNROLL for (int j = 0; j < ROW_COPIES; j++) {
                SHARED staged_t *to = tile + (first + i * WARPS) * PITCH + j * PIXELS_AT_ONCE;
                if (first + i * WARPS < XH && (XW % PIXELS_AT_ONCE == 0 || column + j * PIXELS_AT_ONCE < XW))
                    UNROLL for (int u = 0; u < 8; u++)
                        to[u * PLANE] = staged_of_word(held[i][j][u / IN_WORD], u % IN_WORD);
            }
    }
}

#else
#define ROWS_AT_ONCE (32 / NC)  // rows that a warp takes at once, eight columns to a lane

#define EIGHT_STAGED (8 / FRAGMENT)  // words of eight numbers as they are staged

// Eight columns of a row from w on, of which `row` is the first; zeros outside the image.
INLINE void load_eight(unsigned held[EIGHT_STAGED], const GLOBAL in_t *row, int w, int inside) {
#if OF_TF32
    UNROLL for (int i = 0; i < 8; i++) held[i] = inside && (unsigned)(w + i) < W ? float_bits(row[w + i]) : 0;
#elif VECTORS && W % 2 == 0 && !OF_BYTES  // two at a time, none cut by the edge of the image, from an even column on
#define ODD (PAD_L % 2)
    unsigned twos[5];
    UNROLL for (int i = 0; i < 4 + ODD; i++)
        twos[i] = inside && (unsigned)(w - ODD + 2 * i) < W ? *(const GLOBAL unsigned *)(row + w - ODD + 2 * i) : 0;
    UNROLL for (int i = 0; i < 4; i++) held[i] = ODD ? twos[i] >> 16 | twos[i + ODD] << 16 : twos[i];
#else
    staged_t one[8];
    UNROLL for (int i = 0; i < 8; i++) one[i] = inside && (unsigned)(w + i) < W ? staged(row[w + i]) : 0;
    UNROLL for (int i = 0; i < 4; i++) held[i] = one[2 * i] | (unsigned)one[2 * i + 1] << 16;
#endif
}

INLINE void stage_x(SHARED staged_t *tile, const GLOBAL in_t *x, Place at, int warp, int lane) {
    const int line = lane / NC, eight = lane % NC;
    const int h0 = at.p0 * STR_H - PAD_T + line, w = at.q0 * STR_W - PAD_L + 8 * eight;
    NO_UNROLL for (int c = warp; c < CB; c += WARPS) {
        const GLOBAL in_t *plane = x + X_AT(at.n, at.k0 + c, 0, 0);
        SHARED staged_t *to = tile + plane_at(c) + line * PITCH + 8 * eight;
        NO_UNROLL for (int first = 0; first < XH; first += ROWS_IN_FLIGHT * ROWS_AT_ONCE) {
            unsigned held[ROWS_IN_FLIGHT][EIGHT_STAGED];
            UNROLL for (int i = 0; i < ROWS_IN_FLIGHT; i++) {
                const int row = first + i * ROWS_AT_ONCE;
                const int inside = line < ROWS_AT_ONCE && row + line < XH && (unsigned)(h0 + row) < H;
                load_eight(held[i], plane + (offset_t)(h0 + row) * W, w, inside);
            }
            UNROLL for (int i = 0; i < ROWS_IN_FLIGHT; i++)
                if (line < ROWS_AT_ONCE && first + i * ROWS_AT_ONCE + line < XH) {
                    SHARED unsigned *row = (SHARED unsigned *)(to + (first + i * ROWS_AT_ONCE) * PITCH);
                    if (OF_TF32) UNROLL for (int u = 0; u < EIGHT_STAGED; u++) held[i][u] = tf32_of(held[i][u]);
                    UNROLL for (int u = 0; u < EIGHT_STAGED; u += 4) store_run(4, row + u, held[i] + u);
                }
        }
    }
}
#endif

// Rows of the filter, [CB][R][W_PITCH], as toeplitz_pack.cu lays them out; on their way when it returns.
INLINE void stage_w(SHARED staged_t *taps, const GLOBAL acc_t *w, Place at) {
    w += (offset_t)at.k0 * (R * W_PITCH / FRAGMENT);
    for (int i = THREAD(0); i < CB * R * W_PITCH / PIECE; i += THREADS)
        async_copy4((SHARED acc_t *)taps + 4 * i, w + 4 * i, 1);
    ASYNC_COMMIT();
}
