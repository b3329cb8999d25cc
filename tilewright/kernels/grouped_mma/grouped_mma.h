// What the kernel of the grouped_mma family and its packer must agree on.
//
//   BW NT PARTS     bundles of a warp; pieces of 8 of their output channels that it makes, one of PARTS of a bundle's
//   PIECES          of 16 bytes of a pixel's inputs, of a bundle
//   EACH            numbers of a piece; BITS_OF one, in the lowest bits of a word
//   KPIECES         pieces along the sum, tap by tap
//   W_WORDS         a lane's registers of the filter, in fours; W_AT(j, at): of outputs j, piece `at` of the sum

#include "alternated.h"

#define NUMBER_BYTES (DTYPE == 4 ? 1 : 2)
#define EACH (16 / NUMBER_BYTES)
#define BITS_OF(v) ((unsigned)(v) % (1u << 8 * NUMBER_BYTES))
#define KPIECES (TAPS * PIECES)
#define W_WORDS ((KPIECES * NT * BW + 3) / 4 * 4)
#define W_AT(j, at) ((j) * KPIECES + (at))
