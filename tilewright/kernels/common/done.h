// What a kernel stores where a sum is done: y in its dtype, i8 where REQUANT, or a partial sum (TWO_PASS). After
// tile.h.
//
//   done_t            one of them; DONE_OF(v, k): of channel k (of all groups), whose sum is v
//   SCALE_PARAMETER   a kernel's last parameter where REQUANT, the scale of each channel; SCALE_ARGUMENT: handed on

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
#else
typedef char done_t;  // vectors have no other name there
#endif
#else
typedef y_t done_t;
#define DONE_OF(v, k) y_of(v)
#endif

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
