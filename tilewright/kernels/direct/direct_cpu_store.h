// How a CPU core stores a register tile of direct_cpu.h: by vectors, at the edges of the image and of the channels by
// parts of vectors; in nchw pixels and channels are turned first.

#include "shuffles.h"

#define TH_OUT (POOL_HERE ? TH / POOL_SIZE : TH)  // of the tile as it is stored
#define TW_OUT (POOL_HERE ? TW / POOL_SIZE : TW)
#define OUT_ROWS (POOL_HERE ? YP : P)             // of the image
#define OUT_COLUMNS (POOL_HERE ? YQ : Q)
#define LAST_LANES (K % VECTOR)  // channels of the last vector, if it is not whole
#define ADD_TURNED (ADD && EPILOGUE_HERE && !Y_NHWC && !POOL_HERE)  // z of nchw: vectors of pixels, as they are stored

#if COMBINE != ATOMIC
// The first `count` of VECTOR neighbours, and zeros.
INLINE wide load_first(const GLOBAL out_t *from, int count) {
    if (count == VECTOR) return load_outs(from);
    wide v = (wide)(0);
    UNROLL for (int j = 0; j < VECTOR; j++) if (j < count) v[j] = out_load(from + j);
    return v;
}

// z of the first `lanes` channels of a pixel.
INLINE wide load_residual(const GLOBAL out_t *from, int lanes) {
    if (Y_NHWC) return load_first(from, lanes);
    wide v = (wide)(0);
    UNROLL for (int j = 0; j < VECTOR; j++) if (j < lanes) v[j] = out_load(from + (offset_t)j * (P * Q));
    return v;
}

// Output (b, i) of the first `lanes` channels of vector a of a tile whose first sum is (k, p, q): one sum, or the pool
// of a window of them; if it is added to z as it is stored, the sum alone.
INLINE wide finish_output(wide acc[TK][TH][TW], Epilogue ep, Place at, int a, int b, int i, int k, int p, int q,
                          int lanes) {
#if EPILOGUE_HERE && !ADD_TURNED
    k += a * VECTOR;
    wide more = (wide)(0);
#if BIAS
    more = load_first(ep.bias + k, lanes);
#endif
#define COLUMN(w) (Q % TW != 0 && q + (w) >= Q ? Q - 1 : q + (w))  // nchw: a vector of pixels is cut short later
#define FINISHED(v, h, w) \
    before_pool_lanes(v, more, ADD ? load_residual(ep.z + Z_AT(at.n, k, p + (h), COLUMN(w)), lanes) : (wide)(0))
#if POOL_HERE
    wide pooled = (wide)(POOL_NOTHING);
    UNROLL for (int e = 0; e < POOL_SIZE * POOL_SIZE; e++) {
        int h = b * POOL_SIZE + e / POOL_SIZE, w = i * POOL_SIZE + e % POOL_SIZE;
        wide v = FINISHED(acc[a][h][w], h, w);
        pool_take_lanes(&pooled, &v);
    }
    return pool_mean_lanes(pooled);
#else
    return FINISHED(acc[a][b][i], b, i);
#endif
#else
    return acc[a][b][i];
#endif
}

#if VECTOR >= 8 && DTYPE == 1
typedef float eight __attribute__((ext_vector_type(8), aligned(4)));
typedef float four __attribute__((ext_vector_type(4), aligned(4)));
typedef float two __attribute__((ext_vector_type(2), aligned(4)));
#define LANES2(v, at) __builtin_shufflevector(v, v, at, at + 1)
#define LANES4(v, at) __builtin_shufflevector(v, v, at, at + 1, at + 2, at + 3)
// Store the first `count` neighbours, whose number the compiler knows.
INLINE void store_constant(GLOBAL float *to, wide v, int count) {
#if VECTOR == 16
    if (count & 8) *(GLOBAL eight *)to = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
    if ((count & 12) == 12) *(GLOBAL four *)(to + 8) = LANES4(v, 8);
    if ((count & 14) == 10) *(GLOBAL two *)(to + 8) = LANES2(v, 8);
    if ((count & 14) == 14) *(GLOBAL two *)(to + 12) = LANES2(v, 12);
#endif
    if ((count & 12) == 4) *(GLOBAL four *)to = LANES4(v, 0);
    if ((count & 14) == 2) *(GLOBAL two *)to = LANES2(v, 0);
    if ((count & 14) == 6) *(GLOBAL two *)(to + 4) = LANES2(v, 4);
    if (count & 1) to[count - 1] = v[count - 1];
}

// Load them; the others are 0.
INLINE wide load_constant(const GLOBAL float *from, int count) {
    float v[VECTOR] __attribute__((aligned(4 * VECTOR)));
    UNROLL for (int j = 0; j < VECTOR; j++) v[j] = 0;
#if VECTOR == 16
    if (count & 8) *(eight *)v = *(const GLOBAL eight *)from;
#endif
    if (count & 4) *(four *)(v + (count & 8)) = *(const GLOBAL four *)(from + (count & 8));
    if (count & 2) *(two *)(v + (count & 12)) = *(const GLOBAL two *)(from + (count & 12));
    if (count & 1) v[count - 1] = from[count - 1];
    return *(wide *)v;
}

#if VECTOR == 8
// Store 4 to 7 of 8 neighbours, whose number it does not know.
INLINE void store_4_to_7(GLOBAL float *to, wide v, int count) {
    *(GLOBAL four *)to = __builtin_shufflevector(v, v, 0, 1, 2, 3);
    if (count == 5) to[4] = v[4];
    if (count == 6) *(GLOBAL two *)(to + 4) = __builtin_shufflevector(v, v, 4, 5);
    if (count == 7) *(GLOBAL four *)(to + 3) = __builtin_shufflevector(v, v, 3, 4, 5, 6);
}
#endif
#endif

