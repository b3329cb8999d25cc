// Numbers of f16, two for one of f32: v 2^shift = high + low / 2048, with 11 bits each.
//
//   shift_of       how far numbers are moved whose largest is `largest`, by its bits: to 2^14 .. 2^15, so that high is
//                  finite; by 126 at most
//   power          2^n, n = -126 .. 127
//   split_halves   v becomes high, by its bits as f16; low is returned
//   finite_size    the magnitude of a number by its bits, which are in the order of magnitudes; 0 of what is not finite
//   largest_of_block   the largest v of all threads of a block; `most` is shared
//   fresh_int      an int that another kernel has written
//
// Numbers down to 2^-28 of the largest keep 22 bits, as two of tf32 do. Of smaller ones high is a denormal of f16 (or
// 0) and low ends with 2^-24: they are off by 2^-36 after the move, 2^-50 of the largest. What is not finite has
// high = 0 and is in low alone, as in mma_tf32.h: an infinity times what is 2^39 times less than the largest may be
// NaN.

INLINE int shift_of(int largest) { return min(126, 141 - (largest >> 23)); }

INLINE float power(int n) { return bits_float((unsigned)(n + 127) << 23); }

INLINE unsigned split_halves(unsigned *v, int shift) {
    const float moved = bits_float(*v) * power(shift);
    const unsigned short high = fabs(moved) < 65520.0f ? float_half(moved) : 0;
    *v = high;
    return float_half((moved - half_float(high)) * 2048.0f);
}

INLINE int finite_size(unsigned bits) {
    bits &= 0x7fffffffu;
    return bits < 0x7f800000u ? (int)bits : 0;
}

INLINE int fresh_int(const GLOBAL int *p) { return (int)float_bits(load_fresh((const GLOBAL acc_t *)p)); }

INLINE int largest_of_block(int v, SHARED int *most) {
    if (THREAD(0) == 0) *most = 0;
    BARRIER();
    atomic_most(most, v);
    BARRIER();
    return *most;
}
