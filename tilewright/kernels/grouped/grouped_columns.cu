// grouped on CPU cores, nchw to nchw: lanes over the columns of a row (grouped.cu has the formula).
//
// x, y: nchw.  w: packed [k][c][r][s] in words of DTYPE (word.h): a filter is one run of memory.
//
//   item     ITEM_ROWS x ITEM_COLUMNS pixels of the KG channels of one group. Its input is copied once, each
//            number as acc_t, with zeros as padding: no load below asks where the image ends
//   tile     TH rows x TW vectors of VECTOR columns of TK channels, in registers
//
//      line h     0 | x0 x1 x2 x3 ...       s = 0: |0  x0 x1 x2|  s = 1: |x0 x1 x2 x3|  s = 2: |x1 ...
//      line h+1   0 | ...                   times the tap w[k][c][r][s], one number for all lanes
//
// A loaded vector is multiplied by the taps of all output rows and channels that it lies under. Stride 2: of
// two vectors every other lane, even or odd ones.
// The last vector of a row ends with the row, the last tile with the image and the group: some outputs are made
// twice, by one thread, and only rows shorter than a vector are stored one number at a time.
// SKIP_LINES: lines above and below the image, zeros, are left out, unless the filter has a NaN or an infinity: times 0
// they are NaN. Example: 13x13 at 7x7: 46% of the rows of taps.
// Knobs (spec.py): VECTOR (v 2 .. 16), TH, TW (th, tw): a tile. TK, ITEM_ROWS and ITEM_COLUMNS follow (columns.py).
// Example: MB1 (112x112, 3x3), VECTOR = 16, TH = 4, TW = 1: an item of 28 x 112 pixels copies 30 lines of 114;
// 18 vectors read for 36 multiply-adds.

#include "loop.h"

#define KB 1
#define HB 1
#define WB 1
#define SEEN_H ((TH - 1) * STR_H + (R - 1) * DIL_H + 1)           // lines under a tile
#define LINES ((ITEM_ROWS - 1) * STR_H + (R - 1) * DIL_H + 1)   // and under an item
#define USED ((ITEM_COLUMNS - 1) * STR_W + (S - 1) * DIL_W + 1) // of a line; vectors hang over
#define LINE ((USED + 2 * VECTOR - 1) / VECTOR * VECTOR)
#define ITEMS ((offset_t)N * (K / KG) * P_BLOCKS * Q_BLOCKS)
// Under one tap an input is soon used up, and many channels lie too far apart for the hardware to see what comes:
// lines are asked for so many channels ahead; and where an item is read several times, those of the next one in shares
// while this one is computed.
#define PREFETCH (R * S == 1 ? 2 : 0)
#define SHARE CEIL_DIV(CG * LINES, CEIL_DIV(KG, TK) * CEIL_DIV(ITEM_ROWS, TH) * CEIL_DIV(ITEM_COLUMNS, TW * VECTOR))
#define X_ALL ((offset_t)N * C * H * W)
#define FOR_TILE(a, b, j)                                   \
    UNROLL for (int a = 0; a < TK; a++)                     \
        UNROLL for (int b = 0; b < TH; b++)                 \
            UNROLL for (int j = 0; j < TW; j++)

#include "tile.h"
#include "lanes_memory.h"
#include "grouped_cores.h"

typedef struct {
    int n, group, p, q;
} Item;

INLINE Item find_item(offset_t i) {
    Item at;
    at.q = least(i % Q_BLOCKS * ITEM_COLUMNS, most(Q - VECTOR, 0));
    i /= Q_BLOCKS;
    at.p = least(i % P_BLOCKS * ITEM_ROWS, P - TH);
    i /= P_BLOCKS;
    at.group = i % (K / KG);
    at.n = i / (K / KG);
    return at;
}

// VECTOR elements of x from `at` on; beyond the end of a row they are not used.
INLINE vec load_inputs(const GLOBAL in_t *x, offset_t at) {
    if (at + VECTOR <= X_ALL) return load_lanes(x + at);
    acc_t v[VECTOR];
    UNROLL for (int i = 0; i < VECTOR; i++) v[i] = at + i < X_ALL ? widened(x[at + i]) : 0;
    return vec_pack(v);
}