// Store the first `count` lanes: of neighbouring channels from k on.
INLINE void store_first(Epilogue ep, offset_t to, wide v, int k, int count) {
    if (count == VECTOR) store_channels(ep, k, to, v);
    else UNROLL for (int j = 0; j < VECTOR; j++) if (j < count) ep.y[to + j] = done_of(v[j], ep, k + j);
}

// nchw: VECTOR pixels of VECTOR channels from k on become the first `lanes` channels of `count` pixels; inside of the
// image there are `most`.
INLINE void store_turned(Epilogue ep, offset_t first, wide rows[VECTOR], int count, int most, int plane, int k,
                         int lanes) {
    turn_lanes(rows);
    UNROLL for (int v = 0; v < VECTOR; v++) {
        if (v >= lanes) continue;
        const offset_t at = first + (offset_t)v * plane;
#if ADD_TURNED
        wide b = BIAS ? (wide)(out_load(ep.bias + k + v)) : (wide)(0);
        const GLOBAL out_t *from = ep.z + at;
        wide residual;
#if VECTOR >= 8 && DTYPE == 1
        if (count == most && most < VECTOR) residual = load_constant(from, most);
        else
#endif
            residual = load_first(from, count);
        rows[v] = before_pool_lanes(rows[v], b, residual);
#endif
        GLOBAL done_t *to = ep.y + at;
        if (count == VECTOR) store_columns(ep, k + v, at, rows[v]);
#if VECTOR >= 8 && DTYPE == 1
        else if (count == most) store_constant(to, rows[v], most);
#endif
#if VECTOR == 8 && DTYPE == 1
        else if (count >= 4) store_4_to_7(to, rows[v], count);
#endif
        else UNROLL for (int j = 0; j < VECTOR; j++) if (j < count) to[j] = done_of(rows[v][j], ep, k + v);
    }
}

// Store the first `lanes` channels of vector a of a tile (see below) at `first` and on; `rows` and `columns` of the
// image begin with the tile.
INLINE void store_vectors(Epilogue ep, Place at, offset_t first, int a, int lanes, int rows, int columns, int k, int p,
                          int q, wide acc[TK][TH][TW]) {
    const int step = Y_NHWC ? 1 : VECTOR;  // pixels that are stored at once
    UNROLL for (int b = 0; b < TH_OUT; b++)
        UNROLL for (int i = 0; i < TW_OUT; i += step) {
            if (P % TH != 0 && b >= rows) continue;
            if (Q % TW != 0 && i >= columns) continue;
            offset_t to = first + (offset_t)a * VECTOR * (Y_NHWC ? 1 : OUT_ROWS * OUT_COLUMNS) +
                          (b * OUT_COLUMNS + i) * (Y_NHWC ? (offset_t)GROUPS_ * K : 1);
#if Y_NHWC
            store_first(ep, to, finish_output(acc, ep, at, a, b, i, k, p, q, lanes), k + a * VECTOR, lanes);
#else
            wide out[VECTOR];
            const int most = TW_OUT - i < VECTOR ? TW_OUT - i : VECTOR;
            int count = most;
            UNROLL for (int j = 0; j < VECTOR; j++)
                out[j] = finish_output(acc, ep, at, a, b, j < count ? i + j : i, k, p, q, lanes);
            if (Q % TW != 0 && columns - i < count) count = columns - i;
            store_turned(ep, to, out, count, most, OUT_ROWS * OUT_COLUMNS, k + a * VECTOR, lanes);
#endif
        }
}
#endif

// Store the tile whose first output is (k, p, q) of the block; rows before `first_b` and columns before
// `first_i` are another tile's.
INLINE void store_tile(Epilogue ep, Place at, int k, int p, int q, int first_b, int first_i, wide acc[TK][TH][TW]) {
    int k_all = at.group * K + at.k0 + k, p_all = at.p0 + p, q_all = at.q0 + q;
#if COMBINE != ATOMIC  // another tile's are the same
    const int step = POOL_HERE ? POOL_SIZE : 1;
    const int row = p_all / step, column = q_all / step;
    const offset_t first = SHARE_AT(at) + IMAGE_AT(at.n, k_all, row, column, OUT_ROWS, OUT_COLUMNS);
    UNROLL for (int a = 0; a < TK; a++) {
        int left = K - at.k0 - k - a * VECTOR;
        if (K % TILE_K == 0 || left >= VECTOR)
            store_vectors(ep, at, first, a, VECTOR, OUT_ROWS - row, OUT_COLUMNS - column, k_all, p_all, q_all, acc);
        else if (LAST_LANES != 0 && left > 0)
            store_vectors(ep, at, first, a, LAST_LANES, OUT_ROWS - row, OUT_COLUMNS - column, k_all, p_all, q_all, acc);
    }
#else
    acc_t out[TILE_VECTORS * VECTOR];
    FOR_TILE(a, b, i) *(wide *)(out + ((a * TH + b) * TW + i) * VECTOR) = acc[a][b][i];
    NO_UNROLL for (int e = 0; e < TILE_VECTORS * VECTOR; e++) {
        int i = e / VECTOR % TW, b = e / (VECTOR * TW) % TH, a = e / (VECTOR * TW * TH);
        if (b >= first_b && i >= first_i)
            finish(ep, at, k + a * VECTOR + e % VECTOR, p + b, q + i, out[e]);
    }
#endif
}
