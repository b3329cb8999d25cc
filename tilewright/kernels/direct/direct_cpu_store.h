// How a CPU core stores a register tile of direct_cpu.h: whole vectors where they fit, else one by one; in nchw pixels
// and channels are turned first.

#include "shuffles.h"

#define TH_OUT (POOL_HERE ? TH / POOL_SIZE : TH)  // of the tile as it is stored
#define TW_OUT (POOL_HERE ? TW / POOL_SIZE : TW)
#define ADD_TURNED (ADD && EPILOGUE_HERE && !Y_NHWC && !POOL_HERE)  // z of nchw: vectors of pixels, as they are stored
#define WIDE_STORE (COMBINE != ATOMIC && (Y_NHWC || !ADD || !EPILOGUE_HERE || ADD_TURNED))  // else z is read one by one

// Output (b, i) of vector a of a tile whose first sum is (k, p, q): one sum, or the pool of a window of them; if it is
// added to z as it is stored, the sum alone.
INLINE wide finish_output(wide acc[TK][TH][TW], const GLOBAL out_t *bias, const GLOBAL out_t *z, Place at, int a, int b,
                          int i, int k, int p, int q) {
#if POOL_HERE
    wide pooled = (wide)(POOL_NOTHING);
    UNROLL for (int e = 0; e < POOL_SIZE * POOL_SIZE; e++) {
        int h = b * POOL_SIZE + e / POOL_SIZE, w = i * POOL_SIZE + e % POOL_SIZE;
        wide v = finish_channels(acc[a][h][w], bias, k + a * VECTOR, z, Z_AT(at.n, k + a * VECTOR, p + h, q + w));
        pool_take_lanes(&pooled, &v);
    }
    return pool_mean_lanes(pooled);
#elif ADD_TURNED
    return acc[a][b][i];
#else
    return finish_channels(acc[a][b][i], bias, k + a * VECTOR, z, Z_AT(at.n, k + a * VECTOR, p + b, q + i));
#endif
}

#if VECTOR == 8 && DTYPE == 1
// Store 4 to 7 of 8 neighbours.
INLINE void store_some(GLOBAL float *to, wide v, int count) {
    typedef float four __attribute__((ext_vector_type(4), aligned(4)));
    typedef float two __attribute__((ext_vector_type(2), aligned(4)));
    *(GLOBAL four *)to = __builtin_shufflevector(v, v, 0, 1, 2, 3);
    if (count == 5) to[4] = v[4];
    if (count == 6) *(GLOBAL two *)(to + 4) = __builtin_shufflevector(v, v, 4, 5);
    if (count == 7) *(GLOBAL four *)(to + 3) = __builtin_shufflevector(v, v, 3, 4, 5, 6);
}
#endif

#if ADD_TURNED
// Sums of `count` pixels of channel k with the bias, z and the activation.
INLINE wide finish_pixels(wide v, const GLOBAL out_t *bias, const GLOBAL out_t *z, int count, int k) {
    wide more = 0;
    if (count == VECTOR) more = load_outs(z);
    else UNROLL for (int j = 0; j < VECTOR; j++) if (j < count) more[j] = out_load(z + j);
    return before_pool_lanes(v, BIAS ? (wide)(out_load(bias + k)) : (wide)(0), more);
}
#endif

// nchw: VECTOR pixels of VECTOR channels from k on become VECTOR channels of `count` pixels.
INLINE void store_turned(GLOBAL done_t *y, const GLOBAL out_t *bias, const GLOBAL out_t *z, wide rows[VECTOR],
                         int count, int plane, int k SCALE_PARAMETER) {
    turn_lanes(rows);
    UNROLL for (int v = 0; v < VECTOR; v++) {
#if ADD_TURNED
        rows[v] = finish_pixels(rows[v], bias, z + (offset_t)v * plane, count, k + v);
#endif
        GLOBAL done_t *to = y + (offset_t)v * plane;
        if (count == VECTOR) store_columns(to, rows[v], k + v);
#if VECTOR == 8 && DTYPE == 1
        else if (count >= 4) store_some(to, rows[v], count);
#endif
        else UNROLL for (int j = 0; j < VECTOR; j++) if (j < count) to[j] = DONE_OF(rows[v][j], k + v);
    }
}

