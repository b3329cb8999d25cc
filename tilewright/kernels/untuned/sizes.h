// Where elements lie, for kernels that a layer is spelt out to by sizes() of packing.py.
//
//   X_AT(n, c, h, w)   in x
//   Z_AT(n, k, p, q)   in the sums and z: P x Q pixels
//   Y_AT(n, k, p, q)   in y, which has fewer where there is a pool
//
// Pixels of an image may be counted along one row: Z_AT(n, k, 0, pixel).

#define PLACE(n, c, h, w, channels, rows, columns, nhwc)                          \
    (nhwc ? (((offset_t)(n) * (rows) + (h)) * (columns) + (w)) * (channels) + (c) \
          : (((offset_t)(n) * (channels) + (c)) * (rows) + (h)) * (columns) + (w))
#define X_AT(n, c, h, w) PLACE(n, c, h, w, SIZE_C, SIZE_H, SIZE_W, X_NHWC)
#define Z_AT(n, k, p, q) PLACE(n, k, p, q, SIZE_K, SIZE_P, SIZE_Q, Y_NHWC)
#define Y_AT(n, k, p, q) PLACE(n, k, p, q, SIZE_K, Y_P, Y_Q, Y_NHWC)
