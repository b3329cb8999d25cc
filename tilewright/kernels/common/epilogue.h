// What follows the sum: y = pool(act(alpha * conv + beta * z + bias)); the defines are those of
// Epilogue.defines() in epilogue.py. Numbers travel as bits, see NUMBER in types.h.
//
//   SCALED ALPHA   factor of the sum                  BIAS        one number a channel
//   ADD BETA       factor of z, shaped as the sum     ACT         0 none 1 relu 2 leaky 3 silu 4 clamp
//   POOL           0 none 1 largest 2 mean, over POOL_SIZE^2 values, POOL_STRIDE apart, POOL_PAD around
//
// A pooled value: pooled = POOL_NOTHING; pool_take(&pooled, v) for each value of the window that lies
// in the image; pool_mean(pooled). A window of a mean lies wholly in the image: only max pools are padded.
// NaN wins over every number, as it does in a sum.

#include "types.h"

INLINE acc_t activated(acc_t v) {
#if ACT == 0
    return v;
#elif ACT == 1 && defined(__CUDACC__)
    return larger(v, (acc_t)0);  // of f32 one instruction; NaN stays NaN
#elif ACT == 1
    return v < 0 ? 0 : v;
#elif ACT == 2
    return v < 0 ? v * (acc_t)NUMBER(ACT_LOW) : v;
#elif ACT == 3
    return SILU(v);
#elif ACT == 4
    return v < NUMBER(ACT_LOW) ? NUMBER(ACT_LOW) : v > NUMBER(ACT_HIGH) ? NUMBER(ACT_HIGH) : v;
#else
#error "ACT: an activation that has no formula here, see docs/new_activation.md"
#endif
}

// The sum of a channel whose bias is b, as it goes into the pool or into y; z is what is added.
INLINE acc_t before_pool_of(acc_t v, acc_t b, acc_t z) {
#if SCALED
    v *= (acc_t)NUMBER(ALPHA);
#endif
#if ADD
    v += (acc_t)NUMBER(BETA) * z;
#endif
#if BIAS
    v += b;
#endif
    return activated(v);
}

// The same where z has it at element `at`.
INLINE acc_t before_pool_by(acc_t v, acc_t b, const GLOBAL out_t *z, offset_t at) {
    return before_pool_of(v, b, ADD ? out_load(z + at) : 0);
}

// The same of channel k (of all groups).
INLINE acc_t before_pool(acc_t v, const GLOBAL out_t *bias, int k, const GLOBAL out_t *z, offset_t at) {
    return before_pool_by(v, BIAS ? out_load(bias + k) : 0, z, at);
}

// The same of `count` neighbours in y, from element `at` on, read as y is stored: of channels from k on (step 1), or of
// pixels of channel k (step 0).
#define before_pool_run(count, v, bias, k, step, z, at)                                                        \
    do {                                                                                                       \
        out_t b_[count], z_[count];                                                                            \
        if (BIAS && (step)) load_run(count, b_, (bias) + (k));                                                 \
        else if (BIAS) UNROLL for (int i_ = 0; i_ < (count); i_++) b_[i_] = (bias)[k];                         \
        if (ADD) load_run(count, z_, (z) + (at));                                                              \
        UNROLL for (int i_ = 0; i_ < (count); i_++)                                                            \
            (v)[i_] = before_pool_of((v)[i_], BIAS ? out_widened(b_[i_]) : 0, ADD ? out_widened(z_[i_]) : 0);  \
    } while (0)

#if DTYPE == 4
#define POOL_NOTHING (-2147483647 - 1)
#elif POOL == 1
#define POOL_NOTHING ((acc_t)bits_float(0xff800000u))  // minus infinity: -1 / 0 nvcc divides, for each output
#else
#define POOL_NOTHING 0
#endif

INLINE void pool_take(acc_t *pooled, acc_t v) {
#if POOL == 2
    *pooled += v;
#else
    *pooled = larger(v, *pooled);
#endif
}

INLINE acc_t pool_mean(acc_t pooled) { return POOL == 2 ? pooled / (POOL_SIZE * POOL_SIZE) : pooled; }
