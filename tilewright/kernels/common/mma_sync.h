// A product of tensor cores by a warp: acc (16 x 8 sums, four of a thread) += A (four registers) B (two), each register
// a word of 32 bits of a row of A or a column of B: one f32 (PRODUCTS TF32), two f16 or bf16, four i8.
//
//   acc[2 i + j]  row lane / 4 + 8 i, column lane % 4 * 2 + j
//   a[i + 2 h]    row lane / 4 + 8 i, word lane % 4 + 4 h of the sum      b0, b1  column lane / 4, the same words
//
// mma_sync_short: of a sum half as long, with a[0], a[1] and b0 alone; not of TF32.
//
// PRODUCTS PLAIN and TF32 alone: THREE and E4M3, whose sums begin anew, are in mma_product.h.
// dot_word: what a word of A and one of B add to a sum, for OpenCL C, where threads multiply by themselves.
// Layouts: PTX ISA 8.x, "Matrix Fragments for mma.m16n8k16" and "m16n8k8" (f16, bf16, tf32), "m16n8k32" and "m16n8k16"
// (s8).

#include "factors.h"
#include "products.h"
#include "types.h"

#ifdef __CUDACC__

#if PRODUCTS == TF32
#define MMA_SYNC(c) "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 " c
#elif FACTORS == 4
#define MMA_SYNC(c) "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 " c
#define MMA_SHORT(c) "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 " c
#elif FACTORS == 3
#define MMA_SYNC(c) "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 " c
#define MMA_SHORT(c) "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 " c
#else
#define MMA_SYNC(c) "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 " c
#define MMA_SHORT(c) "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 " c
#endif
#if FACTORS == 4
#define SUM "+r"
#else
#define SUM "+f"
#endif

INLINE void mma_sync(sum_t acc[4], const unsigned a[4], unsigned b0, unsigned b1) {
    asm(MMA_SYNC("{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};")
        : SUM(acc[0]), SUM(acc[1]), SUM(acc[2]), SUM(acc[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#ifdef MMA_SHORT
INLINE void mma_sync_short(sum_t acc[4], const unsigned a[2], unsigned b0) {
    asm(MMA_SHORT("{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};")
        : SUM(acc[0]), SUM(acc[1]), SUM(acc[2]), SUM(acc[3]) : "r"(a[0]), "r"(a[1]), "r"(b0));
}
#endif

#else

INLINE acc_t dot_word(uint a, uint b, acc_t sum) {
#if PRODUCTS == TF32
    return sum + as_float(a) * as_float(b);  // rounded already
#elif DTYPE == 4
    return dot4((int)a, (int)b, sum);
#else
    return sum + widened(a & 0xffff) * widened(b & 0xffff) + widened(a >> 16) * widened(b >> 16);
#endif
}

#endif
