// Fragments of f64 and their sums, for tensor.h: of 16 rows x 32 bytes, four numbers, a lane has number lane % 4 of two
// rows, 2 (lane / 4) and the next.
//
// Which rows of a tile are rows t and t + 8 of a product is free, and so is which columns are those of its second half:
//
//   acc[4 h + 2 i + j]  row 2 (lane / 4) + i, column 4 (lane % 4) + 2 j + h
//
// So rows lie as they are, not by COLUMN, a thread still has four neighbours, and half a warp, whose 8 bytes a lane are
// read at once, reads rows 0 2 4 6 or 1 3 5 7: SWIZZLE has put their pairs of chunks into different banks where a row
// has eight chunks or more.
// Layouts: PTX ISA 8.x, "Matrix Fragments for mma.m8n8k4" and "m16n8k4" (f64).

#define SUMS_BYTES 32  // of four sums
#define SUM_ROW(lane, i) ((lane) / 4 * 2 + (i))
#define SUM_AT(i, n) ((n) % 2 * 4 + (i) * 2 + (n) / 2)

#ifdef __CUDACC__

typedef struct {
    double r[2];  // of its two rows
} Fragment;

INLINE double read_f64(shared_t from) {
    double v;
    asm volatile("ld.shared.f64 %0, [%1];" : "=d"(v) : "r"(from) : "memory");
    return v;
}
INLINE void read_two(double v[2], shared_t from) {
    asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];" : "=d"(v[0]), "=d"(v[1]) : "r"(from) : "memory");
}
INLINE int place_m(int row, int lane) {
    row += lane / 4 * 2;
    return row * ROW_BYTES + (lane % 4 / 2 ^ SWIZZLE(row % 8)) * 16 + lane % 2 * 8;
}
#define place_n place_m
INLINE void read_m(Fragment *to, shared_t tile, int place, int piece, int k, int lane) {
    UNROLL for (int i = 0; i < 2; i++)  // rows are even, then odd
        to->r[i] = read_f64((tile + place ^ 32 * k ^ 16 * SWIZZLE(i)) + (piece * 16 + i) * ROW_BYTES);
}
#define read_n read_m

INLINE void multiply(acc_t acc[8], const Fragment *a, const Fragment *b, int lane) {
    UNROLL for (int h = 0; h < 2; h++) {
        acc_t *to = acc + 4 * h;
#if __CUDA_ARCH__ >= 900
        asm("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+d"(to[0]), "+d"(to[1]), "+d"(to[2]), "+d"(to[3]) : "d"(a->r[0]), "d"(a->r[1]), "d"(b->r[h]));
#else
        UNROLL for (int i = 0; i < 2; i++)
            asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                : "+d"(to[2 * i]), "+d"(to[2 * i + 1]) : "d"(a->r[i]), "d"(b->r[h]));
#endif
    }
}

INLINE void write_sums(shared_t to, const acc_t v[4]) {
    UNROLL for (int i = 0; i < 4; i += 2)
        asm volatile("st.shared.v2.f64 [%0], {%1, %2};" ::"r"(to + 8 * i), "d"(v[i]), "d"(v[i + 1]) : "memory");
}
#if defined(CLUSTER) && CLUSTER > 1
INLINE void peer4(acc_t v[4], shared_t from, int rank) {
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(from) : "r"(rank));
    UNROLL for (int i = 0; i < 4; i += 2)
        asm volatile("ld.shared::cluster.v2.f64 {%0, %1}, [%2];"
                     : "=d"(v[i]), "=d"(v[i + 1]) : "r"(from + 8 * i) : "memory");
}
#else
INLINE void peer4(acc_t v[4], shared_t from, int rank) {
    UNROLL for (int i = 0; i < 4; i += 2) read_two(v + i, from + 8 * i);
}
#endif

#else

typedef struct {
    double rows[4][4];  // two rows of the M side, or four of the N side, in order
} Fragment;

#define place_m(row, lane) (row)
#define place_n(row, lane) (row)
INLINE double read_f64(shared_t from) { return *(const __local double *)from; }
INLINE void read_row(double to[4], shared_t tile, int row, int k) {
    for (int i = 0; i < 4; i++)
        to[i] = read_f64(tile + row * ROW_BYTES + ((2 * k + i / 2) ^ SWIZZLE(row % 8)) * 16 + i % 2 * 8);
}
INLINE void read_m(Fragment *to, shared_t tile, int place, int piece, int k, int lane) {
    for (int i = 0; i < 2; i++) read_row(to->rows[i], tile, place + 16 * piece + SUM_ROW(lane, i), k);
}
INLINE void read_n(Fragment *to, shared_t tile, int place, int piece, int k, int lane) {
    for (int n = 0; n < 4; n++) read_row(to->rows[n], tile, place + 16 * piece + lane % 4 * 4 + n, k);
}
INLINE void multiply(acc_t acc[8], const Fragment *a, const Fragment *b, int lane) {
    for (int i = 0; i < 2; i++)
        for (int n = 0; n < 4; n++)
            for (int c = 0; c < 4; c++) acc[SUM_AT(i, n)] += a->rows[i][c] * b->rows[n][c];
}

#define write_sums(to, v) vstore4(vload4(0, v), 0, (__local double *)(to))
#define peer4(v, from, rank) vstore4(vload4(0, (const __local double *)(from)), 0, v)

#endif
