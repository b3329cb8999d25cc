// VECTOR numbers of acc_t side by side, on CPU cores (OpenCL C by clang: its vectors, no builtins of float16).
//
//   wide              such a vector; in memory as aligned as its numbers are
//   activated_lanes before_pool_lanes pool_take_lanes pool_mean_lanes
//                     what epilogue.h makes of one number, of all of them (b, z: of their channels, of their elements)

typedef acc_t wide __attribute__((ext_vector_type(VECTOR), aligned(ACC_BYTES)));

#if ACT == 3 && DTYPE > 0
typedef int wide_int __attribute__((ext_vector_type(VECTOR)));

// e^v = 2^n * e^r, |r| <= log(2) / 2, by a polynomial, within an ulp. PoCL's exp is a call for each number.
INLINE wide exp_lanes(wide v) {
    const float nearest = 12582912.0f;                                    // adding 1.5 * 2^23 rounds to a whole number
    v = v < -104.0f ? (wide)(-104.0f) : v > 89.0f ? (wide)(89.0f) : v;  // 0, infinity; NaN stays NaN
    wide n = (v * 1.44269504f + nearest) - nearest, r = v - n * 0.693145752f - n * 1.42860677e-6f;
    wide p = r * (1 / 5040.0f) + 1 / 720.0f;
    p = p * r + 1 / 120.0f;
    p = p * r + 1 / 24.0f;
    p = p * r + 1 / 6.0f;
    p = p * r + 0.5f;
    p = (p * r + 1) * r + 1;
    wide_int whole = v == v ? __builtin_convertvector(n, wide_int) : (wide_int)(0), part = whole >> 1;
    wide some = __builtin_astype(part + 127 << 23, wide), rest = __builtin_astype(whole - part + 127 << 23, wide);
    return p * some * rest;  // in two steps, since 2^128 and 2^-150 are no numbers
}
#endif

INLINE wide activated_lanes(wide v) {
#if ACT == 1
    return v < 0 ? (wide)(0) : v;
#elif ACT == 2
    return v < 0 ? v * (acc_t)NUMBER(ACT_LOW) : v;
#elif ACT == 3 && DTYPE > 0
    return v / (1 + exp_lanes(-v));
#elif ACT == 4
    const wide low = (wide)((acc_t)NUMBER(ACT_LOW)), high = (wide)((acc_t)NUMBER(ACT_HIGH));
    return v < low ? low : v > high ? high : v;
#else
    if (ACT) UNROLL for (int i = 0; i < VECTOR; i++) v[i] = activated(v[i]);
    return v;
#endif
}

INLINE wide before_pool_lanes(wide v, wide b, wide z) {
    if (SCALED) v *= (acc_t)NUMBER(ALPHA);
    if (ADD) v += (acc_t)NUMBER(BETA) * z;
    if (BIAS) v += b;
    return activated_lanes(v);
}

INLINE void pool_take_lanes(wide *pooled, const wide *v) {
    *pooled = POOL == 2 ? *pooled + *v : *v > *pooled || *v != *v ? *v : *pooled;
}
INLINE wide pool_mean_lanes(wide pooled) { return POOL == 2 ? pooled / (acc_t)(POOL_SIZE * POOL_SIZE) : pooled; }
