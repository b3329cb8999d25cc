// pack: filter kcrs -> [group][k tile][c][r * s][PACK_K], zero padded in K and C.
//
//   packed[g][t][c][rs][i] = w[g * KG + t * PACK_K + i][c][rs], or 0 past the last k or c of the group
//   PACK_WINOGRAD: the 16 elements of the transformed 3x3 filter in place of its 9 taps
//
// So a block reads PACK_K neighbouring filters as one line. Example: K = 100, PACK_K = 64: 2 tiles,
// the second with 36 filters and 28 columns of zeros.

#include "loop.h"

#ifndef PACK_WINOGRAD
#define PACK_WINOGRAD 0
#endif
#define RS (PACK_WINOGRAD ? 16 : SIZE_R * SIZE_S)
#define TILES ((KG + PACK_K - 1) / PACK_K)
#define PACKED ((offset_t)GROUP_COUNT * TILES * PACK_C * RS * PACK_K)

// Element e of G g G', with G = (1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1) and g a 3x3 filter.
INLINE float transformed(const GLOBAL float *g, int e) {
    const float rows[4][3] = {{1.0f, 0.0f, 0.0f}, {0.5f, 0.5f, 0.5f}, {0.5f, -0.5f, 0.5f}, {0.0f, 0.0f, 1.0f}};
    float sum = 0.0f;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) sum += rows[e / 4][i] * g[i * 3 + j] * rows[e % 4][j];
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
        int k = (int)(rest % TILES) * PACK_K + i, group = rest / TILES;
        offset_t from = ((offset_t)(group * KG + k) * CG + c) * (SIZE_R * SIZE_S);
        int real = k < KG && c < CG;
        packed[item] = !real ? 0.0f : PACK_WINOGRAD ? transformed(w + from, rs) : w[from + rs];
    }
}
