// half_of_e4m3: an e4m3 as an f16, by its bits. Both numbers are normal, or e4m3's is one of 7 denormals, n / 512.

INLINE unsigned short half_of_e4m3(unsigned bits) {
    unsigned sign = (bits & 0x80) << 8, size = bits & 0x7f;
    if (size == 0x7f) return sign | 0x7e00;
    if (size >= 8) return sign | (size << 7) + (8u << 10);
    return sign | float_half((float)(int)size * 0.001953125f);
}
