// direct on a CPU core:
//   y[n,k,p,q] = epilogue(sum over c,r,s of x[n,c,p*u+r*d-pad,q*u+s*d-pad] * w[k,c,r,s])
//
// x, y: nchw or nhwc.  w: packed [group][k tile of TILE_K][c][r][s][TILE_K].  One work-item is one core.
// Channels c are words of DTYPE (word.h): one each, or four of i8; the copied input is made of words.
//
//   block    BK x BH x BW register tiles; its input tile is copied once, with zeros as padding
//   tile     TK vectors of VECTOR channels  x  TH x TW pixels, all in vector registers
//
//      for each (c, r, s):   f[0..TK) = TK filter vectors, read once from a stream
//                            for each pixel: one input, broadcast, times f: TK multiply-adds
//
//      f0 f1                 acc[k][pixel] += f[k] * x[pixel]
//      x0 -> a00 a10         TK = 2, TW = 14: 28 accumulators + 2 filters + 1 broadcast = 31 of the
//      x1 -> a01 a11         32 registers of AVX-512; 28 multiply-adds for 16 loads, so that the
//      ...                   multiply-add pipe is the limit and not the load ports
//
// The copied input: nchw as planes [c][h][w]; nhwc in runs of CB channels [c / CB][h][w][CB]. Either way the
// inner loops walk a few cache lines. 1x1 layers copy only the pixels that the stride meets, dilated ones not the
// rows between taps that lie further apart than a block is high.
// SKIP_PADDING: a tile skips the rows and columns of the filter that would meet padding alone, unless the filter has a
// NaN or an infinity: times 0 they are NaN. Example: 33x33, dilation 12, TH = 1, TW = 11: 59% of the taps are left.
// Knobs (cpu.py): VECTOR TK TH TW (v, tk, th, tw): a tile; BK BH BW (nk, nh, nw): the tiles of a block; SG COMBINE (sg,
// combine): shares of C; X_SHARED (x): whether the input is copied; CS (cs): so many channels at a time.
// With 16 registers (AVX2): FLAT_TAPS unrolls the taps of a row, since a loop of three costs two cycles a tap; REREAD
// filter vectors of a tile have no register, each multiply-add reads them; AHEAD asks for the next tile's filter, and
// for the next channels, before they are needed. ASK_INPUT: the tiles of a block ask for the next block's input, nchw
// in place; ASK_OUTPUT: a tile for the lines that it stores. What they are follows from the tile. Each tap asks for
// what lies ASK_FILTER further in the filter: a core's own prefetching ends with a page, and begins anew in the next.
// WORKERS work-items draw BLOCKS blocks from a counter, each one block ahead, so that no core waits while there is
// work: how a driver deals out its work-groups (PoCL: in runs, unevenly) does not matter.

#define TILE_K (VECTOR * TK)
#define REGISTER_TILES (BK * BH * BW)
#define TILE_VECTORS (TK * TH * TW)
#define FILTER_TILES CEIL_DIV(K, TILE_K)  // of one group, in w

#include "lanes_memory.h"

#if X_SHARED  // the input tile as it is read: strides TX_C, TX_H, TX_W, and TX_RUN from run to run
#define SOURCE SHARED
#define STEP_H (R == 1 ? 1 : STR_H)
#define STEP_W (S == 1 ? 1 : STR_W)
#define BAND ((HB - 1) * STEP_H + 1)  // rows under the block for one tap: those between two bands are not copied
#define TAP_H (DIL_H < BAND ? DIL_H : BAND)
#define XH ((R - 1) * TAP_H + BAND)
#define XW ((WB - 1) * STEP_W + (S - 1) * DIL_W + 1)
#define TX_C (X_NHWC ? 1 : XH * XW)
#define TX_H (X_NHWC ? XW * CB : XW)
#define TX_W (X_NHWC ? CB : 1)
#define TX_RUN (X_NHWC ? XH * XW * CB : CB * XH * XW)
#else  // in place (f64, f32): no padding, and the last tile of a row lies over its neighbour
#define SOURCE GLOBAL
#define TAP_H DIL_H
#define STEP_H STR_H
#define STEP_W STR_W
#define TX_C (X_NHWC ? 1 : H * W)
#define TX_H (X_NHWC ? W * GROUPS_ * C : W)
#define TX_W (X_NHWC ? GROUPS_ * C : 1)
#define TX_RUN (CB * TX_C)
#endif

