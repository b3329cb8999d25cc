// hopper: the sum over r,s,c of x[n,p*u+r*d-pad,q*u+s*d-pad,c] * w[k,r,s,c], then its epilogue (epilogue.h), by the
// tensor cores and the copy engine of sm_90a.
//
// x: nhwc, in pieces of 16 bytes (as given, or written by nhwc.cu); few channels, gathered from either layout; nchw as
// it is, transposed by threads (TURNS), or brought by the copy engine where it can copy just what each step multiplies:
// neighbouring pixels of its channels (SPAN; hopper_lead.h where planes begin anywhere), or a patch (SLID).
// y: nhwc or nchw.  w: packed [group][k tile][step][a tile of KB rows, CHUNKS pieces each], as shared memory has it
// (hopper.h, pack_tensor.h).
//
// Output channels are the rows of the product, pixels its columns: a 7 x 7 image fills 56 columns, not 64 rows.
// Pixels lie in one line, the raster: WR of them to a row, HR rows to an image, a little more than P x Q, so that a tap
// is a constant distance along the line, and one patch of x serves all taps of its channels:
//
//   o = (n HR + p) WR + q                   tap (r, s) of output o reads place o + r WR + s
//
//   places of x    px0 [ . . . . . . . . . . . . . . . . . . . ] PLACES, CHUNKS pieces of channels each: a patch
//   tap (0, 0)         [----- NB -----]
//   tap (0, 1)           [----- NB -----]                        products of a step: KB x NB outputs of one tap,
//   tap (1, 0)                  [----- NB -----]                 CHUNKS * 16 bytes of the sum
//
// A tile may be a rectangle instead (TALL): WN rows of WG_N outputs. Each line of its patch is WG_N places and those
// under the taps to their right; in wide images these are far fewer places.
//
// With stride u there are PHASES such lines in a patch, one for each h % u, w % u that a tap needs; dilation makes
// the distances longer. Places outside of the image are zeros; outputs outside of P x Q are not stored.
//
//   warpgroup 0 .. TEAMS - 1   multiply: WM over channels, WN over pixels, 64 x WG_N outputs each
//   last one, warp 0           one thread requests filters: STAGES batches of BATCH steps each, a batch by one bulk
//                              copy, or COPIES parts that as many blocks of a cluster (pixel tiles) send to each other;
//                              and patches, X_STAGES of them, where x has a tensor map (MAPPED): rows swizzled, numbers
//                              as they are; a patch that only one step reads (1x1 filters, TAPWISE, SPAN) comes with
//                              that step's batch (JOINT)
//            warps 1 .. 3      where x has none: copy patches piece by piece, or request runs of pixels and transpose
//                              them (hopper_turn.h, RAW_FULL); the first patch is copied, or transposed, by all warps;
//                              SLID: nothing, but hand on their registers to those who multiply
// f16, bf16, i8; tf32, whose patches are rounded in registers, or by the copy engine; f8, whose sums are promoted;
// accurate, whose numbers are split in two: in registers, or by a kernel before (hopper.h, PRODUCTS).
// Barriers pass the buffers to and fro (W_FULL, W_EMPTY, X_FULL, X_EMPTY). In nhwc the threads that hold sums store
// them, or a block stores those that its cluster sends it (hopper_own.h); otherwise all threads store from a tile of
// sums in shared memory, RUN_OUT neighbours in y at once (hopper_store.h).
// Where there are more tiles than places for blocks, blocks stay (STAYS, tile.py): each takes every so-many-th
// tile, and its buffers go round without a break: while a tile's sums are stored the next one's data come.
// The sum is split SC ways across a cluster (added up in its shared memory) and SG ways across the grid. A tile that is
// pooled here begins with a row and holds whole windows.
// Which define is which knob: hopper_tile.h.  Barriers, and who waits for whom: hopper_send.h. Words: docs/families.md.
// Example: R12 in f16: KB = 64, NB = 56, CHUNKS = 8: 8 tiles of channels, 72 steps; SC = 8: each of 64 blocks has
// 9 steps, one patch of 80 places (10 KB) and 9 filters of 8 KB, all requested at once; with BATCH = 3 by four copies.

#include "hopper_tile.h"
#include "hopper_store.h"
#include "hopper_own.h"

