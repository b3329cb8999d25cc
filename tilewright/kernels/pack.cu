// pack: filter kcrs -> [group][k tile][c][r * s][PACK_K], zero padded in K and C.
//
//   packed[g][t][c][rs][i] = w[g * KG + t * PACK_K + i][c][rs], or 0 past the last k or c of the group
//
// So a block reads PACK_K neighbouring filters as one line. Example: K = 100, PACK_K = 64: 2 tiles,
// the second with 36 filters and 28 columns of zeros.

#include "loop.h"

#define RS (SIZE_R * SIZE_S)
#define TILES ((KG + PACK_K - 1) / PACK_K)
#define PACKED ((offset_t)GROUP_COUNT * TILES * PACK_C * RS * PACK_K)

KERNEL(pack)(GLOBAL const float *RESTRICT w, GLOBAL float *RESTRICT packed) {
    FOR_EACH(item, PACKED) {
        int i = item % PACK_K;
        offset_t rest = item / PACK_K;
        int rs = rest % RS;
        rest /= RS;
        int c = rest % PACK_C;
        rest /= PACK_C;
        int k = (int)(rest % TILES) * PACK_K + i, group = rest / TILES;
        offset_t from = ((offset_t)(group * KG + k) * CG + c) * RS + rs;
        packed[item] = k < KG && c < CG ? w[from] : 0.0f;
    }
}
