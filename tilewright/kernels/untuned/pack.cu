// pack: filter kcrs (in_t) -> words [group][k tile][c][r * s][PACK_K], zero padded in K and C.
//
//   packed[g][t][c][rs][i] = w[g * KG + t * PACK_K + i][c][rs], or 0 past the last k or c of the group
//   A word is what a kernel multiplies with: an f64 of f64; an f32 of f32, f16 and bf16; and of i8 four
//   channels 4c .. 4c + 3, the first in the lowest byte, for dot4. PACK_C counts words.
//   PACK_FLAT 1: [c][r * s][K], all groups side by side
//   PACK_WINOGRAD 1: the 16 elements of the 3x3 filter transformed by F(2x2) in place of its 9 taps
//   PACK_WINOGRAD 2: the filter at PACK_POINTS points (points.h) along each side that has more than one tap, each
//                    element of them a group of 1x1 filters: [points down * across][k tile][c][PACK_K]
//   PACK_WINOGRAD 3: its rows at PACK_POINTS points: [PACK_POINTS][k tile][c][r][PACK_K]
//   PACK_CHUNKS: tiles as the mma and hopper families stage them in shared memory, see pack_tensor.h
//
// So a block reads PACK_K neighbouring filters as one line. Example: K = 100, PACK_K = 64: 2 tiles,
// the second with 36 filters and 28 columns of zeros. C = 10 of i8: 3 words, the last with 2 zeros.

#include "filter.h"
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
#define K_TILES CEIL_DIV(KG, PACK_K)
#define TAPS (SIZE_R * SIZE_S)
#define RS (PACK_WINOGRAD == 1 ? 16 : PACK_WINOGRAD == 2 ? 1 : PACK_WINOGRAD == 3 ? SIZE_R : TAPS)
#define PACKED_ROWS ((offset_t)(PACK_WINOGRAD > 1 ? 1 : GROUP_COUNT) * K_TILES * PACK_C)
#define SIDE_BY_SIDE (CHUNKED ? 1 : PACK_K)  // threads of a row

// Where element rs of filter i lies; `part`: the group, or the point.
INLINE offset_t place(int part, int tile, int c, int rs, int i) {
#if PACK_FLAT
    return ((offset_t)c * RS + rs) * (GROUP_COUNT * KG) + part * KG + tile * PACK_K + i;
#else
    return ((((offset_t)part * K_TILES + tile) * PACK_C + c) * RS + rs) * PACK_K + i;
#endif
}

#if PACK_WINOGRAD == 1

// G g G', with G = (1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1) and g a 3x3 filter.
INLINE void column(GLOBAL acc_t *packed, const GLOBAL in_t *w, int has, int group, int tile, int c, int i) {
    acc_t g[3][3], across[3][4];
    UNROLL for (int tap = 0; tap < 9; tap++) g[tap / 3][tap % 3] = has ? in_load(w + tap) : 0.0f;
    UNROLL for (int y = 0; y < 3; y++) {
        const acc_t ends = g[y][0] + g[y][2];
        across[y][0] = g[y][0], across[y][1] = 0.5f * (ends + g[y][1]);
        across[y][2] = 0.5f * (ends - g[y][1]), across[y][3] = g[y][2];
    }
    UNROLL for (int x = 0; x < 4; x++) {
        const acc_t ends = across[0][x] + across[2][x];
        const acc_t down[4] = {across[0][x], 0.5f * (ends + across[1][x]), 0.5f * (ends - across[1][x]), across[2][x]};
        UNROLL for (int y = 0; y < 4; y++) packed[place(group, tile, c, 4 * y + x, i)] = down[y];
    }
}

#elif PACK_WINOGRAD
#define POINTS PACK_POINTS
#define PACKS_FILTER
#include "points.h"

#define POINTS_DOWN (SIZE_R > 1 ? POINTS : 1)
#define POINTS_ACROSS (SIZE_S > 1 ? POINTS : 1)
INLINE float distances_along(int taps, int point) { return taps > 1 ? distances_of(point) : 1.0f; }

// G g G' or, of rows, g G', with G the powers of the points over their distances.
INLINE void column(GLOBAL acc_t *packed, const GLOBAL in_t *w, int has, int group, int tile, int c, int i) {
    acc_t g[SIZE_R][SIZE_S];
    UNROLL for (int tap = 0; tap < TAPS; tap++) g[tap / SIZE_S][tap % SIZE_S] = has ? in_load(w + tap) : 0.0f;
    UNROLL for (int across = 0; across < POINTS_ACROSS; across++) {
        float of_tap[SIZE_S];
        acc_t rows[SIZE_R];
        powers_of(across, SIZE_S, of_tap);
        UNROLL for (int y = 0; y < SIZE_R; y++) {
            rows[y] = 0.0f;
            UNROLL for (int x = 0; x < SIZE_S; x++) rows[y] += of_tap[x] * g[y][x];
        }
#if PACK_WINOGRAD == 3
        UNROLL for (int y = 0; y < SIZE_R; y++) packed[place(across, tile, c, y, i)] = rows[y] / distances_of(across);
#else
        UNROLL for (int down = 0; down < POINTS_DOWN; down++) {
            float of_row[SIZE_R];
            acc_t sum = 0.0f;
            powers_of(down, SIZE_R, of_row);
            UNROLL for (int y = 0; y < SIZE_R; y++) sum += of_row[y] * rows[y];
            packed[place(down * POINTS_ACROSS + across, tile, c, 0, i)] =
                sum / (distances_along(SIZE_S, across) * distances_along(SIZE_R, down));
        }
#endif
    }
}

#else

// The taps of a filter, of i8 those of four channels in each word.
INLINE void column(GLOBAL acc_t *packed, const GLOBAL in_t *w, int has, int group, int tile, int c, int i) {
    for (int rs = 0; rs < TAPS; rs++) {
        acc_t word = 0;
#if DTYPE == 4
        for (int j = 0; j < 4 && 4 * c + j < CG && has; j++)
            word |= (int)((unsigned)(unsigned char)w[j * TAPS + rs] << 8 * j);
#else
        if (has) word = in_load(w + rs * FOLD);
#endif
        packed[place(group, tile, c, rs, i)] = word;
    }
}

#endif

// A row is what a tile's filters have of one channel: on a GPU a thread each, on a CPU one after the other.
KERNEL(pack)(GLOBAL const in_t *RESTRICT w, GLOBAL acc_t *RESTRICT packed) {
    FOR_EACH(item, PACKED_ROWS * SIDE_BY_SIDE) {
        const offset_t row = item / SIDE_BY_SIDE;
        const int c = row % PACK_C, tile = row / PACK_C % K_TILES, group = row / PACK_C / K_TILES;
        const int channel = c * (DTYPE == 4 ? 4 : 1);  // of i8 a word has four
        const int first = CHUNKED ? 0 : item % SIDE_BY_SIDE, end = CHUNKED ? PACK_K : first + 1;
        for (int i = first; i < end; i++) {
            const int k = tile * PACK_K + i, has = k < KG && channel < CG;
            const offset_t from = has ? (offset_t)(group * KG + k) * CG * TAPS + FILTER_AT(channel, 0) : 0;
            column(packed, w + from, has, group, tile, c, i);
        }
    }
}

#endif
