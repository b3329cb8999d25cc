// winograd4, on GPUs and on CPU cores: where things lie in images, and the transforms along one side of a tile.
// value_t is a float, or a vector of them: what a thread transforms at once.
//
// The points 0, 1, -1, 2, -2 and infinity make tiles of 6 inputs: 4 outputs of 3 taps, or 2 of 5. The input's
// transform is the same for both, the output's stops earlier.

#if SIZE_R == 3  // outputs of a tile: down, across
#define SIDE_P 4
#else
#define SIDE_P 2
#endif
#if SIZE_S == 3
#define SIDE_Q 4
#else
#define SIDE_Q 2
#endif
#define TILES_IMAGE (TILES_P * TILES_Q)
#define TILES_ALL (SIZE_N * TILES_IMAGE)
#define PLACE(n, c, h, w, channels, rows, columns, nhwc)                          \
    (nhwc ? (((offset_t)(n) * (rows) + (h)) * (columns) + (w)) * (channels) + (c) \
          : (((offset_t)(n) * (channels) + (c)) * (rows) + (h)) * (columns) + (w))
#define X_AT(n, c, h, w) PLACE(n, c, h, w, SIZE_C, SIZE_H, SIZE_W, X_NHWC)
#define Z_AT(n, k, p, q) PLACE(n, k, p, q, SIZE_K, SIZE_P, SIZE_Q, Y_NHWC)
#define Y_AT(n, k, p, q) PLACE(n, k, p, q, SIZE_K, SIZE_YP, SIZE_YQ, Y_NHWC)

// Six values through B'.
INLINE void transform6(value_t *to, value_t d0, value_t d1, value_t d2, value_t d3, value_t d4, value_t d5) {
    value_t even = d4 - 4.0f * d2, odd = d3 - 4.0f * d1, twice = 2.0f * (d3 - d1);
    to[0] = 4.0f * d0 - 5.0f * d2 + d4;
    to[1] = even + odd;
    to[2] = even - odd;
    to[3] = d4 - d2 + twice;
    to[4] = d4 - d2 - twice;
    to[5] = 4.0f * d1 - 5.0f * d3 + d5;
}

// Six values through A': `count` outputs.
INLINE void transform_back(int count, value_t *to, value_t m0, value_t m1, value_t m2, value_t m3, value_t m4, value_t m5) {
    value_t minus = m1 - m2, plus = m1 + m2, minus2 = m3 - m4, plus2 = m3 + m4;
    to[0] = m0 + plus + plus2;
    to[1] = minus + 2.0f * minus2;
    if (count == 4) to[2] = plus + 4.0f * plus2, to[3] = minus + 8.0f * minus2;
    to[count - 1] += m5;
}
