// How the mma family finishes four sums of a thread: y in its dtype, or partial sums; i8 where REQUANT.

#ifndef REQUANT
#define REQUANT 0
#endif
#if REQUANT
#include "requant.h"
#define SCALE_PARAMETER , const GLOBAL float *RESTRICT scale
#define SCALE_ARGUMENT , scale
#else
#define SCALE_PARAMETER
#define SCALE_ARGUMENT
#endif
#if REQUANT && COMBINE != TWO_PASS
#define DONE_OF(v, k) requantised(v, scale[k])
#ifdef __CUDACC__
typedef signed char done_t;
INLINE void store4(done_t *to, const done_t *from) { *(char4 *)to = make_char4(from[0], from[1], from[2], from[3]); }
#else
typedef char done_t;  // vectors have no other name there
#endif
#else
typedef y_t done_t;
#define DONE_OF(v, k) y_of(v)
#endif

// Element k of pixel px, in y, z and partial sums.
INLINE offset_t y_at(int k, int px) {
    if (N == 1 && !Y_NHWC) return (offset_t)k * (P * Q) + px;
    return Y_NHWC ? (offset_t)px * (GROUPS_ * K) + k
                  : ((offset_t)(px / (P * Q)) * (GROUPS_ * K) + k) * (P * Q) + px % (P * Q);
}

// Finish a thread's output, or hand its partial sum on. (No early return: PoCL miscompiles it here.)
INLINE void finish_out(GLOBAL done_t *y, const GLOBAL out_t *bias, const GLOBAL out_t *z, Place at, int m, int n,
                       acc_t v[4] SCALE_PARAMETER) {
    const int k = at.k0 + (Y_NHWC ? n : m), px = at.q0 + (Y_NHWC ? m : n), group = at.group * K;
    const int whole = (K % KB == 0 || k < K) && (PIXELS % PB == 0 || px < PIXELS);
    done_t out[4];
    y += SHARE_AT(at);
    UNROLL for (int i = 0; i < 4; i++) {
        int ki = k + (Y_NHWC ? i : 0), pi = px + (Y_NHWC ? 0 : i);
        if (whole && (Y_VECTOR || (ki < K && pi < PIXELS))) {
            offset_t to = y_at(group + ki, pi);
            out[i] = DONE_OF(EPILOGUE_HERE ? before_pool(v[i], bias, group + ki, z, to) : v[i], group + ki);
            if (!Y_VECTOR) y[to] = out[i];
        }
    }
    if (Y_VECTOR && whole) store4(y + y_at(group + k, px), out);
}

#if REQUANT && COMBINE == TWO_PASS
// As sum_shares in tile.h, but what it makes is requantised.
BOUNDED_KERNEL(requant_shares, SUM_THREADS, 1)
(const GLOBAL acc_t *RESTRICT partial, const GLOBAL out_t *RESTRICT bias, const GLOBAL out_t *RESTRICT z,
 GLOBAL signed char *RESTRICT y, const GLOBAL float *RESTRICT scale) {
    offset_t i = (offset_t)GROUP(0) * SUM_THREADS + THREAD(0);
    CHAIN();
    if (i >= Y_FLOATS) return;
#if POOL
    offset_t pixel = Y_NHWC ? i / (GROUPS_ * K) : i, image = pixel / (YP * YQ);
    int k = Y_NHWC ? i % (GROUPS_ * K) : image % (GROUPS_ * K), n = Y_NHWC ? image : image / (GROUPS_ * K);
    int p0 = pixel / YQ % YP * POOL_STRIDE - POOL_PAD, q0 = pixel % YQ * POOL_STRIDE - POOL_PAD;
    acc_t sum = POOL_NOTHING;
    for (int p = p0; p < p0 + POOL_SIZE; p++)
        for (int q = q0; q < q0 + POOL_SIZE; q++)
            if ((unsigned)p < P && (unsigned)q < Q) pool_take(&sum, summed(partial, bias, z, k, Z_AT(n, k, p, q)));
#else
    int k = Y_NHWC ? i % (GROUPS_ * K) : i / (P * Q) % (GROUPS_ * K);
    acc_t sum = summed(partial, bias, z, k, i);
#endif
    y[i] = requantised(sum, scale[k]);
}
#endif
