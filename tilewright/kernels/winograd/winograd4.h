// winograd4, on GPUs and on CPU cores, and winograd on these: where tiles lie, and the transforms along one side.
// value_t is a float, or a vector of them: what a thread transforms at once.
//
// Tiles of 4 inputs make 2 outputs of 3 taps; tiles of 6 make 4 of 3, or 2 of 5; tiles of 8 make 4 of 5, or 2 of 7.
// The input's transform is the same whatever the taps, the output's stops earlier: SIDE_P of them down, SIDE_Q
// across. Along a side of one tap nothing is transformed: POINTS_P or POINTS_Q is 1 there.

#include "sizes.h"

#define ELEMENTS (POINTS_P * POINTS_Q)
#define TILES_IMAGE (TILES_P * TILES_Q)
#define TILES_ALL (SIZE_N * TILES_IMAGE)
// Where a row, or column, of tiles begins: the outputs of a tile lie as far apart as the taps of the filter.
#define ROW_OF(t) ((t) / DILATION_H * (SIDE_P * DILATION_H) + (t) % DILATION_H)
#define COLUMN_OF(t) ((t) / DILATION_W * (SIDE_Q * DILATION_W) + (t) % DILATION_W)

#include "points.h"
