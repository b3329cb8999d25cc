// Where a block and a lane of the planar family work, and what lies in shared memory.
//
//   0           STAGES filters of W_BYTES, as they are packed      at the end overlaid by the tile: outputs, or where
//   X_FROM      STAGES times X_BYTES: OF_STEP planes of an image   SC > 1 sums, [image][channel of KB][pixel]
//   TILE_FROM   the tile: 0, or where TURNS > 1 behind them
//   BARS_FROM   barriers
//
// These sizes, STEPS, K_TILES and TILES are from tile.py.
//
//   Block find_block   its tile, images from n0 on and channels from k0 on; its share of the sum
//   Lane find_lane     its two pixels, of which there may be one or none

#include "epilogue.h"
#include "lane_sums.h"
#include "operand.h"
#include "planar_order.h"

#define THREADS (128 * TEAMS + 32 * SENDER)
#define PAIRS ((HW + 1) / 2)             // of a plane
#define PLANE_BYTES (HW * (int)sizeof(in_t))
#define IMAGE_BYTES (OF_STEP * PLANE_BYTES)  // of a step
#define CHANNELS_OF(step) (C % OF_STEP == 0 ? OF_STEP : min(OF_STEP, C - (step) * OF_STEP))
#define FIRST_STEP(share) (STEPS * (share) / SC)

typedef struct {
    int n0, k0, images, channels;  // first image and channel of the tile, and how many there are
    int sc, first, count;          // share of the sum, its first step and how many
    int tile;                      // of channels
} Block;

INLINE Block find_block(int id) {
    Block b;
    b.sc = id % SC;
    b.tile = id / SC % K_TILES;
    b.n0 = id / SC / K_TILES * IMAGES;
    b.k0 = b.tile * KB;
    b.images = min(IMAGES, N - b.n0);
    b.channels = min(KB, K - b.k0);
    b.first = FIRST_STEP(b.sc);
    b.count = FIRST_STEP(b.sc + 1) - b.first;
    return b;
}

typedef struct {
    int image[2], pixel[2];  // of each of the two: image of the block, pixel of its plane
    int there[2];            // whether there is one; PAIRED: the second only beside the first
    int t;                   // lane of the four that share them
} Lane;

INLINE Lane find_lane(const Block *b, int warp, int lane) {
    const int pair = warp * 8 + lane / 4;
    Lane me;
    me.t = lane % 4;
    UNROLL for (int h = 0; h < 2; h++) {
        const int at = warp * 16 + lane / 4 + h * 8;
        me.image[h] = PAIRED ? pair / PAIRS : at / HW;
        me.pixel[h] = PAIRED ? pair % PAIRS * 2 + h : at % HW;
        me.there[h] = me.image[h] < b->images && me.pixel[h] < HW;
    }
    return me;
}

// Element of x: channel c of image `image` of the block; of y and z: pixel 0 of channel `row` of the tile.
#define X_OF(b, image, c) (((offset_t)((b)->n0 + (image)) * C + (c)) * HW)
#define Y_OF(b, image, row) (((offset_t)((b)->n0 + (image)) * K + (b)->k0 + (row)) * HW)
// Byte of the filter where a step of the block's channels begins.
#define W_OF(b, step) (((offset_t)(b)->tile * STEPS + (step)) * W_BYTES)
