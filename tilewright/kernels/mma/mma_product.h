// Products of the mma family beyond those of f16, bf16 and i8 (tensor.h), set by PRODUCTS:
//
//   PLAIN      those of tensor.h; DOUBLE: its f64
//   TF32       x is rounded here, the filter was in packing (mma_pack.cu)
//   THREE      v = high + low / 2048 (mma_tf32.h), and v w = high_v high_w + (low_v high_w + high_v low_w) / 2048;
//              what is left out is 2^-22 of it
//   E4M3       x and the filter are f8, as they are
//
// THREE and E4M3 are promoted: the products of one fragment (8, or 32 of f8) start from zero, and their sum is added to
// that of the whole in f32, rounded to nearest; tensor cores cut off, those of f8 all but some 14 bits.
// Layouts: PTX ISA 8.x, "Matrix Fragments for mma.m16n8k8" (tf32) and "m16n8k32" (e4m3): words lie as they do in f16.

#include "products.h"

#if PRODUCTS == TF32 || PRODUCTS == THREE
typedef unsigned x_t;  // an element of x in memory, by its bits
#define NUMBER_BYTES 4
#elif PRODUCTS == E4M3
typedef unsigned char x_t;
#define NUMBER_BYTES 1
#elif PRODUCTS == DOUBLE
typedef double x_t;
#define NUMBER_BYTES 8
#else
typedef in_t x_t;
#define NUMBER_BYTES (DTYPE == 4 ? 1 : 2)
#endif

#define PROMOTED (PRODUCTS == THREE || PRODUCTS == E4M3)

#if PRODUCTS == PLAIN || PRODUCTS == DOUBLE
#define MULTIPLIED(to, i, j) multiply(to, &a[k % FRAGMENTS][i], &b[k % FRAGMENTS][j], me.lane)
#define PREPARE()
#else

#include "mma_tf32.h"

#ifdef __CUDACC__
#define FRAGMENT_WORDS 4
#define WORDS_OF(fragment) ((fragment)->r)
#if PRODUCTS == E4M3
#define MMA_MORE(c) "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 " c
#else
#define MMA_MORE(c) "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 " c
#endif

// to = from + A B: 16 x 8 outputs, half h of the piece.
INLINE void multiply_half(float *to, const float *from, const Fragment *a, const Fragment *b, int h) {
    asm(MMA_MORE("{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};")
        : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
        : "r"(a->r[0]), "r"(a->r[1]), "r"(a->r[2]), "r"(a->r[3]), "r"(b->r[2 * h]), "r"(b->r[2 * h + 1]),
          "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]));
}
INLINE void multiply_more(float to[8], const float from[8], const Fragment *a, const Fragment *b) {
    UNROLL for (int h = 0; h < 2; h++) multiply_half(to + 4 * h, from + 4 * h, a, b, h);
}

#else
#define FRAGMENT_WORDS 32
#define WORDS_OF(fragment) (&(fragment)->rows[0][0])
#include "e4m3.h"

INLINE float dot_more(uint a, uint b, float sum) {
#if PRODUCTS == E4M3
    for (int i = 0; i < 32; i += 8)
        sum += half_float(half_of_e4m3(a >> i & 0xff)) * half_float(half_of_e4m3(b >> i & 0xff));
    return sum;
#else
    return sum + as_float(a & 0xffffe000u) * as_float(b & 0xffffe000u);
#endif
}
INLINE void multiply_more(float to[8], const float from[8], const Fragment *a, const Fragment *b) {
    for (int e = 0; e < 8; e++) {
        float sum = from[e];
        for (int i = 0; i < 8; i++) sum = dot_more(a->rows[e / 2 % 2][i], b->rows[e / 4 * 2 + e % 2][i], sum);
        to[e] = sum;
    }
}
#endif

#if PRODUCTS == TF32
#define MULTIPLIED(to, i, j) multiply_more(to, to, &a[k % FRAGMENTS][i], &b[k % FRAGMENTS][j])
#define PREPARE() (Y_NHWC ? round_all(a[k % FRAGMENTS], MT) : round_all(b[k % FRAGMENTS], NT))

INLINE void round_all(Fragment *x, int count) {
    UNROLL for (int i = 0; i < count; i++)
        UNROLL for (int e = 0; e < FRAGMENT_WORDS; e++) WORDS_OF(x + i)[e] = tf32_of(WORDS_OF(x + i)[e]);
}

#elif PRODUCTS == THREE
#define MULTIPLIED(to, i, j) multiply_three(to, &a[k % FRAGMENTS][i], a_low + i, &b[k % FRAGMENTS][j], b_low + j)
#define PREPARE()                                 \
    Fragment a_low[MT], b_low[NT];                \
    split_all(a[k % FRAGMENTS], a_low, MT);       \
    split_all(b[k % FRAGMENTS], b_low, NT)

INLINE void split_all(Fragment *v, Fragment *low, int count) {
    UNROLL for (int i = 0; i < count; i++)
        UNROLL for (int e = 0; e < FRAGMENT_WORDS; e++) WORDS_OF(low + i)[e] = split(&WORDS_OF(v + i)[e]);
}
INLINE void multiply_three(float acc[8], const Fragment *a, const Fragment *a_low, const Fragment *b,
                           const Fragment *b_low) {
    const float zeros[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    float high[8], low[8];
    multiply_more(low, zeros, a_low, b);
    multiply_more(low, low, a, b_low);
    multiply_more(high, zeros, a, b);
    UNROLL for (int e = 0; e < 8; e++) acc[e] += low[e] * 0.00048828125f + high[e];
}

#else
#define MULTIPLIED(to, i, j) multiply_e4m3(to, &a[k % FRAGMENTS][i], &b[k % FRAGMENTS][j])
#define PREPARE()

INLINE void multiply_e4m3(float acc[8], const Fragment *a, const Fragment *b) {
    const float zeros[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    float sum[8];
    multiply_more(sum, zeros, a, b);
    UNROLL for (int e = 0; e < 8; e++) acc[e] += sum[e];
}
#endif
#endif
