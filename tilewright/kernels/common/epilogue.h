// What follows the sum: y = pool(act(alpha * conv + beta * z + bias)); the defines are those of
// Epilogue.defines() in epilogue.py. Numbers travel as bits, see NUMBER in types.h.
//
//   SCALED ALPHA   factor of the sum                  BIAS        one number a channel
//   ADD BETA       factor of z, shaped as the sum     ACT         0 none 1 relu 2 leaky 3 silu 4 clamp
//   POOL           0 none 1 largest 2 mean, over POOL_SIZE^2 values, POOL_STRIDE apart, POOL_PAD around
//   REQUANT        1: y is i8, sums of i8 times the scale of their channel (requant.h)
//
// Channels k are counted over all groups. `to` is an element of z, and of what is stored (y without a pool, or sums).
// Of sums that a second kernel adds up it is one in the part of their share (SHARE_AT of tile.h); z is not read then.
//
//   Epilogue                  what a kernel reads and writes here: {bias, z, y SCALE_ARGUMENT} of its parameters, whose
//                             last one is SCALE_PARAMETER
//   finish_one finish_run     finish a sum, or neighbours in y, and store them; epilogue: finish it alone
//   final_t final_of final_by an output, of channel k, or where that has scale s
//   done_t done_of done_by    what is stored: the same; or the sum as it is, for a second kernel to finish (TWO_PASS of
//                             tile.h: EPILOGUE_HERE is 0)
//
// A pooled value: pooled = POOL_NOTHING; pool_take(&pooled, before_pool(...)) for each value of the window that lies
// in the image; pool_mean(pooled). A window of a mean lies wholly in the image: only max pools are padded.
// NaN wins over every number, as it does in a sum.

#include "types.h"

#ifndef REQUANT
#define REQUANT 0
#endif
#if REQUANT
#include "requant.h"
#define SCALE_PARAMETER , const GLOBAL float *RESTRICT scale
#define SCALE_ARGUMENT , scale
#define SCALE_OF(ep, k) (ep).scale[k]
#ifdef __CUDACC__
typedef signed char final_t;
#else
typedef char final_t;  // vectors have no other name there
#endif
#else
#define SCALE_PARAMETER
#define SCALE_ARGUMENT
#define SCALE_OF(ep, k) 0
typedef out_t final_t;
#endif
#if defined(TWO_PASS) && COMBINE == TWO_PASS
#define EPILOGUE_HERE 0
typedef acc_t done_t;
#else
#define EPILOGUE_HERE 1
typedef final_t done_t;
#endif

typedef struct {
    const GLOBAL out_t *bias, *z;
    GLOBAL done_t *y;
#if REQUANT
    const GLOBAL float *scale;
#endif
} Epilogue;

INLINE final_t final_by(acc_t v, float s) {
#if REQUANT
    return requantised(v, s);
#else
    return narrowed(v);
#endif
}
INLINE final_t final_of(acc_t v, Epilogue ep, int k) { return final_by(v, SCALE_OF(ep, k)); }
#if EPILOGUE_HERE
#define done_by final_by
#define done_of final_of
#else
#define done_by(v, s) (v)
#define done_of(v, ep, k) (v)
#endif

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

// The same at element `to`.
INLINE acc_t before_pool_by(acc_t v, acc_t b, Epilogue ep, offset_t to) {
    return before_pool_of(v, b, ADD ? out_load(ep.z + to) : 0);
}

// The same of channel k.
INLINE acc_t before_pool(acc_t v, Epilogue ep, int k, offset_t to) {
    return before_pool_by(v, BIAS ? out_load(ep.bias + k) : 0, ep, to);
}

INLINE acc_t epilogue(acc_t v, Epilogue ep, int k, offset_t to) {
    return EPILOGUE_HERE ? before_pool(v, ep, k, to) : v;
}

INLINE void finish_one(Epilogue ep, int k, offset_t to, acc_t v) { ep.y[to] = done_of(epilogue(v, ep, k, to), ep, k); }

// The same of `count` neighbours in y, read as they are stored: of channels from k on (step 1), or of pixels of channel
// k (step 0). finished_run: to `out`, for who stores them in another way. In place: v is not what it was.
#define finished_run(count, out, ep, k, step, to, v)                                                               \
    do {                                                                                                           \
        out_t b_[count], z_[count];                                                                                \
        if (BIAS && EPILOGUE_HERE && (step)) load_run(count, b_, (ep).bias + (k));                                 \
        else if (BIAS && EPILOGUE_HERE) UNROLL for (int i_ = 0; i_ < (count); i_++) b_[i_] = (ep).bias[k];         \
        if (ADD && EPILOGUE_HERE) load_run(count, z_, (ep).z + (to));                                              \
        if (EPILOGUE_HERE) UNROLL for (int i_ = 0; i_ < (count); i_++)                                             \
            (v)[i_] = before_pool_of((v)[i_], BIAS ? out_widened(b_[i_]) : 0, ADD ? out_widened(z_[i_]) : 0);      \
        UNROLL for (int i_ = 0; i_ < (count); i_++) (out)[i_] = done_of((v)[i_], ep, (k) + i_ * (step));           \
    } while (0)
#define finish_run(count, ep, k, step, to, v)                                                                      \
    do {                                                                                                           \
        done_t out_[count];                                                                                        \
        finished_run(count, out_, ep, k, step, to, v);                                                             \
        store_run(count, (ep).y + (to), out_);                                                                     \
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
