// The product of a warp for the textbook's tensor-core steps: sum += A B', A 16 rows and B 8 of 16 numbers each.
//
//   Rows Columns               what a lane holds of A and of B: words of two numbers
//   READ_ROWS READ_COLUMNS     (to, WORD, first, lane) read them; WORD(row, i) is word i of a row, 0 .. 7
//   multiply                   sum[2 i + j] is row lane / 4 + 8 i, column lane % 4 * 2 + j
//
// Elsewhere than on CUDA a lane reads whole rows and multiplies by itself. Instruction and layout: mma_sync.h.

#include "mma_sync.h"

#ifdef __CUDACC__

typedef struct {
    unsigned r[4];
} Rows;
typedef struct {
    unsigned r[2];
} Columns;
#define READ_ROWS(to, WORD, first, lane)                 \
    UNROLL for (int i_ = 0; i_ < 4; i_++)                \
        (to).r[i_] = WORD((first) + (lane) / 4 + i_ % 2 * 8, (lane) % 4 + i_ / 2 * 4)
#define READ_COLUMNS(to, WORD, first, lane) \
    UNROLL for (int i_ = 0; i_ < 2; i_++) (to).r[i_] = WORD((first) + (lane) / 4, (lane) % 4 + i_ * 4)

INLINE void multiply(float sum[4], Rows a, Columns b) { mma_sync(sum, a.r, b.r[0], b.r[1]); }

#else

typedef struct {
    uint r[2][8];
} Rows, Columns;
#define READ_ROWS(to, WORD, first, lane)      \
    for (int i_ = 0; i_ < 16; i_++) (to).r[i_ / 8][i_ % 8] = WORD((first) + (lane) / 4 + i_ / 8 * 8, i_ % 8)
#define READ_COLUMNS(to, WORD, first, lane)   \
    for (int i_ = 0; i_ < 16; i_++) (to).r[i_ / 8][i_ % 8] = WORD((first) + (lane) % 4 * 2 + i_ / 8, i_ % 8)

INLINE void multiply(float sum[4], Rows a, Columns b) {
    for (int e = 0; e < 4; e++)
        for (int i = 0; i < 8; i++) sum[e] = dot_word(a.r[e / 2][i], b.r[e % 2][i], sum[e]);
}
#endif
