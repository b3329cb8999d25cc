// grouped on CPU cores, nhwc to nhwc: lanes over neighbouring output channels (grouped.cu has the formula).
//
// x, y: nhwc.  w: packed [c][r][s][K] (ACROSS) or [group][k tile][c][r][s][VECTOR], in words of DTYPE (word.h), of i8 a
// number each.
//
//   item     ITEM_ROWS x ITEM_COLUMNS pixels of ALONG output channels. The BESIDE input channels under them are copied,
//            each number as acc_t, with zeros as padding: no load below asks where the image ends. And pixels that lie
//            C numbers apart, of which a cache keeps few if C is a power of two, lie side by side
//   tile     TH rows x TW columns of vectors, in registers
//
//      line h      0 0 | x0 x1 x2 x3 ...      a number is BESIDE channels of a pixel
//      line h+1    0 0 | x0 x1 x2 x3 ...      copied when the first row of tiles needs it
//
//      lanes of one group share an input        k0 k1 k2 k3 ...  times  x[c]
//      ACROSS: of several, each has its own     k0 k1 | k2 k3 .. times  x[c] x[c] | x[CG+c] x[CG+c] ..   (a shuffle)
//
// A loaded input is multiplied by the taps of all output rows that it lies under; ROW_STAYS: by those of all columns,
// too, since the inputs of a line stay in registers beside the sums.
// The last tile of an item ends with it: some outputs are made twice, by one thread.
// What limits depthwise layers is how x comes from memory, in pieces of a vector: those of the next item, which are
// neighbours of this one's, are asked for while this one is computed, some with each tile.
// Knobs (spec.py): VECTOR (v 2 .. 16), TH, TW (th, tw): a tile. ITEM_ROWS and ITEM_COLUMNS follow (channels.py).
// Examples: depthwise, 960 channels of 33x33, 5x5 of dilation 2, VECTOR = 16, TH = 1, TW = 7: 60 items of a whole
// image, 41 x 41 vectors copied; a tile is 25 taps of 7 vectors. RX1: groups of 4, VECTOR = 16: of four groups.

#include "loop.h"

#define KB 1
#define HB 1
#define WB 1
#define SEEN_W ((TW - 1) * STR_W + (S - 1) * DIL_W + 1)          // columns under a tile
#define SEEN_H ((TH - 1) * STR_H + (R - 1) * DIL_H + 1)          // lines under it
#define LINES ((ITEM_ROWS - 1) * STR_H + (R - 1) * DIL_H + 1)    // and under an item
#define LINE ((ITEM_COLUMNS - 1) * STR_W + (S - 1) * DIL_W + 1)  // pixels of one
#define ALONG (ACROSS ? VECTOR : KG)
#define BESIDE (ACROSS ? VECTOR : CG)
#define CACHE_LINE (64 / (int)sizeof(in_t))  // numbers of x
#define ITEMS ((offset_t)N * (K / ALONG) * P_BLOCKS * Q_BLOCKS)
#define ITEM_TILES (CEIL_DIV(ITEM_ROWS, TH) * CEIL_DIV(ITEM_COLUMNS, TW))
#define SHARE CEIL_DIV(LINES * LINE, ITEM_TILES)  // pixels asked for with a tile
#define FOR_TILE(b, j) UNROLL for (int b = 0; b < TH; b++) UNROLL for (int j = 0; j < TW; j++)

#include "tile.h"
#include "lanes_memory.h"
#include "grouped_cores.h"

#if ACROSS
typedef vec input;
typedef const acc_t *taps_t;  // copied: vectors of all taps side by side
#else
typedef acc_t input;
typedef const GLOBAL acc_t *taps_t;
#endif

// Input channel c of each lane's group, or of the one that all lanes share.
INLINE input load_input(const acc_t *from, int c) {
#if !ACROSS
    return from[c];
#elif CG == 1
    return vec_load(from);
#else
    acc_t all[VECTOR], own[VECTOR];
    vec_unpack(all, vec_load(from));
    UNROLL for (int i = 0; i < VECTOR; i++) own[i] = all[i / KG * CG + c];
    return vec_pack(own);
#endif
}

typedef struct {
    int n, k, c, p, q;
} Item;

