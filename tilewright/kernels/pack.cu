// pack: filter kcrs -> [group][k tile][c][r * s][PACK_K], zero padded in K and C.
//
//   packed[g][t][c][rs][i] = w[g * KG + t * PACK_K + i][c][rs], or 0 past the last k or c of the group
//   PACK_WINOGRAD 1: the 16 elements of the 3x3 filter transformed by F(2x2) in place of its 9 taps
//   PACK_WINOGRAD 4: the 36 elements of F(4x4), each a group of 1x1 filters: [36][k tile][c][PACK_K]
//
// So a block reads PACK_K neighbouring filters as one line. Example: K = 100, PACK_K = 64: 2 tiles,
// the second with 36 filters and 28 columns of zeros.

#include "loop.h"

#ifndef PACK_WINOGRAD
#define PACK_WINOGRAD 0
#endif
#define RS (PACK_WINOGRAD == 1 ? 16 : PACK_WINOGRAD == 4 ? 1 : SIZE_R * SIZE_S)
#define GROUPS_PACKED (PACK_WINOGRAD == 4 ? 36 : GROUP_COUNT)
#define TILES ((KG + PACK_K - 1) / PACK_K)
#define PACKED ((offset_t)GROUPS_PACKED * TILES * PACK_C * RS * PACK_K)

// Element e of G g G', with G = (1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1) and g a 3x3 filter.
INLINE float transformed(const GLOBAL float *g, int e) {
    const float rows[4][3] = {{1.0f, 0.0f, 0.0f}, {0.5f, 0.5f, 0.5f}, {0.5f, -0.5f, 0.5f}, {0.0f, 0.0f, 1.0f}};
    float sum = 0.0f;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) sum += rows[e / 4][i] * g[i * 3 + j] * rows[e % 4][j];
    return sum;
}

// Entry of G for F(4x4): the powers of a row's point 1, -1, 2, -2, scaled; computed, since a table that
// is indexed at run time lies in local memory.
INLINE float g4(int i, int j) {
    if (i == 0) return j == 0 ? 1.0f / 4 : 0.0f;
    if (i == 5) return j == 2 ? 1.0f : 0.0f;
    float point = (i < 3 ? 1.0f : 2.0f) * (i % 2 ? 1.0f : -1.0f), scale = i < 3 ? -1.0f / 6 : 1.0f / 24;
    return scale * (j == 0 ? 1.0f : j == 1 ? point : point * point);
}

// Element e of G g G', with G of F(4x4) and g a 3x3 filter.
INLINE float transformed4(const GLOBAL float *g, int e) {
    float sum = 0.0f;
    UNROLL for (int i = 0; i < 3; i++)
        UNROLL for (int j = 0; j < 3; j++) sum += g4(e / 6, i) * g[i * 3 + j] * g4(e % 6, j);
    return sum;
}

KERNEL(pack)(GLOBAL const float *RESTRICT w, GLOBAL float *RESTRICT packed) {
    FOR_EACH(item, PACKED) {
        int i = item % PACK_K;
        offset_t rest = item / PACK_K;
        int rs = rest % RS;
        rest /= RS;
        int c = rest % PACK_C;
        rest /= PACK_C;
        int k = (int)(rest % TILES) * PACK_K + i, group = rest / TILES, element = group;
        if (PACK_WINOGRAD == 4) group = 0;
        offset_t from = ((offset_t)(group * KG + k) * CG + c) * (SIZE_R * SIZE_S);
        int real = k < KG && c < CG;
        packed[item] = !real ? 0.0f : PACK_WINOGRAD == 1   ? transformed(w + from, rs)
                               : PACK_WINOGRAD == 4 ? transformed4(w + from, element)
                                                    : w[from + rs];
    }
}
