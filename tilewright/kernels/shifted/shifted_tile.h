// Where a block and a lane of the shifted family work, and what lies in shared memory.
//
//   0           STAGES filters of STEP_BYTES, as they are packed          at the end overlaid by the tile of sums,
//   X_FROM      X_STAGES runs: of IMAGES images CHANNELS planes,          [channel of KB][pixel], TILE_PITCH of f32;
//               PITCH bytes of each                                       not if the block stays (STAYS)
//   BARS_FROM   barriers
//
// These sizes and those of tiles, runs and steps (TILE_PIXELS, WIDE, PIXELS, P_ROWS, TILES, K_TILES; CHANNELS, RUNS,
// OF_STEP, STEPS; SPAN_COLUMNS, ROW_W) are from shape.py and tile.py.
//
//   Block find_block   its tile: images from n0 on, rows from p0 on, columns from q0 on, channels from k0 on; its
//                      share of the sum
//   Pixel find_pixel   which output a pixel of the tile is
//   Lane find_lane     its two pixels: where they are in a plane of the first tap, and which taps see them

#include "epilogue.h"
#include "lane_sums.h"
#include "operand.h"

#define THREADS (128 * (TEAMS + 1))
#define EACH (16 / (int)sizeof(in_t))        // numbers of 16 bytes
#define RUN_OF_STEP(step) ((step) * OF_STEP / R)
#define P_TILES CEIL_DIV(P_ROWS, ROWS)
#define Q_TILES CEIL_DIV(Q, COLUMNS)
#define W_BYTES (KB * CHUNKS * 16)           // of a tap
// Rows of the image under the outputs of a pixel.
#define SEEN (TALL > 1 ? (TALL - 1) * STR_H + R : R)
// Bytes that so many rows of pixels see of a plane, from the piece of 16 bytes on where that begins. Of parts of rows a
// piece comes of each row (SPLIT), if rows begin at pieces of 16 bytes; then ROW_W numbers, all it may take, are from
// one to the next in shared memory. Else all between the first and the last number comes at once.
#define SPAN_ROWS(rows) (((rows) * TALL - 1) * STR_H + (R - 1) * DIL_H)  // from the first row to the last
#define ROOM(rows) ((SPAN_ROWS(rows) * ROW_W + SPAN_COLUMNS + 2 * (EACH - 1)) / EACH * 16)
// The block's tiles: one, or with STAYS one after the other, all of the same channels, since GROUPS(0) is a multiple of
// K_TILES.
#define EACH_TILE(id) int id = GROUP(0); STAYS ? id < TILES : id == GROUP(0); id += STAYS ? GROUPS(0) : 1
#define FIRST_STEP(share) (STEPS * (share) / SC)
#define CHANNELS_OF(run) (C % CHANNELS == 0 ? CHANNELS : min(CHANNELS, C - (run) * CHANNELS))

// PAIRED: where rows are an even number of pixels (EVEN), the first tap's is the second half of a word (ODD) everywhere
// or nowhere, and a word is in the image, or outside of it, with both halves. Elsewhere words are moved by a half where
// they must be, one more of them. Where pixel h is under tap s: halves from the first word's on, of WORDS words.
#define EVEN (W % 2 == 0)
#define ODD (EVEN && PAD_L % 2)
#define HALF_OF(s, h) (ODD + (s) * DIL_W + (h) * STR_W)
#define WORDS (HALF_OF(S - 1, 1) / 2 + 1)
// With stride 2 the lanes of a warp read every other word: two meet in each bank. None do if a lane reads words k and
// k + 1 in one load of 8 bytes. That takes an address that is a multiple of 8 bytes, and both words on the same side of
// the image's edge.
#define TWO(k) (STR_W == 2 && W % 4 == 0 && (k) % 2 == ((PAD_L + ODD) % 4 > 0) && (k) + 1 < WORDS)

typedef struct {
    int n0, p0, q0, k0, images, channels;  // what is first, and how many there are
    int ahead, p1;                         // pixels of image n0 before the tile; last row of the last image
    int tile, sc, first, last;             // tile of channels; share of the sum, its steps
} Block;

