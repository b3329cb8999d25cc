// Where a block and a lane of the pointwise family work, and what lies in shared memory.
//
//   0           filters of W_BYTES, as they are packed: of STAGES steps, or of all (KEEPS)
//   X_FROM      STAGES steps of pixels, X_BYTES each: [span of SPANS][row of CHANNELS][ROW_BYTES] (SPOT)
//   OUT_FROM    of each team what goes to y next (pointwise_store.h)
//   BARS_FROM   barriers
//
// These sizes, CHANNELS, STEPS, SPAN_PIXELS, SPANS, PLACES and K_TILES are from tile.py.
//
//   Origin find_origin   of a span of a tile: its image, and its first pixel in a plane
//   Lane find_lane       where its two pixels are in a step's spans

#include "epilogue.h"
#include "lane_sums.h"
#include "operand.h"

#define THREADS (128 * TEAMS + 128)
#define OF_PLANE CEIL_DIV(HW, SPAN_PIXELS)
#define OF_TEAM (64 / SPAN_PIXELS)       // spans
// A block's tiles, or a team's of them (TURNS), all of the same channels, since GROUPS(0) is a multiple of K_TILES.
#define EACH_TILE(id) int id = GROUP(0); id < PLACES * K_TILES; id += GROUPS(0)
#define EACH_OF_TEAM(id, team)                                                                 \
    int id = GROUP(0) + (TURNS ? (team) * GROUPS(0) : 0); id < PLACES * K_TILES; id += (TURNS ? TEAMS : 1) * GROUPS(0)
#define SPANS_OF(team) (TURNS ? 0 : (team) * OF_TEAM)  // which of a tile's spans is a team's first
#define FIRST_K (GROUP(0) % K_TILES * KB)
#define W_OF(step) (((offset_t)(GROUP(0) % K_TILES) * STEPS + (step)) * W_BYTES)
#define SPAN_BYTES (CHANNELS * ROW_BYTES)

typedef struct {
    int image, start;  // image N: there is none
} Origin;

INLINE Origin find_origin(int id, int number) {
    const int at = id / K_TILES * SPANS + number;
    Origin origin;
    origin.image = min(at / OF_PLANE, N);
    origin.start = at % OF_PLANE * SPAN_PIXELS;
    return origin;
}

// The copy engine begins at multiples of 16 bytes of x. Where planes are no such multiples, STRANDS of them are, and it
// brings each strand of a step, every STRANDS-th channel, as a box of its own, from AHEAD bytes before a span on. So
// rows are strand by strand: of which channel, STRAND_CHANNEL says. The filter is packed in that order, too.
#define OF_STRAND (CHANNELS / STRANDS)  // rows, a multiple of 8
#define STRAND_CHANNEL(row) ((row) % OF_STRAND * STRANDS + (row) / OF_STRAND)
#define AHEAD_OF(strand) ((strand) * PLANE_IN * (int)sizeof(in_t) % 16)
#define AHEAD(row) AHEAD_OF((row) / OF_STRAND)
#define BOX_BYTES (OF_STRAND * ROW_BYTES)

// Where byte `byte` of row `row` of a span is, besides AHEAD. So that pieces of 16 bytes of different rows are in
// different banks, rows of 128 bytes, as many as all banks have, are swizzled: the piece's number is xor-ed with the
// row's, modulo 8. Rows of strands are a piece longer instead.
#define SPOT(row, byte) (STRANDS > 1 ? (row) * ROW_BYTES + (byte) : (row) * 128 + ((byte) ^ (row) % 8 * 16))

// Which of a team's 64 pixels a lane has as row lane / 4 + 8 h of its warp's 16 (h: 0 or 1). In one load a warp reads
// four channels, eight lanes two pieces of 16 bytes of each, and no two of the eight pieces may meet in a bank. So the
// two pieces are side by side where the channels are two apart (PAIRED), four apart where they follow each other.
#define PIXEL_OF(warp, lane, h) \
    (PAIRED ? (warp) * 16 + (lane) / 4 * 2 + (h) : (h) * 32 + (lane) / 16 * 16 + (warp) * 4 + (lane) / 4 % 4)
// Which row of a span a lane has in either half of product i, behind those of the lanes before it (LANE_CHANNELS
// each): of numbers of 2 bytes that one and the next.
#define LANE_CHANNELS (PAIRED ? 2 : 1)
#define ROW_OF(i, half, t) (((i) * 2 + (half)) * (4 * LANE_CHANNELS) + (t) * LANE_CHANNELS)
