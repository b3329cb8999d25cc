// Where a block works, and how one output is finished: shared by the families that tile K x P x Q.
//
// The grid is one row of blocks: C shares of a cluster fastest, then C shares of the grid, then
// tiles. Neighbouring blocks share the larger of filter and input, so that it is read once.

#include "epilogue.h"

#define NONE 0
#define ATOMIC 1
#define TWO_PASS 2
#define LAST 3
#define SPLITS (SC * SG)
#define EPILOGUE_HERE (COMBINE != TWO_PASS)
#define X_AT(n, c, h, w) (X_NHWC ? (((offset_t)(n) * H + (h)) * W + (w)) * (GROUPS_ * C) + (c) \
                                 : (((offset_t)(n) * (GROUPS_ * C) + (c)) * H + (h)) * W + (w))
#define Y_AT(n, k, p, q) (Y_NHWC ? (((offset_t)(n) * P + (p)) * Q + (q)) * (GROUPS_ * K) + (k) \
                                 : (((offset_t)(n) * (GROUPS_ * K) + (k)) * P + (p)) * Q + (q))

typedef struct {
    int n, group, k0, p0, q0;  // first output of the tile
    int tile, sc, sg, c0;      // number of the tile, shares of C, first channel of this share
} Place;

INLINE Place find_place(int id) {
    Place at;
    CHAIN();
    at.sc = id % SC;
    at.sg = id / SC % SG;
    at.tile = id / SPLITS;
    at.c0 = (at.sg * SC + at.sc) * STEPS * CS;
    int rest = at.tile;
#if K_FASTEST
    at.k0 = rest % K_TILES * KB;
    rest /= K_TILES;
#endif
    at.q0 = rest % Q_TILES * WB;
    rest /= Q_TILES;
    at.p0 = rest % P_TILES * HB;
    rest /= P_TILES;
#if !K_FASTEST
    at.k0 = rest % K_TILES * KB;
    rest /= K_TILES;
#endif
    at.group = rest % GROUPS_;
    at.n = rest / GROUPS_;
    return at;
}

INLINE float epilogue(float v, const GLOBAL float *bias, int k) {
    return EPILOGUE_HERE ? before_pool(v, bias, k, bias, 0) : v;
}

// Store the sum for channel k and pixel (p, q) of the tile, or hand the partial sum on.
INLINE void finish(GLOBAL float *y, const GLOBAL float *bias, Place at, int k, int p, int q, float v) {
    k += at.k0, p += at.p0, q += at.q0;
    if (k >= K || p >= P || q >= Q) return;
    k += at.group * K;
    v = epilogue(v, bias, k);
    offset_t to = Y_AT(at.n, k, p, q);
    if (COMBINE == ATOMIC) atomic_add(&y[to], v);
    else y[(COMBINE == TWO_PASS ? (offset_t)at.sg * Y_FLOATS : 0) + to] = v;
}

// Count this block in; the last of the SG blocks of a tile learns that it is the last.
INLINE int arrive_last(GLOBAL unsigned *arrived, Place at, SHARED int *is_last) {
    FENCE();
    BARRIER();
    if (THREAD(0) == 0) {
        GLOBAL unsigned *count = &arrived[at.tile * SC + at.sc];
        *is_last = atomic_count(count) == SG - 1;
        if (*is_last) *count = 0;  // ready for the next run
    }
    BARRIER();
    FENCE();
    return *is_last;
}

#if COMBINE == TWO_PASS
BOUNDED_KERNEL(sum_shares, SUM_THREADS, 1)
(const GLOBAL float *RESTRICT partial, const GLOBAL float *RESTRICT bias, GLOBAL float *RESTRICT y) {
    offset_t i = (offset_t)GROUP(0) * SUM_THREADS + THREAD(0);
    CHAIN();
    if (i >= Y_FLOATS) return;
    float sum = 0.0f;
    UNROLL for (int g = 0; g < SG; g++) sum += partial[(offset_t)g * Y_FLOATS + i];
    y[i] = before_pool(sum, bias, Y_NHWC ? i % (GROUPS_ * K) : i / (P * Q) % (GROUPS_ * K), bias, 0);
}
#endif
