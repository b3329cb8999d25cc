// How the mma family stages PLANES: x in nchw as it is, 1x1. A step is CHUNKS * EACH channels, each of them a row of
// pixels in shared memory, and a lane gathers the words of its fragments from there, number by number.
//
//   A row is copied 16 bytes at a time, from where 16 bytes begin in memory: up to EACH - 1 numbers early, since a
//   plane of 7x7 begins anywhere. How many, its lead, is the same for channels that are EACH apart.
//
//          x        .. c-1 | c: the pixels of the tile | c+1 ..         EACH = 8 (f16), 7x7, q0 = 0
//   channel 0       [0 1 2 3 4 5 6 7][8 ..                              lead 0
//   channel 1       [. 0 1 2 3 4 5 6][7 ..                              lead 49 % 8 = 1
//   channel 2       [. . 0 1 2 3 4 5][6 ..                              lead 98 % 8 = 2
//
// What a piece holds of other channels belongs to columns of outputs that nobody stores. A tile is of one image, but
// where planes are whole pieces, which are of one image each: there the pixels of all images are tiled together.
// Banks: word t of a fragment's column g is channels IN_WORD t .. of pixel COLUMN(g). PITCH puts these channels of
// neighbouring t 8 banks apart (f16), so that only what differs in lead meets.

#define IN_WORD (4 / NUMBER_BYTES)                                // numbers; 0 of f64
#define LEADS (P * Q % EACH != 0)                                 // whether rows begin early
#define ONE_IMAGE LEADS                                           // whether a tile is
#define NEEDED (PIXELS < PB ? PIXELS : PB)                        // pixels of a row
#define PIECES ((NEEDED + (LEADS ? 2 * EACH - 2 : EACH - 1)) / EACH)  // of 16 bytes, of a row
#define APART (IN_WORD == 0 || IN_WORD == 1 || (IN_WORD == 4 && PB / 16 % 2) ? 32 : 16)
#define PITCH (PB * NUMBER_BYTES + APART)
#define ROWS (CHUNKS * EACH)
#define PLANE_ITEMS (ROWS * PIECES)
#define X_COPIES CEIL_DIV(PLANE_ITEMS, THREADS)
#define X_BYTES (ROWS * PITCH)                                    // of a stage
#define X_NUMBERS ((offset_t)N * GROUPS_ * C * (P * Q))

typedef struct {
    const GLOBAL unsigned char *x;
    offset_t at[X_COPIES];  // where this thread's copies of step 0 begin, in bytes
} InputSource;

// The number of x that the tile's row of channel 0 begins with.
INLINE offset_t first_number(Place at) {
    return ((offset_t)at.n * GROUPS_ + at.group) * ((offset_t)C * (P * Q)) + at.q0;
}

INLINE InputSource find_input(const GLOBAL x_t *x, Place at) {
    InputSource from;
    from.x = (const GLOBAL unsigned char *)x;
    UNROLL for (int j = 0; j < X_COPIES; j++) {
        const int item = THREAD(0) + j * THREADS;
        const int piece = item % PIECES, px = at.q0 + piece * EACH;
        offset_t first = first_number(at);
        if (!ONE_IMAGE) first += (offset_t)(px / (P * Q)) * GROUPS_ * C * (P * Q) + px % (P * Q) - px;
        from.at[j] = ((first + (offset_t)(item / PIECES) * (P * Q)) / EACH + piece) * 16;
    }
    return from;
}

// Copy the input of a step to `to`, if it comes before `last`: nothing from behind x, and zeros for channels that do
// not exist (the filter's zeros times anything, NaN too, would be added up else).
INLINE void stage_x(shared_t to, const InputSource *from, int step, int last) {
    if (step >= last) return;
    UNROLL for (int j = 0; j < X_COPIES; j++) {
        const int item = THREAD(0) + j * THREADS, row = item / PIECES;
        if (PLANE_ITEMS % THREADS && item >= PLANE_ITEMS) continue;
        const offset_t at = from->at[j] + (offset_t)step * (ROWS * NUMBER_BYTES) * (P * Q);
        const offset_t left = X_NUMBERS * NUMBER_BYTES - at;
        int bytes = left < 16 ? (int)left : 16;
        if ((C % ROWS && step * ROWS + row >= C) || left < 0) bytes = 0;
        copy_part(to + row * PITCH + item % PIECES * 16, from->x + at, bytes);
    }
}

// Where row c of the channels of a step begins, `lead` numbers early where c is 0.
INLINE int row_at(int lead, int c) { return c * PITCH + (lead + c % EACH * (P * Q % EACH)) % EACH * NUMBER_BYTES; }

#ifndef __CUDACC__
typedef struct {
    int lead, pixel;
} Rows;
INLINE Rows find_rows(Place at, int n, int lane) {
    Rows rows = {(int)(first_number(at) % EACH), n + lane % 4 * 4};
    return rows;
}
#endif
#if PRODUCTS == DOUBLE
#include "mma_planes_f64.h"
#else
#include "mma_planes_words.h"
#endif