INLINE Block find_block(int id) {
    Block b;
    const int place = id / SC / K_TILES;
    b.sc = id % SC;
    b.tile = id / SC % K_TILES;
#if ACROSS
    const int last = min((place + 1) * TILE_PIXELS, N * PIXELS) - 1;
    b.n0 = place * TILE_PIXELS / PIXELS;
    b.ahead = place * TILE_PIXELS % PIXELS;
    b.p0 = b.ahead / WIDE;
    b.q0 = 0;
    b.images = last / PIXELS - b.n0 + 1;
    b.p1 = last % PIXELS / WIDE;
#else
    b.q0 = place % Q_TILES * COLUMNS;
    b.p0 = place / Q_TILES % P_TILES * ROWS;
    b.n0 = place / Q_TILES / P_TILES * IMAGES;
    b.ahead = 0;
    b.images = min(IMAGES, N - b.n0);
    b.p1 = min(b.p0 + ROWS, P_ROWS) - 1;
#endif
    b.k0 = b.tile * KB;
    b.channels = min(KB, K - b.k0);
    b.first = FIRST_STEP(b.sc), b.last = FIRST_STEP(b.sc + 1);
    return b;
}

// Rows of pixels that the tile has of an image of its own; element of a plane under the first tap, or before it.
#define FIRST_ROW(b, image) (ACROSS && (image) ? 0 : (b)->p0)
#define LAST_ROW(b, image) (ACROSS && (image) < (b)->images - 1 ? P_ROWS - 1 : (b)->p1)
#define ROWS_OF(b, image) (LAST_ROW(b, image) - FIRST_ROW(b, image) + 1)
// Where an image is: its planes behind those of the ones before, or, ACROSS, in each plane behind the one before.
#if ACROSS
#define IMAGE_AT(b, image) ((image) ? ROOM(P_ROWS - (b)->p0) + ((image) - 1) * ROOM(P_ROWS) : 0)
#else
#define IMAGE_AT(b, image) ((image) * (CHANNELS * PITCH))
#endif
#define START(b, image) ((FIRST_ROW(b, image) * (TALL * STR_H) - PAD_T) * W + (b)->q0 * STR_W - PAD_L)

typedef struct {
    int image, p, q, to;  // image of the tile; row of pixels, column, number of a plane of y of its first output
    int in_rows, there;   // whether there are such an image and row; such an output, of the first row
} Pixel;

INLINE Pixel find_pixel(const Block *b, int px) {
    Pixel one;
    const int p0 = ACROSS ? 0 : b->p0, at = b->ahead + px;
    one.image = IMAGES == 1 ? 0 : at / PIXELS;
    const int of_image = at - one.image * PIXELS, in_tile = px < TILE_PIXELS && (IMAGES == 1 || one.image < b->images);
    one.p = p0 + of_image / WIDE, one.q = b->q0 + of_image % WIDE;
    one.to = WIDE == Q && TALL == 1 ? p0 * Q + of_image : one.p * (TALL * Q) + one.q;
    one.in_rows = in_tile && one.p < P_ROWS;
    one.there = WIDE == Q ? in_tile && one.to < P * Q : one.in_rows && one.q < Q;
    return one;
}

// Images begin at pieces of 16 bytes, planes anywhere, copies at pieces: how many elements before channel c's START.
#define LEAD(b, image, c) ((int)((c) * (unsigned)(H * W) + START(b, image)) & (EACH - 1))

// Which channel of a run a lane has in either half of product i, behind those of the lanes before it (LANE_CHANNELS
// each): of numbers of 2 bytes that one and the next.
#define LANE_CHANNELS (EACH / 4)
#define CHANNEL_OF(i, half) ((i) * (2 * EACH) + (half) * EACH)

typedef struct {
    int image[2], place[2];  // of each pixel: image of the tile; element behind START under the first tap
    unsigned rows, columns;  // bit r, and 16 + r of the second pixel: row r of SEEN meets the image; column s
    int t;                   // lane of the four that share them
    int from[2];  // bytes from a run's channel t * LANE_CHANNELS to each pixel; PAIRED: in that channel and the next
} Lane;

