// Tiles of the hopper family: patches of x, products of a step. Where they lie in shared memory, and how large they and
// the tile of sums are, layout.py says: X_FROM to BARS_FROM, W_BYTES, X_BYTES, SLOW, PITCH and more.
//
// Knobs (spec.py has their values, rules.py what goes together, docs/families.md what each buys):
//   WM WN WG_N           wm, wn 1 .. 4, bn: warpgroups over channels, 64 each, and over pixels; pixels of one: 8 .. 256
//   CHUNKS BATCH         chunks 2 .. 16: pieces of 16 bytes of the sum in a step (x = 2: all of it); batch: steps that
//                        share a barrier
//   STAGES X_STAGES      stages 2 .. 24, xs 1 .. 8: batches of filters, and patches, that are on their way or in use
//   SWIZZLED             pieces: 1: as the tensor cores swizzle rows; 0: pieces apart
//   TALL                 tall: a tile is a rectangle of pixels, not a run of the raster
//   X_WAY                x, how the input comes: ways.py names the ways
//   COPIES SC SG         cm, sc, sg: blocks of a cluster that share filters; shares of the sum in cluster and grid
//   COMBINE MIN_BLOCKS   combine: how shares of the grid meet (tile.h); mb 1 .. 3: blocks of a unit
// What follows from them:
//   MAPPED JOINT         x comes by its tensor map; and each step's patch with its filters (1x1, TAPWISE, SPAN)
//   STAYS EARLY          blocks take tile after tile; the first patches are sent for by a thread of their own
//   FINISH STORES        who finishes sums, and how they are stored (below)
//   PAIRED TIGHT         a thread's two rows of a product are neighbouring channels; registers are few
//   HR WR PHASES_*       the raster, and its phases of a stride
//   LINES LINE SPAN      lines of a patch and places of each; of x in nchw as it is: pixels of a span that are used
//   CC K_GROUP PX_TILES  pieces of a pixel's channels; tiles of channels that blocks take together; tiles of pixels

#define TEAMS (WM * WN)
#define WORKERS (128 * TEAMS + (MAPPED ? 32 : 128))
#define THREADS (SLID ? 128 * TEAMS + 128 : WORKERS)  // warps more hand on their registers, as a warpgroup does
#define X_THREADS 96
#define KB (64 * WM)
#define NB (WG_N * WN)
#define HB 1  // the tile of pixels, as tile.h has it: one row
#define WB NB
#define GATHERS (X_WAY == 2)
#define TURNS (X_WAY == 5)                   // x is nchw: threads make pieces of it (hopper_turn.h: of runs of pixels)
#define TAPWISE (X_WAY == 6)                 // x comes anew for each tap: pixels under outputs alone
#define SLID (X_WAY == 7)                    // x is nchw: columns of the filter have sums of their own (hopper_slide.h)
#define TAPS (GATHERS ? 1 : R * S)           // steps of a run of channels; and of a patch, unless each has its own
#define OF_LEAD (STEPS / LEADS)              // steps of channels that begin alike (hopper_lead.h)
#define ROW_PITCH (SWIZZLED ? CHUNKS * 16 : 16)    // bytes from one row of a tile to the next
#define W_NEXT (KB * 16)                     // and from one piece to the next, where they lie apart
#define EACH (16 / (int)sizeof(x_t))         // numbers of a piece
#define X_PARTS (MAPPED ? PARTS : 1)         // of numbers in x: who copied it has split them
#define PATCH (LINES * LINE)                 // places of a phase: lines of the raster, or of all of it one
#define PLACES (PHASES_H * PHASES_W * PATCH)
#define ITEMS (PLACES * CHUNKS)              // pieces of a patch
#define AT_ONCE (TURNS ? 64 / EACH : 8)      // pieces of a thread under way at once
#define THROUGH_REGISTERS (TURNS || (ROUNDED && X_PARTS == 1))  // what is copied goes
// Barriers.
#define W_FULL(slot) (shared + BARS_FROM + (slot) * 8)
#define W_EMPTY(slot) W_FULL(STAGES + (slot))
#define X_FULL(slot) W_FULL(2 * STAGES + (slot))
#define X_EMPTY(slot) W_FULL(2 * STAGES + X_BARS + (slot))
#define FIRST W_FULL(2 * (STAGES + X_BARS))
#define MEET W_FULL(2 * (STAGES + X_BARS) + 1)
// Who finishes the sums of a tile (FINISH, finish.py): all threads, from a tile of sums (hopper_store.h); those who
// have them; or each block of a cluster those of some pixels (hopper_own.h).
#define BY_TILE 0
#define OWN 1
#define MET 2
// How those who have sums store them (STORES, hopper_own.h).
#define STORE_WORDS 0
#define STORE_ROWS 1
#define STORE_PLANES 2
// Which of a warp's 16 channels a lane's first row of a product is, and how many further on the second (wgmma.h).
#define FIRST_OF(lane) (PAIRED ? (lane) / 4 * 2 : (lane) / 4)
#define SECOND (PAIRED ? 1 : 8)
// Rows and columns of the sum in a tile: of a rectangle; else whole ones in a tile that begins with one.
#define TILE_ROWS (TALL ? WN : NB < Q ? 0 : (NB - Q) / WR + 1)
#define TILE_COLUMNS (TALL ? WG_N : Q)
#define TILE_WIDTH (TALL ? WG_N : WR)        // from one row of it to the next
#define TILES (GROUPS_ * K_TILES * PX_TILES)
#define WAITS_LATE 1

