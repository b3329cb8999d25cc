// Numbers of tf32, by their bits.
//
//   tf32_of   an f32 rounded to the 11 bits of tf32: from sm_90 on by one instruction, halves to even; elsewhere by
//             four, halves away from zero
//   split     v = high + low / 2048: v becomes high, low is returned, which tensor cores would cut off to tf32
//
// low is scaled so that it has the exponent of its number: no f32 is too small for it, but a denormal one. An
// infinity, or what rounds to one, has high = 0 and is in low alone: low_v high_w is what f32 has, and 0 low_w adds
// nothing. A NaN is in low too.

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
INLINE unsigned tf32_of(unsigned bits) {
    unsigned rounded;
#if __CUDA_ARCH__ >= 900
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(bits_float(bits)));
#else
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(bits_float(bits)));
#endif
    return rounded;
}
#else
INLINE unsigned tf32_of(unsigned bits) {
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}
#endif

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
#define HIGH_OF(bits) tf32_of(bits)
#else
#define HIGH_OF(bits) (((bits) + 0x1000u) & 0xffffe000u)  // a NaN may become anything: it is in low
#endif
INLINE unsigned split(unsigned *v) {
    unsigned bits = *v, high = HIGH_OF(bits);
    if (!(fabs(bits_float(high)) < 3.402823e38f)) high = 0;
    *v = high;
    return float_bits((bits_float(bits) - bits_float(high)) * 2048.0f);
}
