// The filter for the products of the kn2row family: words [chunk][step][piece][lane][4], a lane's four of a product.
//
//   word i of a lane  of tap 16 piece + lane / 4 + i % 2 * 8, and of channel word
//                     16 chunk + lane % 4 * 4 + step * 2 + i / 2
//
// A tap is one of K x R x S; a channel word is IN_WORD channels, zeros past the last. Behind the filter come four words
// of zeros, for pixels that do not exist.

#include "loop.h"
#include "types.h"
#include "filter.h"
#include "kn2row_words.h"

#define CHUNKS ((CG + 16 * IN_WORD - 1) / (16 * IN_WORD))
#define PIECES ((KG * FILTER_TAPS + 15) / 16)
#define PACKED ((offset_t)CHUNKS * 2 * PIECES * 128 + 4)

KERNEL(pack)(GLOBAL const in_t *RESTRICT w, GLOBAL unsigned *RESTRICT packed) {
    FOR_EACH(item, PACKED) {
        const int i = item % 4, lane = item / 4 % 32, piece = item / 128 % PIECES, step = item / 128 / PIECES % 2;
        const int chunk = item / 128 / PIECES / 2, tap = 16 * piece + lane / 4 + i % 2 * 8;
        const int k = tap / FILTER_TAPS, first = (16 * chunk + lane % 4 * 4 + step * 2 + i / 2) * IN_WORD;
        unsigned word = 0;
        for (int j = 0; j < IN_WORD; j++)
            if (k < KG && first + j < CG)  // nor is a chunk past the last
                word |= BITS_OF(w[((offset_t)k * CG + first + j) * FILTER_TAPS + tap % FILTER_TAPS])
                        << (8 * NUMBER_BYTES * j);
        packed[item] = word;
    }
}
