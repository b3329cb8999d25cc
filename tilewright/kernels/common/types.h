// The types of a layer, from its DTYPE: what memory holds, and what is computed with.
//
//   DTYPE  0 f64   1 f32   2 f16   3 bf16   4 i8   5 f8 (e4m3; y, bias and z are f16)     (f32 if it is not given)
//   in_t   an element of x and w as the caller has them     out_t  an element of y, bias and z
//   acc_t  what sums are made of: f64 for f64, i32 for i8, else f32 (dialect.h)
//   in_load, out_load: memory to acc_t; narrowed: back, rounding to nearest even; widened, out_widened: of a number
//   NUMBER(bits): a factor or bound of the epilogue by its bits, an f64 for f64, else an f32

#include "e4m3.h"

#if DTYPE == 4
typedef signed char in_t;
typedef int out_t;
#elif DTYPE == 5
typedef unsigned char in_t;
typedef unsigned short out_t;
#elif DTYPE < 2
typedef acc_t in_t, out_t;
#else  // held as bits: no arithmetic in 16 bits anywhere
typedef unsigned short in_t, out_t;
#endif

#if DTYPE == 0
#define NUMBER(bits) bits_double(bits)
#else
#define NUMBER(bits) bits_float(bits)
#endif

INLINE acc_t widened(in_t v) {
#if DTYPE == 2
    return half_float(v);
#elif DTYPE == 3
    return bits_float((unsigned)v << 16);
#elif DTYPE == 5
    return float_of_e4m3(v);
#else
    return v;
#endif
}

INLINE out_t narrowed(acc_t v) {
#if DTYPE == 2 || DTYPE == 5
    return float_half(v);
#elif DTYPE == 3
    return float_bfloat(v);
#else
    return v;
#endif
}

INLINE acc_t out_widened(out_t v) {
#if DTYPE == 4
    return v;
#elif DTYPE == 5
    return half_float(v);
#else
    return widened(v);
#endif
}

INLINE acc_t in_load(const GLOBAL in_t *p) { return widened(*p); }
INLINE acc_t out_load(const GLOBAL out_t *p) { return out_widened(*p); }
