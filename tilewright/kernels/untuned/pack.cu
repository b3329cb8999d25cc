// pack: filter kcrs (in_t) -> words [group][k tile][c][r * s][PACK_K], zero padded in K and C.
//
//   packed[g][t][c][rs][i] = w[g * KG + t * PACK_K + i][c][rs], or 0 past the last k or c of the group
//   A word is what a kernel multiplies with: an f64 of f64; an f32 of f32, f16 and bf16; and of i8 four
//   channels 4c .. 4c + 3, the first in the lowest byte, for dot4. PACK_C counts words.
//   PACK_FLAT 1: [c][r * s][K], all groups side by side
//   PACK_WINOGRAD 1: the 16 elements of the 3x3 filter transformed by F(2x2) in place of its 9 taps
//   PACK_WINOGRAD 2: the filter at PACK_POINTS points (points.h) along both sides, each element of them a group of 1x1
//                    filters: [PACK_POINTS^2][k tile][c][PACK_K]
//   PACK_WINOGRAD 3: its rows at PACK_POINTS points: [PACK_POINTS][k tile][c][r][PACK_K]
//   PACK_CHUNKS: tiles as the mma and hopper families stage them in shared memory, see pack_tensor.h
//
// So a block reads PACK_K neighbouring filters as one line. Example: K = 100, PACK_K = 64: 2 tiles,
// the second with 36 filters and 28 columns of zeros. C = 10 of i8: 3 words, the last with 2 zeros.

#include "loop.h"
#include "types.h"

#ifdef PACK_CHUNKS
#include "pack_tensor.h"
#else

#ifndef PACK_FLAT
#define PACK_FLAT 0
#endif
#ifndef PACK_WINOGRAD
#define PACK_WINOGRAD 0
#endif
#ifndef PACK_POINTS
#define PACK_POINTS 0
#endif
#define RS (PACK_WINOGRAD == 1 ? 16 : PACK_WINOGRAD == 2 ? 1 : PACK_WINOGRAD == 3 ? SIZE_R : SIZE_R * SIZE_S)
#define GROUPS_PACKED (PACK_WINOGRAD == 2 ? PACK_POINTS * PACK_POINTS : PACK_WINOGRAD == 3 ? PACK_POINTS : GROUP_COUNT)
#define TILES ((KG + PACK_K - 1) / PACK_K)
#define PACKED ((offset_t)GROUPS_PACKED * TILES * PACK_C * RS * PACK_K)
#define CHANNELS (DTYPE == 4 ? 4 : 1)  // of a word; acc_t is as wide as one

#if PACK_WINOGRAD == 1

// Element rs of G g G', with G = (1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1) and g a 3x3 filter.
INLINE acc_t element(const GLOBAL in_t *g, int rs, int part) {
    const acc_t rows[4][3] = {{1.0f, 0.0f, 0.0f}, {0.5f, 0.5f, 0.5f}, {0.5f, -0.5f, 0.5f}, {0.0f, 0.0f, 1.0f}};
    acc_t sum = 0.0f;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) sum += rows[rs / 4][i] * in_load(g + i * 3 + j) * rows[rs % 4][j];
    return sum;
}

#elif PACK_WINOGRAD
#define POINTS PACK_POINTS
#define PACKS_FILTER
#include "points.h"

// Element `part` of G g G', with G the powers of the points over their distances: along both sides of g, or of row rs.
INLINE acc_t element(const GLOBAL in_t *g, int rs, int part) {
    const int both = PACK_WINOGRAD == 2, down = part / POINTS, across = both ? part % POINTS : part;
    float of_row[SIZE_R], of_tap[SIZE_S];
    powers_of(down, SIZE_R, of_row);
    powers_of(across, SIZE_S, of_tap);
    acc_t sum = 0.0f;
    UNROLL for (int i = 0; i < (both ? SIZE_R : 1); i++) {
        acc_t row = 0.0f;
        UNROLL for (int j = 0; j < SIZE_S; j++) row += of_tap[j] * in_load(g + (both ? i : rs) * SIZE_S + j);
        sum += (both ? of_row[i] : 1.0f) * row;
    }
    return sum / (distances_of(across) * (both ? distances_of(down) : 1.0f));
}

#else
INLINE acc_t element(const GLOBAL in_t *g, int rs, int part) { return in_load(g + rs); }
#endif

KERNEL(pack)(GLOBAL const in_t *RESTRICT w, GLOBAL acc_t *RESTRICT packed) {
    FOR_EACH(item, PACKED) {
        int i = item % PACK_K;
        offset_t rest = item / PACK_K;
        int rs = rest % RS;
        rest /= RS;
        int c_word = rest % PACK_C, c = c_word * CHANNELS;
        rest /= PACK_C;
        int k = (int)(rest % TILES) * PACK_K + i, part = rest / TILES;
        int group = PACK_WINOGRAD > 1 ? 0 : part;
        acc_t word = 0;
        for (int j = 0; j < CHANNELS; j++) {
            if (k >= KG || c + j >= CG) continue;
            offset_t from = ((offset_t)(group * KG + k) * CG + c + j) * (SIZE_R * SIZE_S);
#if DTYPE == 4
            word |= (int)((unsigned)(unsigned char)w[from + rs] << 8 * j);
#else
            word = element(w + from, rs, part);
#endif
        }
        packed[PACK_FLAT ? ((offset_t)c_word * RS + rs) * (GROUP_COUNT * KG) + group * KG + k : item] = word;
    }
}

#endif
