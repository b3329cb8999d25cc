// requantised: the i8 next to a scaled sum of i8 products; halves go to the even one.
//
// The sum is rounded to f32, so is its product with the scale; a NaN gives -128. 12582912 = 1.5 * 2^23: added to a
// small f32 it leaves no bits for a fraction. Example: 5 * 0.5 = 2.5 gives 2, 7 * 0.5 = 3.5 gives 4.

INLINE signed char requantised(int sum, float scale) {
    float v = (float)sum * scale;
    v = v > -128.0f ? v : -128.0f;
    v = v < 127.0f ? v : 127.0f;
    return (signed char)(int)((v + 12582912.0f) - 12582912.0f);
}
