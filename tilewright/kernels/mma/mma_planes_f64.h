// How the mma family reads fragments of f64 from rows of pixels (mma_planes.h), as fragments_f64.h has them: a lane
// reads channel 4 k + lane % 4 of pixels 2 (lane / 4) and the next, at once if all rows begin where 16 bytes do, else
// one after the other, and two lanes meet in a bank.

#ifdef __CUDACC__
typedef struct {
    int at;  // of its first channel, from its first pixel on
} Rows;
INLINE Rows find_rows(Place at, int n, int lane) {
    Rows rows = {row_at((int)(first_number(at) % EACH), lane % 4) + (n + lane / 4 * 2) * NUMBER_BYTES};
    return rows;
}
INLINE void read_planes(Fragment *to, shared_t tile, const Rows *rows, int piece, int k) {
    const shared_t from = tile + rows->at + 4 * k * PITCH + 16 * piece * NUMBER_BYTES;
    if (LEADS) UNROLL for (int i = 0; i < 2; i++) to->r[i] = read_f64(from + i * NUMBER_BYTES);
    else read_two(to->r, from);
}
#else
INLINE void read_planes(Fragment *to, shared_t tile, const Rows *rows, int piece, int k) {
    for (int j = 0; j < 4; j++)
        for (int c = 0; c < 4; c++)
            to->rows[j][c] = read_f64(
                tile + row_at(rows->lead, 4 * k + c) + (rows->pixel + 16 * piece + j) * NUMBER_BYTES);
}
#endif