#ifdef __CUDACC__
#define TURNS_RUNS (SEGMENTS > 0)  // of pixels, by way of shared memory (hopper_turn.h); else number by number
#define X_IS_MAP (MAPPED || TURNS_RUNS)
#define KEPT 1  // a block's share of its own rows of the tile stays where it is
#define BY_COLUMNS SLID  // columns of the filter have sums of their own; elsewhere x is copied tap by tap
#else
#define TURNS_RUNS 0
#define X_IS_MAP 0
#define KEPT 0
#define BY_COLUMNS 0
#endif

#include "tile.h"
#include "hopper.h"

#define FIRST_STEP(share) (FIRST_OF_SHARE(share, STEPS / BATCH) * BATCH)  // of a share of the sum

typedef struct {
    int id;               // of the tile, and of who shares it
    int channels, px0;    // first output: of the group, and in the raster
    int copy, sc, sg;     // numbers among the blocks that share filters, and the sum
    int first, last;      // steps
    const GLOBAL unsigned char *x, *w;  // x: or its tensor map
    const GLOBAL int *x_moved, *w_moved;  // how far x was moved, and each row of the filter (HALVES); its sums (SLID)
    Place at;             // for tile.h
} Block;

INLINE Block find_block(int id, const GLOBAL x_t *x, const GLOBAL unsigned char *w, const GLOBAL int *x_moved) {
    Block b;
    b.id = id;
    b.copy = id % COPIES;
    b.sc = id / COPIES % SC;
    b.sg = id / CLUSTER % SG;
    int rest = id / CLUSTER / SG, k_tile = rest % K_GROUP;
    rest /= K_GROUP;
    int px_tile = rest % (PX_TILES / COPIES) * COPIES + b.copy;
    rest /= PX_TILES / COPIES;
    k_tile += rest % (K_TILES / K_GROUP) * K_GROUP;
    int group = rest / (K_TILES / K_GROUP), share = b.sg * SC + b.sc;
    b.channels = k_tile * KB;
    b.px0 = px_tile * NB;
    if (TALL || POOL_HERE) {  // a tile lies within an image
        const int n = px_tile / (P_TILES * Q_TILES), p_tile = px_tile / Q_TILES % P_TILES;
        b.px0 = (n * HR + p_tile * FORWARD(TILE_ROWS)) * WR + px_tile % Q_TILES * FORWARD(TILE_COLUMNS);
    }
    b.first = FIRST_STEP(share), b.last = FIRST_STEP(share + 1);
    b.x = (const GLOBAL unsigned char *)x;  // of pieces those of the group
    if (!(GATHERS || X_IS_MAP || SPAN || TURNS)) b.x += (offset_t)group * (X_PARTS * CC * 16);
    b.w = w + (offset_t)(group * K_TILES + k_tile) * STEPS * W_BYTES;
    b.x_moved = x_moved;  // rows of the filter: behind all tiles
    b.w_moved = (const GLOBAL int *)(w + (offset_t)(GROUPS_ * K_TILES) * STEPS * W_BYTES);
    b.w_moved += (group * K_TILES + k_tile) * KB * (SLID ? 2 : 1);
    b.at.group = group, b.at.sc = b.sc, b.at.sg = b.sg, b.at.tile = (group * K_TILES + k_tile) * PX_TILES + px_tile;
    return b;
}