#ifdef __CUDACC__
#include "hopper_send.h"
#include "hopper_multiply.h"
#if SLID
#include "hopper_slide.h"
#endif

// Sum up a tile, by those who multiply: into the tile of sums; or (FINISH) they store y.
INLINE void sum_tile(Epilogue ep, shared_t shared, const Block *b, Ring *ring, int team, int thread) {
    acc_t sums[SUM_WORDS];
    int moves[2];
    find_moves(moves, b, team, thread);
    UNROLL for (int i = 0; i < SUM_WORDS; i++) {
        sums[i] = 0;
        asm volatile("" : WG_FORM(sums[i]) :: "memory");  // before the products, also where a loop of one turn is none
    }
#if BRINGS
    bring_rows(ep.z + b->at.group * K + b->channels, shared, b, team / WM, team % WM * 128 + thread);
#else
    ask_for_residual(ep.z, shared, b);
#endif
#if SLID
    const Edges edges = find_padding(b, team, thread);
#endif
    multiply_all(sums, shared, b, ring, team, thread);
    join_sums(sums, moves);
#if SLID
    slide_sums(sums, edges, shared, team, thread);
#endif
#if FINISH == OWN
    if (STORES != STORE_WORDS && !STAYS && !BRINGS) TEAMS_SYNC();  // nobody reads buffers any more: rows lie there
    store_own(ep, shared, b, sums, team, thread);
#elif FINISH == MET
    send_shares(shared, b, sums, team, thread);
    store_shares(ep, shared, b, THREAD(0));
#else
    if (TEAMS > 1) TEAMS_SYNC();  // no team reads buffers any more
    write_sums(shared, sums, team, thread);
    if (SC > 1) wg_see_copies();  // what was written, seen by the copy engine
#endif
}

// Sum up the block's tiles.
INLINE void sum_tiles(Epilogue ep, const GLOBAL unsigned char *w, shared_t shared, const Block *b, int team,
                      int thread) {
    Block here = *b;
    Ring ring = {0, 0, 0, 0};
    do sum_tile(ep, shared, &here, &ring, team, thread);
    while (next_tile(&here, w));
}

// Before roles part: one thread makes the barriers, and what waits for no other block is sent for.
INLINE void begin_block(shared_t shared, const Block *b, int sender) {
    if (sender) {
#if X_IS_MAP && !EARLY
        image_soon(b->x);
#endif
        make_barriers(shared, b);
    }
#if EARLY
    if (THREAD(0) == 0) send_first(shared, b);
#endif
    __syncwarp();
#if TURNS_RUNS
    if (sender) {
        CHAIN_WAIT();
        UNROLL for (int i = 0; i < RAW_STAGES; i++) send_for_raw(shared, b, i);
    }
#endif
    CLUSTER_ARRIVE();
}

// The sender's warp: one thread sends for all that the block's tiles read.
INLINE void send_all(shared_t shared, const Block *b, const GLOBAL unsigned char *w, int sender) {
    if (!GATHERS) GROUP_ARRIVE();
    if (COPIES > 1) CLUSTER_WAIT();  // the others' barriers are there
    if (sender) {
        Block here = *b;
        Ring ring = {0, 1, 0, 1};
        do send(shared, &here, &ring);
        while (next_tile(&here, w));
    }
    __syncwarp();
    if (SC > 1 && COPIES == 1) CLUSTER_WAIT();
}

// All other warps (where channels are gathered, that one too): fill the tables, and wait until barriers are there.
INLINE void make_ready(shared_t shared, const Block *b, int sends, int other) {
#if GATHERS
    gather(shared, (const x_t *)b->x, b->px0, b->at.group);
    wg_see_copies();
#endif
    if (GATHERS) find_places(shared, b, THREAD(0), WORKERS);
    else if (!sends) find_places(shared, b, other, WORKERS - 32);
    if (GATHERS) BARRIER();
    else if (!sends) GROUP_SYNC();
    if (CLUSTER > 1 && !sends) CLUSTER_WAIT();
}

// Patches that the copy engine cannot bring: all but the sender's warp copy the first, three warps those that follow.
INLINE void copy_all(shared_t shared, const Block *b, int team, int thread, int other) {
    CHAIN_WAIT();
    copy_patch(shared, X_FROM, b, b->first / TAPS, other, WORKERS - 32);
    patch_copied(FIRST);
    if (TURNS_RUNS && team == TEAMS) bar_wait(FIRST, 0);  // all have read what is raw
    if (team == TEAMS) copy_patches(shared, b, thread - 32);
}

