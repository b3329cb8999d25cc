// requantised: the i8 next to a scaled sum of i8 products; halves go to the even one. requantised4: four in a word.
//
// The sum is rounded to f32, so is its product with the scale; a NaN gives -128, and what i8 has no room for its
// nearest. Example: 5 * 0.5 = 2.5 gives 2, 7 * 0.5 = 3.5 gives 4.

INLINE float scaled(int sum, float scale) {
    const float v = (float)sum * scale;
    return v > -128.0f ? v : -128.0f;
}

#ifdef __CUDACC__  // conversions round, and cut off what i8 has no room for (cvt.pack: sm_72 and later)

INLINE signed char requantised(int sum, float scale) {
    int v;
    asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(v) : "f"(scaled(sum, scale)));
    return v;
}
INLINE unsigned requantised4(const int sum[4], const float scale[4]) {
    int v[4];
    unsigned word;
    UNROLL for (int i = 0; i < 4; i++) asm("cvt.rni.s32.f32 %0, %1;" : "=r"(v[i]) : "f"(scaled(sum[i], scale[i])));
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, 0;" : "=r"(word) : "r"(v[3]), "r"(v[2]));
    asm("cvt.pack.sat.s8.s32.b32 %0, %1, %2, %0;" : "+r"(word) : "r"(v[1]), "r"(v[0]));
    return word;
}

#else  // 12582912 = 1.5 * 2^23: added to a small f32 it leaves no bits for a fraction

INLINE signed char requantised(int sum, float scale) {
    float v = scaled(sum, scale);
    v = v < 127.0f ? v : 127.0f;
    return (signed char)(int)((v + 12582912.0f) - 12582912.0f);
}
INLINE unsigned requantised4(const int sum[4], const float scale[4]) {
    unsigned word = 0;
    for (int i = 0; i < 4; i++) word |= (unsigned)(unsigned char)requantised(sum[i], scale[i]) << 8 * i;
    return word;
}

#endif