// Copy a line whose first column is w0 from a row of x, or zeros; what hangs over is overwritten by what follows.
INLINE void copy_line(acc_t *line, const GLOBAL in_t *x, offset_t row, int w0, int inside) {
    int left = inside ? least(most(-w0, 0), USED) : USED;  // columns [left, right) lie in the image
    int right = inside ? most(least(W - w0, USED), left) : USED;
    vec zeros;
    vec_zero(&zeros);
    NO_UNROLL for (int j = 0; j < left; j += VECTOR) vec_store(line + j, zeros);
    NO_UNROLL for (int j = left; j < right; j += VECTOR) vec_store(line + j, load_inputs(x, row + w0 + j));
    NO_UNROLL for (int j = right; j < USED; j += VECTOR) vec_store(line + j, zeros);
}

// Ask early for a line of an item's input.
INLINE void prefetch_line(const GLOBAL in_t *x, Item at, int line) {
    int c = line / LINES, h = at.p * STR_H - PAD_T + line % LINES;
    if (c >= CG || (unsigned)h >= H) return;
    const GLOBAL in_t *from = x + X_AT(at.n, at.group * CG + c, h, 0) + at.q * STR_W - PAD_L;
    NO_UNROLL for (int j = 0; j < USED; j += 64 / sizeof(in_t)) __builtin_prefetch((const GLOBAL void *)(from + j));
}

// Column `s` of the filter under VECTOR outputs: every STR_W-th number of a line.
INLINE vec load_columns(const acc_t *line, int s) {
#if STR_W == 1
    return vec_load(line + s * DIL_W);
#elif STR_W == 2
    vec a = vec_load(line + s * DIL_W / 2 * 2), b = vec_load(line + s * DIL_W / 2 * 2 + VECTOR);
    return s * DIL_W % 2 ? (vec)(a.odd, b.odd) : (vec)(a.even, b.even);
#else
    acc_t v[VECTOR];
    UNROLL for (int i = 0; i < VECTOR; i++) v[i] = line[i * STR_W + s * DIL_W];
    return vec_pack(v);
#endif
}

#if TAPS_STAY
#define FORGET(pointer)
#else  // taps that several lines meet would be kept as vectors, and so spilled: each line reads them anew
#define FORGET(pointer) __asm__ volatile("" : "+r"(pointer))
#endif

INLINE acc_t tap_of(const GLOBAL acc_t *taps, int c, int rs) {
#if DTYPE == 4
    return taps[c / 4 * (R * S) + rs] << (24 - c % 4 * 8) >> 24;
#else
    return taps[c * (R * S) + rs];
#endif
}

// acc += the products of line i of the tile: a loaded vector is multiplied by the taps of all output rows that it lies
// under. `whole`: that is all of them.
INLINE void add_line(vec acc[TK][TH][TW], const acc_t *line, const int columns[TW], const GLOBAL acc_t *taps, int c,
                     int i, int whole) {
    FORGET(taps);
    UNROLL for (int s = 0; s < S; s++) {
        vec x[TW];
        UNROLL for (int j = 0; j < TW; j++) x[j] = load_columns(line + i * LINE + columns[j] * STR_W, s);
        UNROLL for (int b = 0; b < TH; b++) {
            const int down = i - b * STR_H;
            if (!whole && (down < 0 || down >= R * DIL_H || down % DIL_H)) continue;
            UNROLL for (int a = 0; a < TK; a++) {
                acc_t tap = tap_of(taps + a * (CW * R * S), c, down / DIL_H * S + s);
                UNROLL for (int j = 0; j < TW; j++) acc[a][b][j] += tap * x[j];
            }
        }
    }
}

// Lines of a tile from `first` on, up to `end`, that are multiplied.
typedef struct {
    int first, end;
} Lines;

#define TAPS (TK * CW * R * S)  // of a tile's channels, neighbours in memory

// Those in the image, of a tile whose first line is row h; all if 0 times some tap is not 0.
INLINE Lines lines_met(const GLOBAL acc_t *taps, int h) {
    Lines met = {0, SEEN_H};
#if SKIP_LINES
    int finite = 1;
#if DTYPE != 4
    vec sum;
    vec_zero(&sum);
    NO_UNROLL for (int i = 0; i < TAPS; i += VECTOR) sum += vec_load(taps + least(i, TAPS - VECTOR)) * (acc_t)0;
    UNROLL for (int i = 0; i < VECTOR; i++) finite &= sum[i] == 0;
#endif
    if (finite) met.first = most(-h, 0), met.end = least(H - h, SEEN_H);
#endif
    return met;
}