#if DOT_BYTES
// VNNI: bytes without a sign times bytes with one. So x + 128 is copied, and 128 times the filter taken off.
#define COPIED(word) ((word) ^ (int)0x80808080)
#if VECTOR == 16
#define DOTS __builtin_ia32_vpdpbusd512
#elif VECTOR == 8
#define DOTS __builtin_ia32_vpdpbusd256
#else
#define DOTS __builtin_ia32_vpdpbusd128
#endif
typedef int bytes_t __attribute__((vector_size(4 * VECTOR)));
#define AS_BYTES(v) __builtin_astype(v, bytes_t)
HOT_INLINE void add_products(wide *sum, const wide *f, acc_t one) {
    *sum = __builtin_astype(DOTS(AS_BYTES(*sum), AS_BYTES((wide)(one)), AS_BYTES(*f)), wide);
}
#else
#define COPIED(word) (word)
HOT_INLINE void add_products(wide *sum, const wide *f, acc_t one) { *sum = mul_add(*f, one, *sum); }
#endif

#if R * S == 1
#define CHANNEL_LOOP UNROLL_BY(4)
#define FORGET(pointer)
#else  // inputs that several taps meet would be kept as broadcasts, and so spill accumulators: each tap loads anew
#define CHANNEL_LOOP NO_UNROLL
#if FLAT_TAPS  // nor does it load what the next tap needs
#define FORGET(pointer) __asm__ volatile("" : "+r"(pointer) : : "memory")
#else
#define FORGET(pointer) __asm__("" : "+r"(pointer))
#endif
#endif

#if FLAT_TAPS
#define TAP_LOOP UNROLL
#else
#define TAP_LOOP NO_UNROLL
#endif

#if REREAD
#define READ_AGAIN(fv, f)               \
    __asm__ volatile("" : : : "memory"); \
    UNROLL for (int a = TK - REREAD; a < TK; a++) fv[a] = *(const GLOBAL wide *)(f + a * VECTOR)
#else
#define READ_AGAIN(fv, f)
#endif

#define LINE_BYTES 64
// Lines of the next tile's filter that are asked for with each channel: all, over the tiles that share one.
#define NEXT_LINES CEIL_DIV(RS * TILE_K * ACC_BYTES, BH * BW * LINE_BYTES)
#define NEXT_STEP (NEXT_LINES * LINE_BYTES / ACC_BYTES)
#define LINE_VECTORS (VECTOR * ACC_BYTES < LINE_BYTES ? LINE_BYTES / (VECTOR * ACC_BYTES) : 1)  // of a line
#define ASK_FILTER (2048 / ACC_BYTES)  // half a page further in the filter's stream: asked for before it is read
#define ASK_FOR(p) __builtin_prefetch((const void *)(ulong)(p), 0, 2)  // in the second-level cache; any address
#define ASK_NEAR(p) __builtin_prefetch((const void *)(ulong)(p), 0, 3)  // in the first-level cache
#define ASK_TO_WRITE(p) __builtin_prefetch((const void *)(ulong)(p), 1, 3)
#define ROWS_SEEN ((TH - 1) * STEP_H + (R - 1) * TAP_H + 1)  // rows and columns under a tile
#define COLUMNS_SEEN ((TW - 1) * STEP_W + (S - 1) * DIL_W + 1)

#if X_SHARED
#include "direct_cpu_copy.h"
#endif

// Taps from `first` on, up to `end`, along one side of the filter.
typedef struct {
    int first, end;
} Taps;

