// winograd4, on GPUs and on CPU cores: where things lie in images, and the transforms along one side of a tile.
// value_t is a float, or a vector of them: what a thread transforms at once.
//
// Tiles of 6 inputs make 4 outputs of 3 taps, or 2 of 5; tiles of 8 make 4 of 5, or 2 of 7. The input's transform is
// the same for all, the output's stops earlier: SIDE_P of them down, SIDE_Q across.

#define ELEMENTS (POINTS * POINTS)
#define TILES_IMAGE (TILES_P * TILES_Q)
#define TILES_ALL (SIZE_N * TILES_IMAGE)
#define PLACE(n, c, h, w, channels, rows, columns, nhwc)                          \
    (nhwc ? (((offset_t)(n) * (rows) + (h)) * (columns) + (w)) * (channels) + (c) \
          : (((offset_t)(n) * (channels) + (c)) * (rows) + (h)) * (columns) + (w))
#define X_AT(n, c, h, w) PLACE(n, c, h, w, SIZE_C, SIZE_H, SIZE_W, X_NHWC)
#define Z_AT(n, k, p, q) PLACE(n, k, p, q, SIZE_K, SIZE_P, SIZE_Q, Y_NHWC)
#define Y_AT(n, k, p, q) PLACE(n, k, p, q, SIZE_K, Y_P, Y_Q, Y_NHWC)
// Where a row, or column, of tiles begins: the outputs of a tile lie as far apart as the taps of the filter.
#define ROW_OF(t) ((t) / DILATION_H * (SIDE_P * DILATION_H) + (t) % DILATION_H)
#define COLUMN_OF(t) ((t) / DILATION_W * (SIDE_Q * DILATION_W) + (t) % DILATION_W)

#include "points.h"
