// How an operand of wgmma lies in shared memory: rows of `width` pieces of 16 bytes, 8 rows one after the other, and
// the next 8 behind them.
//
//   swizzled     where byte `at` of the rows is. Of 2, 4 or 8 pieces a row, 1, 2 or 3 bits of a piece's number are
//                turned by the bits of its place from bit 7 on: piece c of row i of 128 bytes is at
//                128 i + 16 (c ^ i % 8). The tensor cores do this to the place itself: any row can be the first one.
//   piece_of     which of the 2^14 pieces of shared memory is at `place` (in a cluster, addresses have the block's
//                number in their high bits)
//   descriptor   what a product is told (CUDA): `low` is the piece that the rows begin with, and from bit 16 on how
//                many pieces behind it the other side of the product's 32 bytes is, if rows have 1 piece; where
//                columns lie along the rows, the next 8 * width columns; else 1. From product to product one number is
//                added to it.

INLINE int swizzled(int at, int width) { return at ^ (at >> 7 & (width - 1)) << 4; }

#ifdef __CUDACC__
INLINE unsigned piece_of(unsigned place) { return place >> 4 & 0x3fff; }
INLINE unsigned long long descriptor(unsigned low, int width) {
    const unsigned long long kind = width == 8 ? 1 : width == 4 ? 2 : width == 2 ? 3 : 0;
    return kind << 62 | 8ull * width << 32 | low;
}
#endif
