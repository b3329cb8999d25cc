// pack: filter kcrs -> the factors of Strassen's products (strassen.h), [product][k tile][c][PACK_K], zero padded.
//
//   packed[m][t][c][i] = the sum of blocks in product m of w[t * PACK_K + i][c], or 0 past the last k or c of a block
//
// Example: K = C = 4096, LEVELS 1, PACK_K = 128: 7 products, 16 tiles of 2048 channels each.

#include "loop.h"
#include "strassen.h"

#define K_TILES CEIL_DIV(BLOCK_K, PACK_K)

// Block by block with the sign that it has in product m: the outer one's and the inner one's.
INLINE int sign_in_product(int m, int block) {
    return LEVELS == 1 ? sign_in_a(m, block) : sign_in_a(m / SEVEN, block / 4) * sign_in_a(m % SEVEN, block % 4);
}

KERNEL(pack)(GLOBAL const float *RESTRICT w, GLOBAL float *RESTRICT packed) {
    FOR_EACH(item, (offset_t)MATRIX_PRODUCTS * K_TILES * PACK_C * PACK_K) {
        const int i = item % PACK_K, c0 = item / PACK_K % PACK_C;
        const offset_t rest = item / PACK_K / PACK_C;
        const int k0 = (int)(rest % K_TILES) * PACK_K + i, m = rest / K_TILES;
        float sum = 0.0f;
        for (int block = 0; block < SIDE * SIDE && k0 < BLOCK_K && c0 < BLOCK_C; block++) {
            const int k = k0 + row_of(block) * BLOCK_K, c = c0 + column_of(block) * BLOCK_C;
            const int sign = sign_in_product(m, block);
            if (sign && k < KG && c < CG) sum += sign * w[(offset_t)k * CG + c];
        }
        packed[item] = sum;
    }
}
