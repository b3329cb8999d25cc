// The filter for the products of the kn2row family: words [row][chunk][step][piece][lane][4], a lane's four of a
// product; rows of the filter whose products are summed, SIZE_R / TAP_R.
//
//   word i of a lane  of tap 16 piece + lane / 4 + i % 2 * 8, and of channel word
//                     16 chunk + lane % 4 * 4 + step * 2 + i / 2
//
// A tap is one of K x TAP_R x S; a channel word is IN_WORD channels, zeros past the last. Behind the filter come four
// words of zeros, for pixels that do not exist.

#include "loop.h"
#include "types.h"
#include "filter.h"
#include "mma_words.h"

#define CHUNKS CEIL_DIV(CG, 16 * IN_WORD)
#define ROW_TAPS (TAP_R * SIZE_S)
#define PIECES ((KG * ROW_TAPS + 15) / 16)
#define PACKED ((offset_t)(SIZE_R / TAP_R) * CHUNKS * 2 * PIECES * 128 + 4)

KERNEL(pack)(GLOBAL const in_t *RESTRICT w, GLOBAL unsigned *RESTRICT packed) {
    FOR_EACH(item, PACKED) {
        const int i = item % 4, lane = item / 4 % 32, piece = item / 128 % PIECES, step = item / 128 / PIECES % 2;
        const int turn = item / 128 / PIECES / 2, chunk = turn % CHUNKS, tap = 16 * piece + lane / 4 + i % 2 * 8;
        const int k = tap / ROW_TAPS, rs = turn / CHUNKS * ROW_TAPS + tap % ROW_TAPS;
        const int first = (16 * chunk + lane % 4 * 4 + step * 2 + i / 2) * IN_WORD;
        unsigned word = 0;
        for (int j = 0; j < IN_WORD; j++)
            if (k < KG && first + j < CG && rs < FILTER_TAPS)  // nor is a row past the last
                word |= BITS_OF(w[((offset_t)k * CG + first + j) * FILTER_TAPS + rs])
                        << (8 * NUMBER_BYTES * j);
        packed[item] = word;
    }
}