// Go on with the next tile, if blocks stay and there is one.
INLINE int next_tile(Block *b, const GLOBAL unsigned char *w) {
    const int next = b->id + GROUPS(0);
    if (!STAYS || next >= TILES) return 0;
    *b = find_block(next, (const GLOBAL x_t *)b->x, w, b->x_moved);
    return 1;
}

// Where place `row` of a patch is in x, in pieces, or in numbers where it is turned; -1 where there is nothing.
// TAPWISE: of the patch of tap `tap`.
INLINE int find_pixel(int px0, int row, int tap) {
    const int place = px0 + row % PATCH / LINE * WR + row % LINE, phase = row / PATCH;
    const int q = place % WR, p = place / WR % HR, n = place / (WR * HR);
    const int h = p * STR_H + phase / PHASES_W + tap / S * DIL_H - PAD_T;
    const int v = q * STR_W + phase % PHASES_W + tap % S * DIL_W - PAD_L;
    if (n >= N || (unsigned)h >= H || (unsigned)v >= W) return -1;
    return TURNS ? (n * (GROUPS_ * C) * H + h) * W + v : ((n * H + h) * W + v) * (GROUPS_ * X_PARTS * CC);
}

#if LEADS > 1
#include "hopper_lead.h"
#endif

// Which pixel of y output `px` of a tile is; -1 if it is none.
INLINE int find_output(int px0, int px) {
#if LEADS > 1
    return lead_output(px0 + px);
#endif
    const int o = px0 + (TALL ? px / WG_N * WR : px);  // the raster's; of a rectangle the first one of its row
    if (!TALL && WR == Q && HR == P) return o < N * P * Q ? o : -1;  // there are no places between rows
    const int q = o % WR + (TALL ? px % WG_N : 0), p = o / WR % HR, n = o / (WR * HR);
    return q < Q && p < P && n < N ? (n * P + p) * Q + q : -1;
}

#if TURNS_RUNS
#include "hopper_turn.h"
#endif

// Fill the tables, by `count` threads.
INLINE void find_places(shared_t shared, const Block *b, int thread, int count) {
#if TURNS_RUNS
    find_turned(shared, b, thread, count);
#else
    if (!GATHERS && !MAPPED)
        NO_UNROLL for (int row = thread; row < PLACES; row += count)
            write_int(shared, TABLE_FROM + row * 4, find_pixel(b->px0, row, 0));
#endif
    NO_UNROLL for (int px = thread; px < NB && !STAYS; px += count)
        write_int(shared, OUTS_FROM + px * 4, find_output(b->px0, px));
}

// Write a piece of a patch, and its low parts.
INLINE void write_piece(shared_t shared, int to, unsigned words[4]) {
#if ROUNDED && PARTS == 2
    unsigned low[4];
    UNROLL for (int e = 0; e < 4; e++) low[e] = tf32_of(split(&words[e]));
    write16(shared, to + X_BYTES / 2, low);
#endif
    write16(shared, to, words);
}

