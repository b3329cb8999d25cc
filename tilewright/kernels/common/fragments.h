// Fragments of f16, bf16, tf32, i8 and f8, and their sums: what tensor.h says, by ldmatrix.h and mma_sync.h.

#include "ldmatrix.h"
#include "mma_sync.h"

#define SUMS_BYTES 16  // of four sums
#define SUM_ROW(lane, i) ((lane) / 4 + 8 * (i))
#define SUM_AT(i, n) ((n) / 2 * 4 + (i) * 2 + (n) % 2)

#ifdef __CUDACC__

typedef struct {
    unsigned r[4];  // M: rows 0 .. 7, rows 8 .. 15 of chunk 0, then of chunk 1; N: chunks 0, 1 of rows 0 .. 7, then
} Fragment;         // of rows 8 .. 15, so that a product's two registers are neighbours

INLINE int place_of(int row, int chunk) { return row * ROW_BYTES + (chunk ^ SWIZZLE(row % 8)) * 16; }
INLINE int place_m(int row, int lane) { return place_of(row + lane % 16, lane / 16); }
INLINE int place_n(int row, int lane) { return place_of(row + lane / 16 * 8 + lane % 8, lane / 8 % 2); }
INLINE void read_m(Fragment *to, shared_t tile, int place, int piece, int k, int lane) {
    read_matrices(to->r, (tile + place ^ 32 * k) + piece * (16 * ROW_BYTES));
}
#define read_n read_m

INLINE void multiply(acc_t acc[8], const Fragment *a, const Fragment *b, int lane) {
    UNROLL for (int h = 0; h < 2; h++) mma_sync(acc + 4 * h, a->r, b->r[2 * h], b->r[2 * h + 1]);
}

INLINE void read_sums(acc_t v[4], shared_t from) {
    uint4 bits;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w) : "r"(from) : "memory");
    v[0] = *(acc_t *)&bits.x, v[1] = *(acc_t *)&bits.y, v[2] = *(acc_t *)&bits.z, v[3] = *(acc_t *)&bits.w;
}
#if defined(CLUSTER) && CLUSTER > 1
INLINE void peer4(acc_t v[4], shared_t from, int rank) {
    uint4 bits;
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(from) : "r"(rank));
    asm volatile("ld.shared::cluster.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w) : "r"(from) : "memory");
    v[0] = *(acc_t *)&bits.x, v[1] = *(acc_t *)&bits.y, v[2] = *(acc_t *)&bits.z, v[3] = *(acc_t *)&bits.w;
}
#else
INLINE void peer4(acc_t v[4], shared_t from, int rank) { read_sums(v, from); }
#endif

INLINE void write_sums(shared_t to, const acc_t v[4]) {
    unsigned bits[4];
    UNROLL for (int i = 0; i < 4; i++) bits[i] = *(const unsigned *)&v[i];
    write16(to, bits);
}

#else

typedef struct {
    uint rows[4][8];  // two rows of the M side, or four of the N side, 32 bytes each
} Fragment;

#define place_m(row, lane) (row)
#define place_n(row, lane) (row)
INLINE void read_row(uint to[8], shared_t tile, int row, int k) {
    for (int c = 0; c < 2; c++)
        vstore4(vload4(0, (const __local uint *)(tile + row * ROW_BYTES + ((2 * k + c) ^ SWIZZLE(row % 8)) * 16)), c,
                to);
}
INLINE void read_m(Fragment *to, shared_t tile, int place, int piece, int k, int lane) {
    for (int i = 0; i < 2; i++) read_row(to->rows[i], tile, place + 16 * piece + lane / 4 + 8 * i, k);
}
INLINE void read_n(Fragment *to, shared_t tile, int place, int piece, int k, int lane) {
    for (int j = 0; j < 4; j++) read_row(to->rows[j], tile, place + 16 * piece + j / 2 * 8 + lane % 4 * 2 + j % 2, k);
}
INLINE void multiply(acc_t acc[8], const Fragment *a, const Fragment *b, int lane) {
    for (int e = 0; e < 8; e++)
        for (int i = 0; i < 8; i++)
            acc[e] = dot_word(a->rows[e / 2 % 2][i], b->rows[e / 4 * 2 + e % 2][i], acc[e]);
}

#define write_sums(to, v) vstore4(vload4(0, v), 0, (__local acc_t *)(to))
#define read_sums(v, from) vstore4(vload4(0, (const __local acc_t *)(from)), 0, v)
#define peer4(v, from, rank) read_sums(v, from)

#endif
