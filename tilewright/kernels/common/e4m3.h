// half_of_e4m3: an e4m3 as an f16, by its bits. Both numbers are normal, or e4m3's is one of 7 denormals, n / 512.
// float_of_e4m3: as an f32. Its exponent and fraction, where those of an f32 lie, are the number times 2^-120. Other
// devices than CUDA's may take a denormal f32 for 0: there denormals are made of whole numbers.
//
// e4m3: a sign, 4 bits of exponent, 3 of fraction; 0x7f and 0xff are NaN, there is no infinity. Example: 0x38 is 1.0,
// 0x7e is 448.

INLINE unsigned short half_of_e4m3(unsigned bits) {
    unsigned sign = (bits & 0x80) << 8, size = bits & 0x7f;
    if (size == 0x7f) return sign | 0x7e00;
    if (size >= 8) return sign | (size << 7) + (8u << 10);
    return sign | float_half((float)(int)size * 0.001953125f);
}
INLINE float float_of_e4m3(unsigned bits) {
#ifdef __CUDACC__
    float v = bits_float((bits & 0x80) << 24 | (bits & 0x7f) << 20) * 1.329227996e36f;
    return (bits & 0x7f) == 0x7f ? bits_float(0x7fc00000u) : v;
#else
    unsigned size = bits & 0x7f, normal = size == 0x7f ? 0x7fc00000u : (size << 20) + (120u << 23);
    float v = size < 8 ? (float)(int)size * 0.001953125f : bits_float(normal);
    return bits & 0x80 ? -v : v;
#endif
}
