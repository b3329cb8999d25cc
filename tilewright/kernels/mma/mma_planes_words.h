// How the mma family reads fragments of words (fragments.h) from rows of pixels (mma_planes.h), number by number.

#ifdef __CUDACC__
typedef struct {
    int at[IN_WORD];  // of the channels of its word, from its pixel on
} Rows;
INLINE Rows find_rows(Place at, int n, int lane) {
    Rows rows;
    const int lead = (int)(first_number(at) % EACH), pixel = n + COLUMN(lane / 4);
    UNROLL for (int i = 0; i < IN_WORD; i++)
        rows.at[i] = row_at(lead, lane % 4 * IN_WORD + i) + pixel * NUMBER_BYTES;
    return rows;
}
// The fragment of piece `piece` at bytes 32 k of the sum, as read_n has it.
INLINE void read_planes(Fragment *to, shared_t tile, const Rows *rows, int piece, int k) {
    UNROLL for (int e = 0; e < 4; e++) {
        const int off = (2 * k + e % 2) * (EACH * PITCH) + (16 * piece + e / 2 * 2) * NUMBER_BYTES;
        to->r[e] = 0;
        UNROLL for (int i = 0; i < IN_WORD; i++)
            to->r[e] |= read_number(tile + rows->at[i] + off, NUMBER_BYTES) << i * 8 * NUMBER_BYTES;
    }
}
#else
INLINE void read_planes(Fragment *to, shared_t tile, const Rows *rows, int piece, int k) {
    for (int j = 0; j < 4; j++)
        for (int e = 0; e < 8; e++) {
            to->rows[j][e] = 0;
            for (int i = 0; i < IN_WORD; i++) {
                const int c = 2 * k * EACH + e * IN_WORD + i;
                shared_t from = tile + row_at(rows->lead, c) + (rows->pixel + 16 * piece + j) * NUMBER_BYTES;
                to->rows[j][e] |= read_number(from, NUMBER_BYTES) << i * 8 * NUMBER_BYTES;
            }
        }
}
#endif
