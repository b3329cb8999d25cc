// VECTOR neighbours in memory to lanes and back, on CPU cores: one by one, numbers of 8 and 16 bits take several times
// as long. Rounding is as in types.h.
//
//   load_lanes load_outs     of x; of bias and z
//   store_lanes              of what is stored (epilogue.h), as it is
//   store_channels           of what is finished, of channels from k on; store_columns: of columns of channel k
//   finish_channels finish_columns   finish sums, and store them. (By their address: HOT may have wider registers.)

#include "lanes.h"

#if DTYPE == 5
typedef uint wide_uint __attribute__((ext_vector_type(VECTOR)));
typedef uchar wide_byte __attribute__((ext_vector_type(VECTOR), aligned(1)));
#endif
#if DTYPE == 3
typedef uint wide_uint __attribute__((ext_vector_type(VECTOR)));
typedef ushort wide_short __attribute__((ext_vector_type(VECTOR), aligned(2)));
#elif (DTYPE == 2 || DTYPE == 5) && defined(__F16C__)
#define HALF_NUMBERS  // of y, bias and z; and of x, but where that is f8
typedef __fp16 wide_half __attribute__((ext_vector_type(VECTOR), aligned(2)));
#elif DTYPE == 4
typedef char wide_char __attribute__((ext_vector_type(VECTOR), aligned(1)));
#endif

INLINE wide load_lanes(const GLOBAL in_t *from) {
#if DTYPE < 2
    return *(const GLOBAL wide *)from;
#elif DTYPE == 4
    return __builtin_convertvector(*(const GLOBAL wide_char *)from, wide);
#elif DTYPE == 3
    return __builtin_astype(__builtin_convertvector(*(const GLOBAL wide_short *)from, wide_uint) << 16, wide);
#elif DTYPE == 2 && defined(HALF_NUMBERS)
    return __builtin_convertvector(*(const GLOBAL wide_half *)from, wide);
#elif DTYPE == 5  // as float_of_e4m3 does
    wide_uint bits = __builtin_convertvector(*(const GLOBAL wide_byte *)from, wide_uint), size = bits & 0x7f;
    wide_uint small = __builtin_astype(__builtin_convertvector(size, wide) * 0.001953125f, wide_uint);
    wide_uint normal = size == 0x7f ? (wide_uint)(0x7fc00000u) : (size << 20) + (120u << 23);
    return __builtin_astype((size < 8 ? small : normal) | (bits & 0x80) << 24, wide);
#else
    wide v;
    UNROLL for (int i = 0; i < VECTOR; i++) v[i] = widened(from[i]);
    return v;
#endif
}

INLINE wide load_outs(const GLOBAL out_t *from) {
#if DTYPE == 4
    return *(const GLOBAL wide *)from;
#elif DTYPE == 5 && defined(HALF_NUMBERS)
    return __builtin_convertvector(*(const GLOBAL wide_half *)from, wide);
#elif DTYPE == 5
    wide v;
    UNROLL for (int i = 0; i < VECTOR; i++) v[i] = out_load(from + i);
    return v;
#else
    return load_lanes(from);
#endif
}

INLINE void store_lanes(GLOBAL done_t *to, wide v) {
#if DTYPE < 2 || DTYPE == 4 || !EPILOGUE_HERE
    *(GLOBAL wide *)to = v;
#elif DTYPE == 3  // as float_bfloat does
    wide_uint bits = __builtin_astype(v, wide_uint);
    bits = v != v ? (wide_uint)(0x7fc0) : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    *(GLOBAL wide_short *)to = __builtin_convertvector(bits, wide_short);
#elif defined(HALF_NUMBERS)
    *(GLOBAL wide_half *)to = __builtin_convertvector(v, wide_half);
#else
    UNROLL for (int i = 0; i < VECTOR; i++) to[i] = narrowed(v[i]);
#endif
}

#if REQUANT && EPILOGUE_HERE
typedef float wide_scale __attribute__((ext_vector_type(VECTOR), aligned(4)));

INLINE void store_requantised(GLOBAL done_t *to, wide v, wide_scale by) {  // as requantised() does
    wide_scale s = __builtin_convertvector(v, wide_scale) * by;
    s = s > -128.0f ? s : (wide_scale)(-128.0f);
    s = s < 127.0f ? s : (wide_scale)(127.0f);
    *(GLOBAL wide_char *)to = __builtin_convertvector((s + 12582912.0f) - 12582912.0f, wide_char);
}
#define store_channels(ep, k, to, v) store_requantised((ep).y + (to), v, *(const GLOBAL wide_scale *)((ep).scale + (k)))
#define store_columns(ep, k, to, v) store_requantised((ep).y + (to), v, (wide_scale)((ep).scale[k]))
#else
#define store_channels(ep, k, to, v) store_lanes((ep).y + (to), v)
#define store_columns(ep, k, to, v) store_lanes((ep).y + (to), v)
#endif

INLINE wide finish_lanes(wide v, wide b, Epilogue ep, offset_t to) {
    return EPILOGUE_HERE ? before_pool_lanes(v, b, ADD ? load_outs(ep.z + to) : (wide)(0)) : v;
}
INLINE void finish_channels(Epilogue ep, int k, offset_t to, const vec *v) {
    const wide b = BIAS && EPILOGUE_HERE ? load_outs(ep.bias + k) : (wide)(0);
    store_channels(ep, k, to, finish_lanes(*v, b, ep, to));
}
INLINE void finish_columns(Epilogue ep, int k, offset_t to, const vec *v) {
    const wide b = (wide)(BIAS && EPILOGUE_HERE ? out_load(ep.bias + k) : 0);
    store_columns(ep, k, to, finish_lanes(*v, b, ep, to));
}