// Those whose inputs are not all padding: the first tap's lie at `at` ... at + reach of `size`, each next one's
// `apart` further.
INLINE Taps taps_inside(Taps all, int at, int reach, int size, int apart) {
    int before = -(at + reach), after = size - at;
    Taps in = {before > 0 ? CEIL_DIV(before, apart) : 0, after > 0 ? CEIL_DIV(after, apart) : 0};
    if (in.end > all.end) in.end = all.end;
    return in;
}

// Whether 0 times each number of a filter is 0.
INLINE int all_finite(const GLOBAL acc_t *f, offset_t count) {
    wide sum = (wide)(0);
    NO_UNROLL for (offset_t i = 0; i < count; i += VECTOR) sum += *(const GLOBAL wide *)(f + i) * (acc_t)0;
    int finite = 1;
    UNROLL for (int i = 0; i < VECTOR; i++) finite &= sum[i] == 0;
    return finite;
}

// acc += filter * input, over `count` channels; off += 128 * filter, where the input is that much larger. Lines from
// `next` on are asked for meanwhile.
HOT_INLINE void accumulate(wide acc[TK][TH][TW], wide off[TK], const SOURCE acc_t *xs, const GLOBAL acc_t *filter,
                           int count, Taps rows, Taps columns, const GLOBAL acc_t *next) {
    NO_UNROLL for (int run = 0; run < count; run += CB) {
        const SOURCE acc_t *xc = xs;
        int some = count - run < CB ? count - run : CB;
        CHANNEL_LOOP for (int c = 0; c < some; c++) {
            NO_UNROLL for (int r = rows.first; r < rows.end; r++) {
                const GLOBAL acc_t *f = filter + (r * S + columns.first) * TILE_K;
                const SOURCE acc_t *xr = xc + r * TAP_H * TX_H + columns.first * DIL_W * TX_W;
                TAP_LOOP for (int s = columns.first; s < columns.end; s++, f += TILE_K, xr += DIL_W * TX_W) {
                    FORGET(xr);
                    wide fv[TK];
                    UNROLL for (int a = 0; a < TK - REREAD; a++) fv[a] = *(const GLOBAL wide *)(f + a * VECTOR);
                    UNROLL for (int a = 0; a < TK; a += LINE_VECTORS) ASK_NEAR(f + ASK_FILTER + a * VECTOR);
                    if (DOT_BYTES) UNROLL for (int a = 0; a < TK; a++) add_products(&off[a], &fv[a], COPIED(0));
                    UNROLL for (int b = 0; b < TH; b++)
                        UNROLL for (int i = 0; i < TW; i++) {
                            READ_AGAIN(fv, f);
                            acc_t one = xr[b * STEP_H * TX_H + i * STEP_W * TX_W];
                            UNROLL for (int a = 0; a < TK; a++) add_products(&acc[a][b][i], &fv[a], one);
                        }
                }
            }
            filter += RS * TILE_K;
#if AHEAD && !X_SHARED && !X_NHWC && RS > 1 && DIL_H == 1  // of the next channel but one, most often a page away
            UNROLL_BY(4) for (int h = 0; h < ROWS_SEEN; h++) {
                const SOURCE acc_t *row = xc + 2 * TX_C + h * TX_H;
                ASK_NEAR(row);
                ASK_NEAR(row + COLUMNS_SEEN - 1);
            }
#endif
#if AHEAD && RS > 1
            UNROLL for (int i = 0; i < NEXT_LINES; i++) ASK_FOR(next + i * (LINE_BYTES / ACC_BYTES));
            next += NEXT_STEP;
#endif
            xc += TX_C;
        }
        xs += TX_RUN;
    }
}

#define SHARE_OF_TILE CEIL_DIV(STEPS * CS, REGISTER_TILES)

INLINE int same_input(Place a, Place b) {
    return a.n == b.n && a.group == b.group && a.p0 == b.p0 && a.q0 == b.q0 && a.sg == b.sg;
}

