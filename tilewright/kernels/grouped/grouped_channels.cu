// grouped on CPU cores, depthwise, nhwc to nhwc: lanes over neighbouring channels (grouped.cu has the formula).
//
// x, y: nhwc.  w: packed [r][s][K] in words of DTYPE (word.h; of i8 a number each).
//
//   item     ITEM_ROWS x ITEM_COLUMNS pixels of VECTOR channels. Its input is copied, each number as acc_t, with zeros
//            as padding: no load below asks where the image ends. And pixels that lay C numbers apart, of which a
//            cache keeps few if C is a power of two, lie side by side
//   tile     TH rows x TW columns of vectors, in registers
//
//      line h      0 0 | x0 x1 x2 x3 ...      a number is VECTOR channels of a pixel
//      line h+1    0 0 | x0 x1 x2 x3 ...      copied when the first row of tiles needs it
//
// A loaded vector is multiplied by the taps of all output rows that it lies under; ROW_STAYS: by those of all columns,
// too, since the inputs of a line stay in registers beside the sums.
// The last tile of an item ends with it: some outputs are made twice, by one thread.
// What limits such a layer is how x comes from memory, in pieces of a vector: those of the next item, which are
// neighbours of this one's, are asked for while this one is computed, some with each tile.
// Knobs (spec.py): VECTOR (v 2 .. 16), TH, TW (th, tw): a tile. ITEM_ROWS and ITEM_COLUMNS follow (channels.py).
// Example: 960 channels of 33x33, 5x5 of dilation 2, VECTOR = 16, TH = 1, TW = 7: 60 items of a whole image, 41 x 41
// vectors copied; a tile is 25 taps of 7 vectors.

#include "loop.h"

#define KB 1
#define HB 1
#define WB 1
#define SEEN_W ((TW - 1) * STR_W + (S - 1) * DIL_W + 1)          // columns under a tile
#define SEEN_H ((TH - 1) * STR_H + (R - 1) * DIL_H + 1)          // lines under it
#define LINES ((ITEM_ROWS - 1) * STR_H + (R - 1) * DIL_H + 1)    // and under an item
#define LINE ((ITEM_COLUMNS - 1) * STR_W + (S - 1) * DIL_W + 1)  // vectors of one
#define ITEMS ((offset_t)N * (K / VECTOR) * P_BLOCKS * Q_BLOCKS)
#define UP(a, b) (((a) + (b) - 1) / (b))
#define SHARE UP(LINES * LINE, UP(ITEM_ROWS, TH) * UP(ITEM_COLUMNS, TW))  // vectors asked for with a tile
#define FOR_TILE(b, j) UNROLL for (int b = 0; b < TH; b++) UNROLL for (int j = 0; j < TW; j++)

#include "tile.h"
#include "lanes_memory.h"

typedef struct {
    int n, k, p, q;
} Item;

INLINE int least(int a, int b) { return a < b ? a : b; }
INLINE int most(int a, int b) { return a > b ? a : b; }

INLINE Item find_item(offset_t i) {
    Item at;
    at.k = i % (K / VECTOR) * VECTOR;
    i /= K / VECTOR;
    at.q = least(i % Q_BLOCKS * ITEM_COLUMNS, Q - TW);
    i /= Q_BLOCKS;
    at.p = least(i % P_BLOCKS * ITEM_ROWS, P - TH);
    at.n = i / P_BLOCKS;
    return at;
}

// Columns [left, right) of the lines under an item lie in the image; h, w: of its first input.
typedef struct {
    int h, w, left, right;
} Window;

INLINE Window find_window(Item at) {
    Window under = {at.p * STR_H - PAD_T, at.q * STR_W - PAD_L};
    under.left = least(most(-under.w, 0), LINE);
    under.right = most(least(W - under.w, LINE), under.left);
    return under;
}

// Copy line i under an item, or zeros.
INLINE void copy_line(acc_t *line, const GLOBAL in_t *x, Item at, Window under, int i) {
    const int h = under.h + i, inside = (unsigned)h < H;
    const int left = inside ? under.left : LINE, right = inside ? under.right : LINE;
    const GLOBAL in_t *from = x + X_AT(at.n, at.k, inside ? h : 0, 0);
    vec zeros;
    vec_zero(&zeros);
    NO_UNROLL for (int j = 0; j < left; j++) vec_store(line + j * VECTOR, zeros);
    NO_UNROLL for (int j = left; j < right; j++)
        vec_store(line + j * VECTOR, load_lanes(from + (offset_t)(under.w + j) * C_ALL));
    NO_UNROLL for (int j = right; j < LINE; j++) vec_store(line + j * VECTOR, zeros);
}

INLINE void copy_taps(acc_t *taps, const GLOBAL acc_t *w) {
    NO_UNROLL for (int i = 0; i < R * S; i++) {
        vec tap = vec_load(w + i * K);
#if DTYPE == 4
        tap = tap << 24 >> 24;
#endif
        vec_store(taps + i * VECTOR, tap);
    }
}