// acc += the products of channel c; `line` is the tile's first, columns[j] where its vector j begins.
INLINE void add_channel(vec acc[TK][TH][TW], const acc_t *line, const int columns[TW], const GLOBAL acc_t *taps,
                        int c, Lines met) {
#define ADD_SOME(i) \
    if (!SKIP_LINES || ((i) >= met.first && (i) < met.end)) add_line(acc, line, columns, taps, c, i, 0)
#if !ROLLED
    UNROLL for (int i = 0; i < SEEN_H; i++) ADD_SOME(i);
#elif TH == 1  // a large filter: a loop over its rows
    NO_UNROLL for (int r = CEIL_DIV(met.first, DIL_H); r < CEIL_DIV(met.end, DIL_H); r++)
        add_line(acc, line, columns, taps, c, r * DIL_H, 1);
#else  // of stride 1: a loop over the lines that lie under all output rows, between those at both ends
    UNROLL for (int i = 0; i < TH - 1; i++) ADD_SOME(i);
    NO_UNROLL for (int i = most(TH - 1, met.first); i < least(R, met.end); i++)
        add_line(acc, line, columns, taps, c, i, 1);
    UNROLL for (int i = R; i < SEEN_H; i++) ADD_SOME(i);
#endif
}

INLINE void store_vector(Epilogue ep, int k, offset_t to, const vec *v) {
#if Q < VECTOR
    acc_t one[VECTOR];
    vec_unpack(one, *v);
    UNROLL for (int i = 0; i < Q; i++) finish_one(ep, k, to + i, one[i]);
#else
    finish_columns(ep, k, to, v);
#endif
}

HOT void make_item(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
                   const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y, offset_t item SCALE_PARAMETER) {
    acc_t lines[CG * LINES * LINE] __attribute__((aligned(64)));
    const Epilogue ep = {bias, z, y SCALE_ARGUMENT};
    Item at = find_item(item);
    int h0 = at.p * STR_H - PAD_T, w0 = at.q * STR_W - PAD_L;
    NO_UNROLL for (int c = 0; c < CG; c++)
        NO_UNROLL for (int i = 0; i < LINES; i++) {
            int inside = (unsigned)(h0 + i) < H;
            offset_t row = X_AT(at.n, at.group * CG + c, inside ? h0 + i : 0, 0);
            if (PREFETCH) prefetch_line(x, at, (c + PREFETCH) * LINES + i);
            copy_line(lines + (c * LINES + i) * LINE, x, row, w0, inside);
        }
    Item next = find_item(item + 1 < ITEMS ? item + 1 : item);
    int rows = least(ITEM_ROWS, P - at.p), width = most(least(ITEM_COLUMNS, Q - at.q), VECTOR), tile = 0;
    NO_UNROLL for (int k0 = 0; k0 < KG; k0 += TK)
        NO_UNROLL for (int p0 = 0; p0 < rows; p0 += TH)
            NO_UNROLL for (int q0 = 0; q0 < width; q0 += TW * VECTOR) {
                int k = at.group * KG + least(k0, KG - TK), p = least(p0, rows - TH), columns[TW];
                UNROLL for (int j = 0; j < TW; j++) columns[j] = least(q0 + j * VECTOR, width - VECTOR);
                const GLOBAL acc_t *taps = w + k * (CW * R * S);
                Lines met = lines_met(taps, h0 + p * STR_H);
                vec acc[TK][TH][TW];
                FOR_TILE(a, b, j) vec_zero(&acc[a][b][j]);
                int from = tile++ * SHARE;
                if (PREFETCH && KG > TK)
                    NO_UNROLL for (int i = from; i < from + SHARE; i++) prefetch_line(x, next, i);
                NO_UNROLL for (int c = 0; c < CG; c++)
                    add_channel(acc, lines + (c * LINES + p * STR_H) * LINE, columns, taps, c, met);
                FOR_TILE(a, b, j)
                    store_vector(ep, k + a, Z_AT(at.n, k + a, at.p + p + b, at.q + columns[j]), &acc[a][b][j]);
            }
}

BOUNDED_KERNEL(grouped, 1, 1)
(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y SCALE_PARAMETER) {
    FOR_EACH(item, ITEMS) make_item(x, w, bias, z, y, item SCALE_ARGUMENT);
}
