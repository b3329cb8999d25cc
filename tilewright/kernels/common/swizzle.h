// Where an operand of the tensor cores lies in a tile of shared memory; pack.cu lays filters out so.
//
// A tile has rows of CHUNKS chunks of 16 bytes, along the sum. Chunk c of a row stands at c ^ SWIZZLE(row), so
// that any chunk of 8 rows, and any 128 bytes of neighbouring rows, lie in different banks.
//
//   CHUNKS = 4:   row 0: 0 1 2 3   row 2: 1 0 3 2   row 4: 2 3 0 1   row 6: 3 2 1 0   (rows 1 3 5 7 likewise)
//
// The 16 rows of a piece on the N side are taken in another order: row i is output COLUMN(i) of the piece, so
// that a thread, which gets columns 2t, 2t + 1, 2t + 8 and 2t + 9 of a product, holds four neighbours.
// The 16 rows of a piece on the M side may be: row i is output PAIR(i) of the piece, so that a thread, which gets rows
// t and t + 8 of a product, holds two neighbours.

#define SWIZZLE_PERIOD (CHUNKS < 8 ? CHUNKS : 8)
#define SWIZZLE(row) ((row) * SWIZZLE_PERIOD / 8 % SWIZZLE_PERIOD)
#define COLUMN(i) ((i) / 16 * 16 + (i) % 8 / 2 * 4 + (i) % 16 / 8 * 2 + (i) % 2)
#define PAIR(i) ((i) / 16 * 16 + (i) % 8 * 2 + (i) % 16 / 8)