// The input of an item that is yet to come: the next vector to ask for is j of line i.
typedef struct {
    Item at;
    Window under;
    int i, j;
} Ahead;

INLINE Ahead find_ahead(offset_t item) {
    Ahead next;
    next.at = find_item(item < ITEMS ? item : ITEMS - 1);
    next.under = find_window(next.at);
    next.i = most(-next.under.h, 0);
    next.j = next.under.left;
    return next;
}

// Ask for SHARE vectors of its input, and for those of y under the tile p, q of it.
INLINE void ask_ahead(Ahead *next, const GLOBAL in_t *x, const GLOBAL done_t *y, int p, int q) {
    const GLOBAL in_t *from = x + X_AT(next->at.n, next->at.k, next->under.h + next->i, next->under.w);
    NO_UNROLL for (int i = 0; i < SHARE && next->i < LINES && next->under.h + next->i < H; i++) {
        __builtin_prefetch((const GLOBAL void *)(from + (offset_t)next->j * C_ALL));
        if (++next->j < next->under.right) continue;
        next->j = next->under.left;
        next->i++, from += (offset_t)W * C_ALL;
    }
    FOR_TILE(b, j) {
        const offset_t to = Z_AT(next->at.n, next->at.k, next->at.p + p + b, next->at.q + q + j);
        __builtin_prefetch((const GLOBAL void *)(y + to), 1);
    }
}

// The compiler forgets what it read through a pointer: it would keep that in registers, and so spill it.
#define FORGET(pointer) __asm__ volatile("" : "+r"(pointer))

// acc += the products of line i of the tile.
INLINE void add_line(vec acc[TH][TW], const acc_t *line, const acc_t *taps, int i) {
    FORGET(taps);
    UNROLL for (int s = 0; s < S; s++) {
        vec x[TW];
        if (!ROW_STAYS) FORGET(line);
        UNROLL for (int j = 0; j < TW; j++) x[j] = vec_load(line + (j * STR_W + s * DIL_W) * VECTOR);
        UNROLL for (int b = 0; b < TH; b++) {
            const int down = i - b * STR_H;
            if (down < 0 || down % DIL_H || down / DIL_H >= R) continue;
            const vec tap = vec_load(taps + (down / DIL_H * S + s) * VECTOR);
            UNROLL for (int j = 0; j < TW; j++) acc[b][j] += tap * x[j];
        }
    }
}

INLINE void store_vector(GLOBAL done_t *y, const GLOBAL out_t *bias, const GLOBAL out_t *z, int k, offset_t to,
                         const vec *v SCALE_PARAMETER) {  // by its address: HOT may have wider registers
    store_channels(y + to, finish_channels(*v, bias, k, z, to), k);
}

HOT void make_item(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
                   const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y, offset_t item SCALE_PARAMETER) {
    acc_t lines[LINES * LINE * VECTOR] __attribute__((aligned(64))), taps[R * S * VECTOR] __attribute__((aligned(64)));
    Item at = find_item(item);
    Window under = find_window(at);
    Ahead next = find_ahead(item + 1);
    copy_taps(taps, w + at.k);
    const int rows = least(ITEM_ROWS, P - at.p), width = least(ITEM_COLUMNS, Q - at.q);
    int copied = 0;
    NO_UNROLL for (int p0 = 0; p0 < rows; p0 += TH) {
        const int p = least(p0, rows - TH);
        NO_UNROLL for (; copied < p * STR_H + SEEN_H; copied++)
            copy_line(lines + copied * (LINE * VECTOR), x, at, under, copied);
        NO_UNROLL for (int q0 = 0; q0 < width; q0 += TW) {
            const int q = least(q0, width - TW);
            const acc_t *line = lines + (p * STR_H * LINE + q * STR_W) * VECTOR;
            vec acc[TH][TW];
            FOR_TILE(b, j) vec_zero(&acc[b][j]);
            ask_ahead(&next, x, y, p, q);
#if ROLLED
            NO_UNROLL for (int r = 0; r < R; r++)
                add_line(acc, line + r * (DIL_H * LINE * VECTOR), taps + r * (S * VECTOR), 0);
#else
            UNROLL for (int i = 0; i < SEEN_H; i++) add_line(acc, line + i * (LINE * VECTOR), taps, i);
#endif
            FOR_TILE(b, j)
                store_vector(y, bias, z, at.k, Z_AT(at.n, at.k, at.p + p + b, at.q + q + j), &acc[b][j] SCALE_ARGUMENT);
        }
    }
}

BOUNDED_KERNEL(grouped, 1, 1)
(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y SCALE_PARAMETER) {
    FOR_EACH(item, ITEMS) make_item(x, w, bias, z, y, item SCALE_ARGUMENT);
}
