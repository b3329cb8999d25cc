// The dialect of tensor cores, for the mma family: beside dialect.h, where CUDA C++ and OpenCL C differ.
//
//   shared_t                  a place in shared memory, counted in bytes; TILE_ARRAY(name) declares it all
//   copy16 copy16_cached      16 bytes into shared memory from global memory (async, zeros unless `keep`), past or
//                             through the L1 cache
//   copy_part                 so many of 16 bytes into shared memory, past the L1 cache, and zeros
//   read_number               1, 2 or 4 bytes of shared memory, as a word
//   write16                   16 bytes into shared memory, from four words; write_sums, read_sums: from sums
//   Fragment                  what a thread holds of 16 rows x 32 bytes of a tile (see swizzle.h)
//   place_m place_n           where a lane reads in a tile, from row `row` on
//   read_m read_n             the fragment of piece `piece` (16 rows each) at bytes 32 k of the sum
//   multiply                  acc += A B of two fragments, 16 x 16 outputs, eight of a thread:
//                             acc[4 h + 2 i + j] is row lane / 4 + 8 i, column 8 h + lane % 4 * 2 + j
//   peer4                     four sums that another block has written to its own shared memory
//
// Elsewhere than on CUDA a thread reads whole rows of its tile and multiplies by itself: slow but the same sums.
// Layouts: mma_sync.h, ldmatrix.h.

#include "ldmatrix.h"
#include "mma_sync.h"
#include "swizzle.h"
#include "types.h"

#define ROW_BYTES (16 * CHUNKS)

#ifdef __CUDACC__  // ------------------------------------------------------------- CUDA C++

typedef unsigned shared_t;
#define TILE_ARRAY(name)                                     \
    extern __shared__ __align__(256) unsigned char name##_store[]; \
    const shared_t name = (unsigned)__cvta_generic_to_shared(name##_store)
INLINE void copy16(shared_t to, const unsigned char *from, int keep) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(keep ? 16 : 0));
}
INLINE void copy16_cached(shared_t to, const unsigned char *from, int keep) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(keep ? 16 : 0));
}
INLINE void copy_part(shared_t to, const unsigned char *from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
}
INLINE unsigned read_number(shared_t from, int bytes) {
    unsigned v;
    if (bytes == 1) asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
    else if (bytes == 2) asm volatile("ld.shared.u16 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
    else asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
    return v;
}
INLINE void write16(shared_t to, const unsigned v[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}
INLINE void write_sums(shared_t to, const acc_t v[4]) {
    unsigned bits[4];
    UNROLL for (int i = 0; i < 4; i++) bits[i] = *(const unsigned *)&v[i];
    write16(to, bits);
}

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
INLINE void store4(int *to, const int *from) { *(int4 *)to = make_int4(from[0], from[1], from[2], from[3]); }
INLINE void store4(unsigned short *to, const unsigned short *from) {
    *(ushort4 *)to = make_ushort4(from[0], from[1], from[2], from[3]);
}

#else  // -------------------------------------------------------------------------- OpenCL C

typedef __local uchar *shared_t;
#define TILE_ARRAY(name) __local uchar name[SHARED_BYTES] __attribute__((aligned(256)))
INLINE void copy16(shared_t to, const __global uchar *from, int keep) {
    uint4 v = keep ? vload4(0, (const __global uint *)from) : (uint4)(0);
    vstore4(v, 0, (__local uint *)to);
}
#define copy16_cached copy16
INLINE void copy_part(shared_t to, const __global uchar *from, int bytes) {
    for (int i = 0; i < 16; i++) to[i] = i < bytes ? from[i] : 0;
}
INLINE uint read_number(shared_t from, int bytes) {
    return bytes == 1 ? *from : bytes == 2 ? *(const __local ushort *)from : *(const __local uint *)from;
}
#define write16(to, v) vstore4(vload4(0, v), 0, (__local uint *)(to))
#define write_sums(to, v) vstore4(vload4(0, v), 0, (__local acc_t *)(to))
#define read_sums(v, from) vstore4(vload4(0, (const __local acc_t *)(from)), 0, v)
#define peer4(v, from, rank) read_sums(v, from)

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

#endif