#if FINISH == BY_TILE && SC > 1
// Each block of the cluster gets its rows of the tile from all.
INLINE void exchange_rows(shared_t shared, const Block *b, int team, int warp, int thread) {
    if (thread % 32 == 0)  // a warp takes 100 cycles for each
        NO_UNROLL for (int sc = team * 4 + warp; sc < SC; sc += THREADS / 32)
            if (sc != b->sc && rows_of(sc))
                bulk_to_block(shared + MEET_FROM + b->sc * (MINE * PITCH * 4), shared + sc * (MINE * PITCH * 4),
                              rows_of(sc) * PITCH * 4, MEET, sc * COPIES + b->copy);
    __syncwarp();
    bar_wait(MEET, 0);
    __syncwarp();
    CLUSTER_ARRIVE();  // this block has its rows: their senders may leave
}
#endif

// Fill the tile of sums, or (OWN, MET) store y: here roles part (those of a block that stays for all of its tiles), and
// where there is a tile they meet again.
INLINE void sum_up(Epilogue ep, const GLOBAL unsigned char *w, shared_t shared, const Block *b) {
    const int team = __shfl_sync(0xffffffffu, THREAD(0) / 128, 0), thread = THREAD(0) % 128, warp = thread / 32;
    const int sends = team == TEAMS && warp == 0, sender = THREAD(0) == 128 * TEAMS;
    begin_block(shared, b, sender);
#if SLID
    if (team == TEAMS) {
        FEWER_REGISTERS(REGS_SENDING);
        if (sends) send_all(shared, b, w, sender);
        else CLUSTER_WAIT();  // three warps do nothing more
    } else {
        MORE_REGISTERS(REGS_SUMMING);
        make_ready(shared, b, 0, THREAD(0));
        sum_tiles(ep, w, shared, b, team, thread);
    }
#else
    if (sends) send_all(shared, b, w, sender);
    const int other = THREAD(0) - (team == TEAMS ? 32 : 0);  // number among all but the sender's warp
    make_ready(shared, b, sends, other);
    if (!GATHERS && !MAPPED && !sends) copy_all(shared, b, team, thread, other);
    if (team < TEAMS) sum_tiles(ep, w, shared, b, team, thread);
#endif
#if FINISH == BY_TILE
#if SLID
    if (team < TEAMS) FEWER_REGISTERS(REGS_ALL);
#endif
    BARRIER();
#if SLID
    if (team == TEAMS) MORE_REGISTERS(REGS_ALL);  // not before: it would take those that others wait for
#endif
#if SC > 1
    exchange_rows(shared, b, team, warp, thread);
#endif
#endif
}

#else
#include "hopper_portable.h"
#endif

BOUNDED_KERNEL(hopper, THREADS, MIN_BLOCKS)
(X_PARAM, const GLOBAL unsigned char *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y, GLOBAL acc_t *RESTRICT partial,
 GLOBAL unsigned *RESTRICT arrived X_MOVED_PARAM SCALE_PARAMETER) {
    TILE_ARRAY(shared);
#ifdef __CUDACC__
    static_assert(BARS_FROM + 16 * (STAGES + X_BARS) + 16 + 8 * RAW_STAGES == SHARED_END, "layout.py: barriers");
    static_assert(SHARED_END + 1024 <= SHARED_BYTES, "tile.py: sizes");
#endif
    CHAIN_BEGIN();
    if (PRODUCTS == HALVES) CHAIN_NEXT();
    const Block b = find_block(GROUP(0), X_ADDRESS, w, X_MOVED);
    const Epilogue ep = {bias, z, y SCALE_ARGUMENT};
    sum_up(ep, w, shared, &b);
#if COMBINE == LAST
    SHARED_FLAG(is_last);
#else
    SHARED int *is_last = 0;
#endif
    if (FINISH == BY_TILE) store_tile(ep, partial, arrived, is_last, &b, shared);
#ifdef __CUDACC__
    if (SC > 1 && FINISH == BY_TILE) CLUSTER_WAIT();  // nobody leaves before its rows are copied
#endif
}
