// The dialect of tensor cores, for the mma family: beside dialect.h, where CUDA C++ and OpenCL C differ.
//
//   shared_t                  a place in shared memory, counted in bytes; TILE_ARRAY(name) declares it all
//   copy16 copy16_cached      16 bytes into shared memory from global memory (async, zeros unless `keep`), past or
//                             through the L1 cache
//   copy_part                 so many of 16 bytes into shared memory, past the L1 cache, and zeros
//   read_number               1, 2 or 4 bytes of shared memory, as a word
//   write16                   16 bytes into shared memory, from four words; write_sums: from four sums
//   Fragment                  what a thread holds of 16 rows x 32 bytes of a tile (see swizzle.h)
//   place_m place_n           where a lane reads in a tile, from row `row` on
//   read_m read_n             the fragment of piece `piece` (16 rows each) at bytes 32 k of the sum
//   multiply                  acc += A B of two fragments, 16 x 16 outputs, eight of a thread:
//                             acc[4 h + 2 i + j] is row lane / 4 + 8 i, column 8 h + lane % 4 * 2 + j; SUM_AT(i, n)
//                             is its sum of row SUM_ROW(lane, i) that is neighbour n, of four, in y
//   peer4                     four sums that another block has written to its own shared memory
//
// Elsewhere than on CUDA a thread reads whole rows of its tile and multiplies by itself: slow but the same sums.
// Fragments, their products and sums are in fragments.h, those of f64 in fragments_f64.h.

#include "products.h"
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

#endif

#if PRODUCTS == DOUBLE
#include "fragments_f64.h"
#else
#include "fragments.h"
#endif