#if GATHERS
// Few channels: a place is an output, its row of the patch all taps and channels under it, without gaps.
INLINE void gather(shared_t shared, const GLOBAL x_t *x, int px0, int group) {
    const int step_c = X_NHWC ? 1 : H * W, step_w = X_NHWC ? GROUPS_ * C : 1;
    NO_UNROLL for (int row = THREAD(0); row < NB; row += THREADS) {
        const int o = px0 + row, q = o % WR, p = o / WR % HR, n = o / (WR * HR);
        const int h = p * STR_H - PAD_T, v = q * STR_W - PAD_L;
        const GLOBAL x_t *image = x + n * ((offset_t)H * W * (GROUPS_ * C));
        const GLOBAL x_t *from = image + (h * W + v) * (offset_t)step_w + (offset_t)group * C * step_c;
        unsigned taps = 0;  // bit r: row r of the filter meets the image; bit 16 + s: column s
        UNROLL for (int r = 0; r < R; r++) taps |= (unsigned)(n < N && (unsigned)(h + r * DIL_H) < H) << r;
        UNROLL for (int s = 0; s < S; s++) taps |= (unsigned)((unsigned)(v + s * DIL_W) < W) << (16 + s);
        UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++) {
            unsigned words[4] = {0, 0, 0, 0};
            UNROLL for (int e = 0; e < EACH; e++) {
                const int i = chunk * EACH + e, r = i / C / S, s = i / C % S;
                const unsigned need = 1u << r % 16 | 1u << (16 + s);
                const offset_t off = (offset_t)(r * DIL_H * W + s * DIL_W) * step_w + (offset_t)(i % C) * step_c;
                const unsigned bits = i < R * S * C && (taps & need) == need ? BITS_OF(from[off]) : 0;
                words[e * 4 / EACH] |= (EACH == 16 ? bits & 0xff : bits) << (e * (128 / EACH) % 32);
            }
            write_piece(shared, X_FROM + chunk * X_NEXT + row * 16, words);
        }
    }
}
#endif

typedef struct {
    int keep, place, left;  // whether it is in x; where it goes in a patch; channels from its first one on
    const GLOBAL unsigned char *from;
} Piece;

INLINE Piece find_piece(shared_t shared, const Block *b, int step, int item) {
    const int row = TURNS ? item % PLACES : item / CHUNKS, chunk = TURNS ? item / PLACES : item % CHUNKS;
    const int tap = TAPWISE ? step % TAPS : 0, run = TAPWISE ? step / TAPS : step;
    const int pixel = MAPPED ? find_pixel(b->px0, row, tap) : read_int(shared, TABLE_FROM + row * 4);
    const int c = run * CHUNKS + chunk;
    const offset_t plane = b->at.group * C + c * EACH;
    Piece piece;
    piece.keep = pixel >= 0 && (CC % CHUNKS == 0 || c < CC);
    piece.place = piece_at(0, X_NEXT, row, chunk);
    piece.from = b->x;
    if (piece.keep) piece.from += TURNS ? (plane * (H * W) + pixel) * sizeof(x_t) : (offset_t)(pixel + c) * 16;
    piece.left = C - c * EACH;
    return piece;
}

// Load a piece, zeros unless `keep`; its channels are whole planes apart where it is turned.
INLINE void load_piece(unsigned words[4], Piece piece, int keep) {
#if TURNS
    const GLOBAL x_t *from = (const GLOBAL x_t *)piece.from;
    UNROLL for (int e = 0; e < 4; e++) words[e] = 0;
    UNROLL for (int e = 0; e < EACH; e++) {
        const unsigned bits = keep && (C % EACH == 0 || e < piece.left) ? from[(offset_t)e * (H * W)] : 0;
        words[e * 4 / EACH] |= (EACH == 16 ? bits & 0xff : bits) << (e * (128 / EACH) % 32);
    }
#else
    load16(words, piece.from, keep);
#endif
}