INLINE Item find_item(offset_t i) {
    Item at;
    at.k = i % (K / ALONG) * ALONG;
    at.c = i % (K / ALONG) * BESIDE;
    i /= K / ALONG;
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

INLINE void copy_pixel(acc_t *to, const GLOBAL in_t *from) {
#if BESIDE % VECTOR == 0
    UNROLL for (int u = 0; u < BESIDE; u += VECTOR) vec_store(to + u, load_lanes(from + u));
#else
    UNROLL for (int u = 0; u < BESIDE; u++) to[u] = widened(from[u]);
#endif
}
INLINE void copy_zeros(acc_t *to) { UNROLL for (int u = 0; u < BESIDE; u++) to[u] = 0; }

// Copy line i under an item, or zeros.
INLINE void copy_line(acc_t *line, const GLOBAL in_t *x, Item at, Window under, int i) {
    const int h = under.h + i, inside = (unsigned)h < H;
    const int left = inside ? under.left : LINE, right = inside ? under.right : LINE;
    const GLOBAL in_t *from = x + X_AT(at.n, at.c, inside ? h : 0, 0);
    NO_UNROLL for (int j = 0; j < left; j++) copy_zeros(line + j * BESIDE);
    NO_UNROLL for (int j = left; j < right; j++) copy_pixel(line + j * BESIDE, from + (offset_t)(under.w + j) * C_ALL);
    NO_UNROLL for (int j = right; j < LINE; j++) copy_zeros(line + j * BESIDE);
}

#if ACROSS
INLINE void copy_taps(acc_t *taps, const GLOBAL acc_t *w) {
    NO_UNROLL for (int i = 0; i < CG * R * S; i++) {
        vec tap = vec_load(w + i * K);
#if DTYPE == 4
        tap = tap << 24 >> 24;
#endif
        vec_store(taps + i * VECTOR, tap);
    }
}
#endif

// The input of an item that is yet to come: the next pixel to ask for is j of line i.
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

// Ask for SHARE pixels of its input, and for its outputs of the tile p, q, from its channel k on.
INLINE void ask_ahead(Ahead *next, const GLOBAL in_t *x, const GLOBAL done_t *y, int k, int p, int q) {
    const GLOBAL in_t *from = x + X_AT(next->at.n, next->at.c, next->under.h + next->i, next->under.w);
    NO_UNROLL for (int i = 0; i < SHARE && next->i < LINES && next->under.h + next->i < H; i++) {
        UNROLL for (int u = 0; u < BESIDE; u += CACHE_LINE)
            __builtin_prefetch((const GLOBAL void *)(from + (offset_t)next->j * C_ALL + u));
        if (++next->j < next->under.right) continue;
        next->j = next->under.left;
        next->i++, from += (offset_t)W * C_ALL;
    }
    FOR_TILE(b, j) {
        const offset_t to = Z_AT(next->at.n, next->at.k + k, next->at.p + p + b, next->at.q + q + j);
        __builtin_prefetch((const GLOBAL void *)(y + to), 1);
    }
}

// The compiler forgets what it read through a pointer: it would keep that in registers, and so spill it.
#define FORGET(pointer) __asm__ volatile("" : "+r"(pointer))

// acc += the products of line i of the tile with the taps of input channel c.
INLINE void add_line(vec acc[TH][TW], const acc_t *line, taps_t taps, int c, int i) {
    FORGET(taps);
    UNROLL for (int s = 0; s < S; s++) {
        input x[TW];
        if (!ROW_STAYS) FORGET(line);
        UNROLL for (int j = 0; j < TW; j++) x[j] = load_input(line + (j * STR_W + s * DIL_W) * BESIDE, c);
        UNROLL for (int b = 0; b < TH; b++) {
            const int down = i - b * STR_H;
            if (down < 0 || down % DIL_H || down / DIL_H >= R) continue;
            const vec tap = vec_load(taps + (down / DIL_H * S + s) * VECTOR);
            UNROLL for (int j = 0; j < TW; j++) acc[b][j] += tap * x[j];
        }
    }
}

INLINE void add_channel(vec acc[TH][TW], const acc_t *line, taps_t taps, int c) {
    taps += c * (R * S * VECTOR);
    FORGET(line);
#if ROLLED
    NO_UNROLL for (int r = 0; r < R; r++)
        add_line(acc, line + r * (DIL_H * LINE * BESIDE), taps + r * (S * VECTOR), c, 0);
#else
    UNROLL for (int i = 0; i < SEEN_H; i++) add_line(acc, line + i * (LINE * BESIDE), taps, c, i);
#endif
}

HOT void make_item(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
                   const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y, offset_t item SCALE_PARAMETER) {
    acc_t lines[LINES * LINE * BESIDE] __attribute__((aligned(64)));
    const Epilogue ep = {bias, z, y SCALE_ARGUMENT};
    Item at = find_item(item);
    Window under = find_window(at);
    Ahead next = find_ahead(item + 1);
#if ACROSS
    acc_t taps[CG * R * S * VECTOR] __attribute__((aligned(64)));
    copy_taps(taps, w + at.k);
#endif
    const int rows = least(ITEM_ROWS, P - at.p), width = least(ITEM_COLUMNS, Q - at.q);
    int copied = 0;
    NO_UNROLL for (int k = at.k; k < at.k + ALONG; k += VECTOR)
        NO_UNROLL for (int p0 = 0; p0 < rows; p0 += TH) {
            const int p = least(p0, rows - TH);
            NO_UNROLL for (; copied < p * STR_H + SEEN_H; copied++)
                copy_line(lines + copied * (LINE * BESIDE), x, at, under, copied);
            NO_UNROLL for (int q0 = 0; q0 < width; q0 += TW) {
                const int q = least(q0, width - TW);
                const acc_t *line = lines + (p * STR_H * LINE + q * STR_W) * BESIDE;
                vec acc[TH][TW];
                FOR_TILE(b, j) vec_zero(&acc[b][j]);
                ask_ahead(&next, x, y, k - at.k, p, q);
#if ACROSS
                UNROLL for (int c = 0; c < CG; c++) add_channel(acc, line, taps, c);
#else
                NO_UNROLL for (int c = 0; c < CG; c++) add_channel(acc, line, w + (offset_t)k * CG * (R * S), c);
#endif
                FOR_TILE(b, j)
                    finish_channels(ep, k, Z_AT(at.n, k, at.p + p + b, at.q + q + j), &acc[b][j]);
            }
        }
}

BOUNDED_KERNEL(grouped, 1, 1)
(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y SCALE_PARAMETER) {
    FOR_EACH(item, ITEMS) make_item(x, w, bias, z, y, item SCALE_ARGUMENT);
}
