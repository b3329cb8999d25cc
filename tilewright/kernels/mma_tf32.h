// tf32_of: an f32 rounded to the 11 bits of tf32, by its bits; halves away from zero, as cvt.rna does.

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
INLINE unsigned tf32_of(unsigned bits) {
    unsigned rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(bits_float(bits)));
    return rounded;
}
#else
INLINE unsigned tf32_of(unsigned bits) {
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}
#endif