// Ask for some channels of the input of a block that is read in place: of each few lines, too few to be foreseen.
INLINE void ask_for_input(const GLOBAL in_t *x, Place at, int first, int count) {
    int c0 = FIRST_CHANNEL(at), end = first + count < C - c0 ? first + count : C - c0;
    int columns = (BW * TW - 1) * STR_W + (S - 1) * DIL_W + 1, left = at.q0 * STR_W;
    int top = at.p0 * STR_H, rows = (BH * TH - 1) * STR_H + (R - 1) * DIL_H + 1;
    if (columns > W - left) columns = W - left;
    if (rows > H - top) rows = H - top;
    NO_UNROLL for (int c = first; c < end; c++)
        NO_UNROLL for (int h = top; h < top + rows; h += R == 1 ? STR_H : 1) {
            const GLOBAL in_t *row = x + X_AT(at.n, at.group * CG + c0 + c, h, left);
            NO_UNROLL for (int i = 0; i < columns; i += LINE_BYTES / (int)sizeof(in_t)) ASK_FOR(row + i);
            ASK_FOR(row + columns - 1);
        }
}

#include "direct_cpu_store.h"

// Ask for the lines of y under a tile: each store would wait for a line that is not in a cache.
INLINE void ask_for_output(GLOBAL done_t *y, Place at, int k, int p, int q) {
    const int line = LINE_BYTES / (int)sizeof(done_t);
    GLOBAL done_t *first = y + Z_AT(at.n, at.group * K + at.k0 + k, at.p0 + p, at.q0 + q);
#if Y_NHWC
    UNROLL for (int b = 0; b < TH; b++)
        UNROLL for (int i = 0; i < TW; i++)
            UNROLL for (int a = 0; a < TILE_K; a += line)
                ASK_TO_WRITE(first + (offset_t)(b * Q + i) * (GROUPS_ * K) + a);
#else
    NO_UNROLL for (int a = 0; a < TILE_K; a++)
        UNROLL for (int b = 0; b < TH; b++)
            UNROLL for (int i = 0; i < TW; i += line) ASK_TO_WRITE(first + ((offset_t)a * P + b) * Q + i);
#endif
}

