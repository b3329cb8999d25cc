// Where a block and a lane of the shifted family work, and what lies in shared memory.
//
//   0           STAGES filters of W_BYTES, as they are packed             at the end overlaid by the tile of sums,
//   X_FROM      X_STAGES runs: of IMAGES images CHANNELS planes,          [channel of KB][pixel], TILE_PITCH of f32
//               PITCH bytes of each
//   BARS_FROM   barriers
//
//   Block find_block   its tile: images from n0 on, rows from p0 on, columns from q0 on, channels from k0 on; its
//                      share of the sum
//   Lane find_lane     its two pixels: where they are in a plane of the first tap, and which taps see them

#include "epilogue.h"
#include "done.h"

#define THREADS (128 * (TEAMS + 1))
#define EACH (16 / (int)sizeof(in_t))        // numbers of 16 bytes
#define CHANNELS (CHUNKS * EACH)             // of a run: CHUNKS pieces of 16 bytes, a row of the filter
#define RUNS ((C + CHANNELS - 1) / CHANNELS)
#define STEPS (RUNS * R)                     // a row of the filter over a run of channels each
#define K_TILES ((K + KB - 1) / KB)
#define P_TILES ((P + ROWS - 1) / ROWS)
#define Q_TILES ((Q + COLUMNS - 1) / COLUMNS)
#define PAIRED (PRODUCTS != TF32)            // a lane's two pixels are neighbours: words of 2 bytes have both
#define WIDE (PAIRED ? (COLUMNS + 1) / 2 * 2 : COLUMNS)  // from one row of the tile to the next
#define PIXELS (ROWS * WIDE)                 // of an image of the tile
#define W_BYTES (KB * CHUNKS * 16)           // of a tap
#define IMAGE_BYTES (CHANNELS * PITCH)
#define SUMS (KB / 2)                        // of a lane
#define FIRST_STEP(share) (STEPS * (share) / SC)
#define CHANNELS_OF(run) (C % CHANNELS == 0 ? CHANNELS : min(CHANNELS, C - (run) * CHANNELS))

// PAIRED: rows are an even number of pixels, so that the first tap's is the second half of a word (ODD) everywhere or
// nowhere, and a word is in the image, or outside of it, with both halves. Where pixel h is under tap s: halves from
// the first word's on, of WORDS words.
#define ODD (PAD_L % 2)
#define HALF_OF(s, h) (ODD + (s) * DIL_W + (h) * STR_W)
#define WORDS (HALF_OF(S - 1, 1) / 2 + 1)

typedef struct {
    int n0, p0, q0, k0, images, rows, columns, channels;  // what is first, and how many there are
    int tile, sc, first, last;                            // tile of channels; share of the sum, its steps
    int sharer;                                           // which of those that have the same filters
    int begin, lead;  // element of a plane where its run begins; where the first tap does
} Block;

INLINE Block find_block(int id) {
    Block b;
    b.sc = id % CLUSTER / SHARERS;
    b.sharer = id % SHARERS;
    b.tile = id / CLUSTER % K_TILES;
    const int place = id / CLUSTER / K_TILES * SHARERS + b.sharer;  // the last ones may have no image
    b.q0 = place % Q_TILES * COLUMNS;
    b.p0 = place / Q_TILES % P_TILES * ROWS;
    b.n0 = place / Q_TILES / P_TILES * IMAGES;
    b.k0 = b.tile * KB;
    b.images = max(min(IMAGES, N - b.n0), 0);
    b.rows = min(ROWS, P - b.p0);
    b.columns = min(COLUMNS, Q - b.q0);
    b.channels = min(KB, K - b.k0);
    b.first = FIRST_STEP(b.sc), b.last = FIRST_STEP(b.sc + 1);
    const int first = (b.p0 * STR_H - PAD_T) * W + b.q0 * STR_W - PAD_L;  // may be before the plane
    b.lead = first & (EACH - 1);
    b.begin = first - b.lead;
    return b;
}

typedef struct {
    int from[2];             // bytes from where a run lies to the pixels under the first tap; PAIRED: to their word
    unsigned rows, columns;  // bit r, and 16 + r of the second pixel: row r of the filter meets the image; column s
    int t;                   // lane of the four that share them
} Lane;

// Which pixel of the tile pixel h of a lane is, which has rows lane / 4 and lane / 4 + 8 of its warp's 16.
#define PIXEL_OF(warp, lane, h) \
    (PAIRED ? (warp) * 16 + (lane) / 4 * 2 + (h) : (warp) * 16 + (lane) / 4 + (h) * 8)
INLINE Lane find_lane(const Block *b, int warp, int lane) {
    Lane me;
    me.t = lane % 4, me.rows = 0, me.columns = 0;
    UNROLL for (int h = 0; h < 2; h++) {
        const int px = PIXEL_OF(warp, lane, h), image = px / PIXELS, p = px % PIXELS / WIDE, q = px % WIDE;
        const int is_one = image < b->images && p < b->rows;
        const int number = p * STR_H * W + q * STR_W + b->lead - (PAIRED && ODD ? 1 : 0);
        me.from[h] = is_one ? image * IMAGE_BYTES + number * (int)sizeof(in_t) : 0;
        UNROLL for (int r = 0; r < R; r++) {
            const int row = (b->p0 + p) * STR_H + r * DIL_H - PAD_T;
            me.rows |= (unsigned)(is_one && row >= 0 && row < H) << (16 * h + r);
        }
        UNROLL for (int s = 0; s < S; s++) {
            const int column = (b->q0 + q) * STR_W + s * DIL_W - PAD_L;
            me.columns |= (unsigned)(column >= 0 && column < W) << (16 * h + s);
        }
    }
    return me;
}

// Whether tap (r, s) of the filter sees the image under a lane's pixel h.
#define SEES(me, h, r, s) (((me).rows >> (16 * (h) + (r)) & (me).columns >> (16 * (h) + (s)) & 1) != 0)
// Byte of a plane that a tap is behind the first one.
#define TAP_BYTES(r, s) (((r) * (DIL_H * W) + (s) * DIL_W) * (int)sizeof(in_t))
// Which channel of the run a lane has in either half of product i, behind those of the lanes before it (LANE_CHANNELS
// each): of numbers of 2 bytes that one and the next.
#define LANE_CHANNELS (EACH / 4)
#define CHANNEL_OF(i, half) ((i) * (2 * EACH) + (half) * EACH)
// What a block reads of a plane: elements from LOW to before HIGH, whole pieces of 16 bytes.
#define LOW(b) max((b)->begin, 0)
#define HIGH(b) min((b)->begin + PITCH / (int)sizeof(in_t), H * W)
// Element of x where channel c of image `image` of the block begins; byte of the filter where a step does.
#define X_OF(b, image, c) (((offset_t)((b)->n0 + (image)) * C + (c)) * (H * W))
#define W_OF(b, step) (((offset_t)(b)->tile * STEPS + (step)) * (S * W_BYTES))
