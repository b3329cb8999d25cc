// Products of the grouped_mma family: strips of 16 x PT pixels by a warp's output channels.
//
// A strip is two times eight columns of PT rows: side by side, or (DOWN) one below the other. A row of the image is
// loaded once for all of its outputs. Of the pieces of a row of the filter two make a product; the last, of an odd
// number, one of half the length.

#include "fetch.h"
#include "ldmatrix.h"
#include "mma_sync.h"

#define DOWN (WB / 8 % 2)
#define STRIPS_OF_ROW (DOWN ? WB / 8 : WB / 16)
#define STRIP_ROWS (DOWN ? 2 * PT : PT)
#define STRIPS (HB / STRIP_ROWS * STRIPS_OF_ROW)
#define ROW_OF(strip) ((strip) / STRIPS_OF_ROW * STRIP_ROWS)
#define COLUMN_OF(strip) ((strip) % STRIPS_OF_ROW * (DOWN ? 8 : 16))
#define SEEN_H ((PT - 1) * STR_H + (R - 1) * DIL_H + 1)  // rows of the image under PT outputs
#define ROW_SUM (S * PIECES)                           // pieces along a row of the filter

// Where piece `at` of a row of the filter lies for pixel `column` of the strip's half `h`, in the strip's first row; of
// the bundle whose pieces begin at `first`.
INLINE int piece_at(int strip, int h, int column, int first, int at) {
    const int row = (ROW_OF(strip) + DOWN * h * PT) * STR_H, s = at / PIECES * DIL_W;
    return row * ROW_PIECES + placed(COLUMN_OF(strip) + (DOWN ? 0 : 8 * h) + column + s % STR_W * LENGTH + s / STR_W,
                                     first + at % PIECES);
}

#ifdef __CUDACC__  // ------------------------------------------------------------- CUDA C++

typedef unsigned Filter[W_WORDS];

INLINE void find_filter(Filter to, const acc_t *w, int lane) {
    UNROLL for (int i = 0; i < W_WORDS; i += 4) fetch4(to + i, (const unsigned *)w + 4 * lane + 32 * i);
}

// Row `row` of those that the strip sees, times the row of the filter that each output has for it; x: piece `at` of the
// former, and the next one where there is one.
INLINE void add_row(acc_t acc[PT][KT][4], const Filter w, const unsigned x[4], int row, int b, int at) {
    UNROLL for (int i = 0; i < PT; i++) {
        const int r = (row - i * STR_H) / DIL_H;
        if (row < i * STR_H || (row - i * STR_H) % DIL_H != 0 || r >= R) continue;
        UNROLL for (int j = b * NT; j < (b + 1) * NT; j++) {
            const unsigned *of = w + W_AT(j, r * ROW_SUM + at);
            at + 1 < ROW_SUM ? mma_sync(acc[i][j], x, of[0], of[1]) : mma_sync_short(acc[i][j], x, of[0]);
        }
    }
}
INLINE int is_seen(int row) {  // by any output
    for (int i = 0; i < PT; i++)
        for (int r = 0; r < R; r++) if (row == i * STR_H + r * DIL_H) return 1;
    return 0;
}

INLINE void sum_up(acc_t acc[PT][KT][4], const acc_t *tile, const Filter w, int strip, int slice, int lane) {
    const unsigned from = (unsigned)__cvta_generic_to_shared(tile);
    unsigned first[BW][(ROW_SUM + 1) / 2];
    UNROLL for (int b = 0; b < BW; b++)
        UNROLL for (int k = 0; k < ROW_SUM; k += 2) {
            const int mine = lane / 16 && k + 1 < ROW_SUM;  // which of the two pieces
            const int bundle = (slice / PARTS * BW + b) * PIECES;
            first[b][k / 2] = from + 16 * (mine ? piece_at(strip, lane / 8 % 2, lane % 8, bundle, k + 1)
                                                : piece_at(strip, lane / 8 % 2, lane % 8, bundle, k));
        }
    UNROLL for (int i = 0; i < PT; i++)
        UNROLL for (int j = 0; j < KT; j++) UNROLL for (int e = 0; e < 4; e++) acc[i][j][e] = 0;
    UNROLL for (int row = 0; row < SEEN_H; row++) {
        if (!is_seen(row)) continue;
        UNROLL for (int b = 0; b < BW; b++)
            UNROLL for (int k = 0; k < ROW_SUM; k += 2) {
                unsigned x[4];
                const unsigned at = first[b][k / 2] + 16 * ROW_PIECES * row;
                k + 1 < ROW_SUM ? read_matrices(x, at) : read_two_matrices(x, at);
                add_row(acc, w, x, row, b, k);
            }
    }
}

#else  // ------------------------------------------------ OpenCL C: the same sums, each by itself

typedef const GLOBAL uint *Filter;
#define find_filter(to, w, lane) to = (Filter)(w)

INLINE void sum_up(acc_t acc[PT][KT][4], const SHARED acc_t *tile, Filter w, int strip, int slice, int lane) {
    for (int i = 0; i < PT; i++)
        for (int j = 0; j < KT; j++)
            for (int e = 0; e < 4; e++) {
                acc_t sum = 0;
                for (int at = 0; at < KPIECES; at++) {
                    const int bundle = (slice / PARTS * BW + j / NT) * PIECES;
                    const int row = i * STR_H + at / ROW_SUM * DIL_H, reg = W_AT(j, at);
                    const int place = piece_at(strip, e / 2, lane / 4, bundle, at % ROW_SUM) + row * ROW_PIECES;
                    for (int word = 0; word < 4; word++) {
                        const int owner = (lane % 4 * 2 + e % 2) * 4 + word;
                        sum = dot_word(((const SHARED uint *)tile)[4 * place + word],
                                       w[reg / 4 * 128 + owner * 4 + reg % 4], sum);
                    }
                }
                acc[i][j][e] = sum;
            }
}
#endif