// One block, with its share of C.
HOT void run_block(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w,
                   const GLOBAL out_t *RESTRICT bias, const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y,
                   GLOBAL acc_t *RESTRICT partial, GLOBAL unsigned *RESTRICT arrived,
                   SHARED acc_t *RESTRICT shared, Place at, Place soon SCALE_PARAMETER) {
    int c0 = FIRST_CHANNEL(at), channels = C - c0 < STEPS * CS ? C - c0 : STEPS * CS;
    GLOBAL acc_t *parts = partial + (offset_t)at.tile * (SG * REGISTER_TILES * TILE_VECTORS * VECTOR);
    const Epilogue ep = {bias, z, y SCALE_ARGUMENT};
    int finite = 1;
    for (int pass = 0; pass < (COMBINE == LAST ? 2 : 1); pass++) {
        if (pass == 1) {
            if (atomic_count(&arrived[2 + at.tile]) != SG - 1) return;
            FENCE();  // what others wrote before they arrived is read after
        }
        NO_UNROLL for (int t = 0; t < REGISTER_TILES; t++) {
            int k = t / (BH * BW) * TILE_K, p = t / BW % BH * TH, q = t % BW * TW, first_b = 0, first_i = 0;
            if (at.k0 + k >= K || at.p0 + p >= P || at.q0 + q >= Q) continue;
            offset_t filter = (offset_t)(at.group * FILTER_TILES + (at.k0 + k) / TILE_K) * C_PADDED;
            const GLOBAL acc_t *f = w + (filter + c0) * (RS * TILE_K);
            const GLOBAL acc_t *next = f + (k + TILE_K < TILE_K * BK ? (offset_t)C_PADDED * (RS * TILE_K) : 0);
            next += (offset_t)(t % (BH * BW)) * channels * NEXT_STEP;
#if ASK_INPUT
            if (pass == 0 && !same_input(at, soon)) ask_for_input(x, soon, t * SHARE_OF_TILE, SHARE_OF_TILE);
#endif
            if (ASK_OUTPUT) ask_for_output(y, at, k, p, q);
            wide acc[TK][TH][TW], off[TK];
            FOR_TILE(a, b, i) acc[a][b][i] = (wide)(0);
            UNROLL for (int a = 0; a < TK; a++) off[a] = (wide)(0);
#if !X_SHARED
            if (at.p0 + p + TH > P) first_b = at.p0 + p + TH - P, p -= first_b;
            if (at.q0 + q + TW > Q) first_i = at.q0 + q + TW - Q, q -= first_i;
#endif
            if (pass == 0) {
                int h = (at.p0 + p) * STR_H - PAD_T, left = (at.q0 + q) * STR_W - PAD_L;
                Taps rows = {0, R}, columns = {0, S};
#if SKIP_PADDING
                if (t % (BH * BW) == 0) finite = DTYPE == 4 || all_finite(f, (offset_t)channels * (RS * TILE_K));
                if (finite) {
                    rows = taps_inside(rows, h, (TH - 1) * STR_H, H, DIL_H);
                    columns = taps_inside(columns, left, (TW - 1) * STR_W, W, DIL_W);
                }
#endif
#if X_SHARED
                NO_UNROLL for (int c = 0; c < channels; c += CS) {
                    int some = channels - c < CS ? channels - c : CS;
                    if (STEPS > 1 || t == 0) copy_input(shared, x, at, c0 + c, some);
                    accumulate(acc, off, shared + p * STEP_H * TX_H + q * STEP_W * TX_W,
                               f + (offset_t)c * (RS * TILE_K), some, rows, columns, next + (offset_t)c * NEXT_STEP);
                }
#else
                accumulate(acc, off, x + X_AT(at.n, at.group * CG + c0, h, left), f, channels, rows, columns,
                           next);
#endif
                if (DOT_BYTES) FOR_TILE(a, b, i) acc[a][b][i] -= off[a];
            }
#if COMBINE == LAST  // the block that arrives last adds up all shares, in a fixed order
#define PART(g, a, b, i) \
    *(GLOBAL wide *)(parts + (((g) * REGISTER_TILES + t) * TILE_VECTORS + ((a) * TH + (b)) * TW + (i)) * VECTOR)
            if (pass == 0) {
                FOR_TILE(a, b, i) PART(at.sg, a, b, i) = acc[a][b][i];
                continue;
            }
            NO_UNROLL for (int g = 0; g < SG; g++) FOR_TILE(a, b, i) acc[a][b][i] += PART(g, a, b, i);
#endif
            store_tile(ep, at, k, p, q, first_b, first_i, acc);
        }
        FENCE();
    }
    if (COMBINE == LAST) arrived[2 + at.tile] = 0;  // ready for the next run
}

BOUNDED_KERNEL(direct, 1, 1)
(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y, GLOBAL acc_t *RESTRICT partial,
 GLOBAL unsigned *RESTRICT arrived SCALE_PARAMETER) {
    SHARED_ARRAY(shared);
    int id = atomic_count(&arrived[0]), next;
    if (ASK_INPUT && id < BLOCKS) ask_for_input(x, find_place(id), 0, STEPS * CS);
    for (; id < BLOCKS; id = next) {
        next = atomic_count(&arrived[0]);
        Place at = find_place(id), soon = find_place(next < BLOCKS ? next : id);
        run_block(x, w, bias, z, y, partial, arrived, shared, at, soon SCALE_ARGUMENT);
    }
    if (atomic_count(&arrived[1]) == WORKERS - 1) arrived[0] = arrived[1] = 0;  // ready for the next run
}

#if LINES
#include "direct_cpu_pool.h"
#endif