#if SPAN && !defined(__CUDACC__)
// Copy the spans of a step, as span_copy would (hopper_send.h); what begins anywhere straight to its columns.
INLINE void copy_spans(shared_t shared, int to, const Block *b, int step) {
#if LEADS > 1
    for (int item = THREAD(0); item < PATCH * CHUNKS * 8; item += THREADS) {
        const int k = item % (CHUNKS * 8), px = item / (CHUNKS * 8);
        const int place = b->px0 + px / LINE * SPAN + px % LINE, pixel = lead_pixel(place);
        const int c = lead_channel(b->at.group, step) + k, channel = c * LEADS + PLANE_OF(step / OF_LEAD);
        const int keep = px % LINE < SPAN && place / WR < N && pixel < P * Q && channel < GROUPS_ * C;
        const offset_t at = ((offset_t)(place / WR) * (GROUPS_ * C) + channel) * (P * Q) + pixel;
        *(__local ushort *)(shared + plane_at(to, px, k)) = keep ? ((const GLOBAL ushort *)b->x)[at] : 0;
    }
    return;
#endif
    const int run = step / TAPS, r = step % TAPS / S, s = step % S;
    for (int item = THREAD(0); item < PATCH * CHUNKS * 8; item += THREADS) {
        const int k = item % (CHUNKS * 8), px = item / (CHUNKS * 8), o = b->px0 + px / LINE * SPAN;
        const int c = b->at.group * C + run * (CHUNKS * 8) + k, q = o % WR, p = o / WR % HR, n = o / (WR * HR);
        const int h = p * STR_H + r * DIL_H - PAD_T, v = q + px % LINE + s * DIL_W - PAD_L;
        const int keep = n < N && (unsigned)h < H && (unsigned)v < W && c < GROUPS_ * C;
        const offset_t at = (((offset_t)n * (GROUPS_ * C) + c) * H + h) * W + v;
        *(__local ushort *)(shared + plane_at(to, px, k)) = keep ? ((const GLOBAL ushort *)b->x)[at] : 0;
    }
}
#endif

// Copy channels `step` of a patch, or what step `step` reads (TAPWISE), by `count` threads.
INLINE void copy_patch(shared_t shared, int to, const Block *b, int step, int thread, int count) {
#if TURNS_RUNS
    turn_patch(shared, to, b, step, thread, count);
#elif THROUGH_REGISTERS
    NO_UNROLL for (int first = thread; first < ITEMS; first += AT_ONCE * count) {
        unsigned words[AT_ONCE][4];
        int place[AT_ONCE];
        UNROLL for (int i = 0; i < AT_ONCE; i++) {
            const int item = first + i * count;
            const Piece piece = find_piece(shared, b, step, min(item, ITEMS - 1));
            load_piece(words[i], piece, piece.keep && item < ITEMS);
            place[i] = piece.place;
        }
        UNROLL for (int i = 0; i < AT_ONCE; i++) {
            UNROLL for (int e = 0; e < 4; e++) words[i][e] = BITS_OF(words[i][e]);
            if (first + i * count < ITEMS) write_piece(shared, to + place[i], words[i]);
        }
    }
#else
    UNROLL_BY(8) for (int item = thread; item < ITEMS; item += count) {
        const Piece piece = find_piece(shared, b, step, item);
        UNROLL for (int part = 0; part < X_PARTS; part++)
            copy16(shared, to + part * (X_BYTES / X_PARTS) + piece.place, piece.from + part * (CC * 16), piece.keep);
    }
#endif
}

// Sums of a thread. Where numbers are split there are two of an output: of the products of high parts, PROMOTED of
// them at a time added in f32 (tensor cores cut off, and these decide how accurate y is), and of those with a low part,
// 2048 times too large, which tensor cores add up all along: what they cut off is 2^-11 as much.
#define SUM_WORDS ((BY_COLUMNS ? 3 : PARTS) * WG_WORDS)
#define SUMS_OF(s) (BY_COLUMNS ? ((s) + 2) % 3 * WG_WORDS : 0)  // of column s of the filter: the middle one's are first