// Store the tile whose first output is (k, p, q) of the block; rows before `first_b` and columns before
// `first_i` are another tile's.
INLINE void store_tile(GLOBAL done_t *y, const GLOBAL out_t *bias, const GLOBAL out_t *z, Place at, int k, int p, int q,
                       int first_b, int first_i, wide acc[TK][TH][TW] SCALE_PARAMETER) {
    int k_all = at.group * K + at.k0 + k, p_all = at.p0 + p, q_all = at.q0 + q;
    if (WIDE_STORE && at.k0 + k + TILE_K <= K && p_all + TH <= P && q_all + TW <= Q) {
        const int rows = POOL_HERE ? YP : P, columns = POOL_HERE ? YQ : Q, step = POOL_HERE ? POOL_SIZE : 1;
        const offset_t first = IMAGE_AT(at.n, k_all, p_all / step, q_all / step, rows, columns);
        GLOBAL done_t *to = y + SHARE_AT(at) + first;
        UNROLL for (int a = 0; a < TK; a++)
            UNROLL for (int b = 0; b < TH_OUT; b++) {
#if Y_NHWC
                UNROLL for (int i = 0; i < TW_OUT; i++)
                    store_channels(to + a * VECTOR + (offset_t)(b * columns + i) * (GROUPS_ * K),
                                  finish_output(acc, bias, z, at, a, b, i, k_all, p_all, q_all), k_all + a * VECTOR);
#else
                UNROLL for (int i = 0; i < TW_OUT; i += VECTOR) {
                    wide out[VECTOR];
                    int count = TW_OUT - i < VECTOR ? TW_OUT - i : VECTOR;
                    UNROLL for (int j = 0; j < VECTOR; j++)
                        out[j] = finish_output(acc, bias, z, at, a, b, j < count ? i + j : i, k_all, p_all, q_all);
                    offset_t from = (offset_t)a * VECTOR * (rows * columns) + b * columns + i;
                    store_turned(to + from, bias, z + (ADD_TURNED ? first + from : 0), out, count, rows * columns,
                                 k_all + a * VECTOR SCALE_ARGUMENT);
                }
#endif
            }
        return;
    }
    acc_t out[TILE_VECTORS * VECTOR];
#define OUT_AT(a, b, i, v) out[(((a) * TH + (b)) * TW + (i)) * VECTOR + (v)]
    FOR_TILE(a, b, i) *(wide *)(&OUT_AT(a, b, i, 0)) = acc[a][b][i];
    NO_UNROLL for (int e = 0; e < TK * TH_OUT * TW_OUT * VECTOR; e++) {
        int v = e % VECTOR, i = e / VECTOR % TW_OUT, b = e / (VECTOR * TW_OUT) % TH_OUT,
            a = e / (VECTOR * TW_OUT * TH_OUT);
#if POOL_HERE
        int yp = p_all / POOL_SIZE + b, yq = q_all / POOL_SIZE + i, channel = k_all + a * VECTOR + v;
        if (at.k0 + k + a * VECTOR + v >= K || yp >= YP || yq >= YQ) continue;
        acc_t pooled = POOL_NOTHING;
        for (int u = 0; u < POOL_SIZE * POOL_SIZE; u++) {
            int h = b * POOL_SIZE + u / POOL_SIZE, w = i * POOL_SIZE + u % POOL_SIZE;
            pool_take(&pooled, before_pool(OUT_AT(a, h, w, v), bias, channel, z,
                                           Z_AT(at.n, channel, p_all + h, q_all + w)));
        }
        y[Y_AT(at.n, channel, yp, yq)] = DONE_OF(pool_mean(pooled), channel);
#else
        if (b >= first_b && i >= first_i)
            finish(y, bias, z, at, k + a * VECTOR + v, p + b, q + i, OUT_AT(a, b, i, v) SCALE_ARGUMENT);
#endif
    }
}