// Which pixel of the tile pixel h of a lane is, which has rows lane / 4 and lane / 4 + 8 of its warp's 16.
#define PIXEL_OF(warp, lane, h) \
    (PAIRED ? (warp) * 16 + (lane) / 4 * 2 + (h) : (warp) * 16 + (lane) / 4 + (h) * 8)
INLINE Lane find_lane(const Block *b, int warp, int lane) {
    Lane me;
    me.t = lane % 4, me.rows = 0, me.columns = 0;
    UNROLL for (int h = 0; h < 2; h++) {
        const Pixel one = find_pixel(b, PIXEL_OF(warp, lane, h));
        const int is_one = one.in_rows, image = is_one ? one.image : 0;
        me.image[h] = image;
        me.place[h] = is_one ? (one.p - FIRST_ROW(b, image)) * (TALL * STR_H * ROW_W) + (one.q - b->q0) * STR_W : 0;
        UNROLL for (int r = 0; r < SEEN; r++) {
            const int row = one.p * (TALL * STR_H) + r * DIL_H - PAD_T;
            me.rows |= (unsigned)(is_one && row >= 0 && row < H) << (16 * h + r);
        }
        UNROLL for (int s = 0; s < S; s++) {
            const int column = one.q * STR_W + s * DIL_W - PAD_L;
            me.columns |= (unsigned)(column >= 0 && column < W) << (16 * h + s);
        }
    }
    UNROLL for (int i = 0; i < 2; i++) {
        const int h = PAIRED ? 0 : i, lead = LEAD(b, me.image[h], me.t * LANE_CHANNELS + (PAIRED ? i : 0));
        me.from[i] = IMAGE_AT(b, me.image[h]) + (me.place[h] + lead - (PAIRED && ODD)) * (int)sizeof(in_t);
    }
    return me;
}

// Whether row r of SEEN, column s of the filter are in the image under a lane's pixel h.
#define SEES(me, h, r, s) (((me).rows >> (16 * (h) + (r)) & (me).columns >> (16 * (h) + (s)) & 1) != 0)
// Byte of a plane that a tap is behind the first one.
#define TAP_BYTES(r, s) (((r) * (DIL_H * ROW_W) + (s) * DIL_W) * (int)sizeof(in_t))
// What a block reads of channel c of the first run, and with it of the planes beside it: of `rows` rows of W elements,
// or of all of them at once, `count` elements each, whole pieces of 16 bytes, from `low` of the image on; `at`: where
// the first of them lies behind the plane's place in a run. Of other runs' channels it reads the same, so many planes
// further (RUN_OF).
typedef struct {
    int low, count, at, rows;
} Piece;
INLINE Piece find_piece(const Block *b, int image, int c) {
    const int plane = c * (H * W), lead = LEAD(b, image, c);
    Piece piece;
#if SPLIT
    const int row = FIRST_ROW(b, image) * (TALL * STR_H) - PAD_T, column = b->q0 * STR_W - PAD_L - lead;
    const int top = max(row, 0), left = max(column, 0);
    piece.low = plane + top * W + left;
    piece.count = min(column + ROW_W, W) - left;
    piece.at = (top - row) * ROW_W + left - column;
    piece.rows = min(row + SPAN_ROWS(1) + 1, H) - top;
#else
    const int first = plane + START(b, image) - lead;
    const int end = first + ROOM(ROWS_OF(b, image)) / (int)sizeof(in_t);
    piece.low = max(first, plane / EACH * EACH);
    piece.count = min(end, CEIL_DIV(plane + H * W, EACH) * EACH) - piece.low;
    piece.at = piece.low - first;
    piece.rows = 1;
#endif
    return piece;
}
#define RUN_OF(b, image, run) (((offset_t)((b)->n0 + (image)) * C + (run) * CHANNELS) * (H * W))
// Byte of the filter where a step begins.
#define W_OF(b, step) (((offset_t)(b)->tile * STEPS + (step)) * STEP_BYTES)