// Multiply what a step has staged, for tap (r, s). Places in shared memory are in pieces here. Products of whole
// numbers are under way together with those of other steps: the caller begins and commits them.
#define W_SIDES (SWIZZLED ? 2 : W_NEXT / 8)  // from one product to the next: both sides of its 32 bytes
#define X_SIDES (SPAN ? 2 * LINE : SWIZZLED ? 2 : X_NEXT / 8)
INLINE void multiply_step(acc_t *sums, shared_t shared, int w_slot, int x_slot, int tap_r, int tap_s, int team,
                          int thread) {
    const int r = GATHERS ? 0 : tap_r * DIL_H, s = GATHERS ? 0 : tap_s * DIL_W;
    const int row = (r % STR_H * PHASES_W + s % STR_W) * PATCH + s / STR_W +
                    (TALL ? (r / STR_H + team / WM) * LINE : r / STR_H * WR + team / WM * WG_N);
    const int a = w_slot * (W_BYTES / 16) + team % WM * (4 * ROW_PITCH);
    const int spans = (team / WM * CEIL_DIV(WG_N, LINE) + (SLID ? r * (WR / LINE) : 0)) * SPAN_PIECES;
    const int b = X_FROM / 16 + x_slot * (X_BYTES / 16) + (SPAN ? spans : row * (ROW_PITCH / 16));
#if PROMOTED
    acc_t part[WG_WORDS];
    UNROLL for (int first = 0; first < CHUNKS / 2; first += PROMOTED) {
        wg_begin();
        UNROLL for (int i = first; i < first + PROMOTED && i < CHUNKS / 2; i++)
            multiply(part, shared, a + i * W_SIDES, W_NEXT, b + i * X_SIDES, X_NEXT, i > first, thread);
        wg_commit();
#if PARTS == 2  // these go on while the high parts' are added up
        acc_t *low = sums + WG_WORDS;
        UNROLL for (int i = first; i < first + PROMOTED && i < CHUNKS / 2; i++) {
            multiply(low, shared, a + i * W_SIDES + W_BYTES / 32, W_NEXT, b + i * X_SIDES, X_NEXT, 1, thread);
            multiply(low, shared, a + i * W_SIDES, W_NEXT, b + i * X_SIDES + X_BYTES / 32, X_NEXT, 1, thread);
        }
        wg_commit();
#endif
        multiply_done(part, PARTS - 1);
        UNROLL for (int e = 0; e < WG_WORDS; e++) sums[e] += part[e];
    }
#else
    UNROLL for (int i = 0; i < CHUNKS / 2; i++)
        multiply(sums + SUMS_OF(tap_s), shared, a + i * W_SIDES, W_NEXT, b + i * X_SIDES, X_NEXT, 1, thread);
#endif
}

// How far the products of a thread's two rows (wgmma.h) have been moved.
INLINE void find_moves(int moves[2], const Block *b, int team, int thread) {
#if PRODUCTS == HALVES
    CHAIN_WAIT();
    const GLOBAL int *row = b->w_moved + team % WM * 64 + thread / 32 * 16 + thread % 32 / 4;
    const int x = fresh_int(b->x_moved);
    moves[0] = x + row[0], moves[1] = x + row[8];
#endif
}

// Make two sums one, when all has been multiplied, and move it back: in two steps, since 2^-moves may be no f32.
INLINE void join_sums(acc_t sums[SUM_WORDS], const int moves[2]) {
#if PARTS == 2
    multiply_done(sums + WG_WORDS, 0);
    UNROLL for (int e = 0; e < WG_WORDS; e++) sums[e] += sums[WG_WORDS + e] * 0.00048828125f;
#endif
#if PRODUCTS == HALVES
    UNROLL for (int e = 0; e < WG_WORDS; e++) {
        const int back = -moves[e / 2 % 2];
        sums[e] = sums[e] * power(back / 2) * power(back - back / 2);
    }
#endif
}
