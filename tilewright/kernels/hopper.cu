// hopper: the sum over r,s,c of x[n,p*u+r*d-pad,q*u+s*d-pad,c] * w[k,r,s,c], then its epilogue (epilogue.h), by the
// tensor cores and the copy engine of sm_90a.
//
// x: nhwc, in pieces of 16 bytes (as given, or written by nhwc.cu); few channels are gathered, from either layout.
// y: nhwc or nchw.  w: packed [group][k tile][step][a tile of KB rows, CHUNKS pieces each], as shared memory has it
// (hopper.h, pack_tensor.h).
//
// Output channels are the rows of the product, pixels its columns: a 7 x 7 image fills 56 columns, not 64 rows.
// Pixels lie in one line, the raster: WR of them to a row, HR rows to an image, a little more than P x Q, so that to
// move by a tap is to move along the line, and one patch of x serves all taps of its channels:
//
//   o = (n HR + p) WR + q                   tap (r, s) of output o reads place o + r WR + s
//
//   places of x    px0 [ . . . . . . . . . . . . . . . . . . . ] PLACES, CHUNKS pieces of channels each: a patch
//   tap (0, 0)         [----- NB -----]
//   tap (0, 1)           [----- NB -----]                        products of a step: KB x NB outputs of one tap,
//   tap (1, 0)                  [----- NB -----]                 CHUNKS * 16 bytes of the sum
//
// With stride u there are PHASES such lines in a patch, one for each h % u, w % u that a tap needs; dilation makes
// the moves longer. Places outside of the image are zeros; outputs outside of P x Q are not stored.
//
//   warpgroup 0 .. TEAMS - 1   multiply: WM over channels, WN over pixels, 64 x WG_N outputs each
//   last one, warp 0           one thread sends for filters: STAGES steps of them, each one bulk copy, or COPIES
//                              parts that as many blocks of a cluster (pixel tiles) send to each other
//            warps 1 .. 3      copy patches: X_STAGES of them (all copy the first one)
// f16, bf16, i8; tf32, whose patches are rounded in registers; f8, whose sums are promoted; accurate, whose numbers
// are split in two (hopper.h, PRODUCTS).
// full_* and empty_* barriers pass the buffers to and fro. All threads store, from a tile of sums in shared memory,
// RUN neighbours in y at once: 16 bytes of nhwc, one element of nchw.
// The sum is split SC ways across a cluster (added up in its shared memory) and SG ways across the grid. A tile that is
// pooled here begins with a row and holds whole windows.
// Example: R12 in f16: KB = 64, NB = 56, CHUNKS = 8: 8 tiles of channels, 72 steps; SC = 8: each of 64 blocks has
// 9 steps, one patch of 80 places (10 KB) and 9 filters of 8 KB, all sent for at once.

#include "hopper_tile.h"
#include "hopper_store.h"

#ifdef __CUDACC__
#define NEXT(slot, parity, count) if (++slot == (count)) slot = 0, parity ^= 1
#define LAG (PROMOTED ? 0 : 1)  // steps whose products are under way, besides the newest (2 cost more: a buffer)

// Send for the filters of the steps from `from` to before `to`, counted from the block's first one.
INLINE void send_for_filters(shared_t shared, const Block *b, int from, int to) {
    int slot = from % STAGES, parity = from / STAGES + 1 & 1;  // of the phase before: that its readers are done
    NO_UNROLL for (int i = from; i < to; i++) {
        if (i >= STAGES) bar_wait(W_EMPTY(slot), parity);
        bar_expect(W_FULL(slot), W_BYTES);
        const int part = W_BYTES / COPIES * b->copy;
        bulk_copy(shared + slot * W_BYTES + part, b->w + (offset_t)(b->first + i) * W_BYTES + part, W_BYTES / COPIES,
                  W_FULL(slot), ((1u << COPIES) - 1) << b->sc * COPIES);
        NEXT(slot, parity, STAGES);
    }
}

// Arrive when this thread's part of a patch has come; what it has written itself, seen by the tensor cores.
INLINE void patch_copied(shared_t bar) {
    if (!ROUNDED) return bar_after_copies(bar);
    wg_see_copies();
    bar_arrive(bar);
}

// Copy the block's patches; the first one has been by all threads.
INLINE void copy_patches(shared_t shared, const Block *b, int thread) {
    int slot = 0, parity = 1;
    NO_UNROLL for (int step = b->first / TAPS; step <= (b->last - 1) / TAPS; step++) {
        if (step - b->first / TAPS >= X_STAGES) bar_wait(X_EMPTY(slot), parity);
        if (step > b->first / TAPS) copy_patch(shared, X_FROM + slot * X_BYTES, b->x, step, thread, X_THREADS);
        patch_copied(X_FULL(slot));
        NEXT(slot, parity, X_STAGES);
    }
}

// Multiply all steps. LAG steps are under way; behind them the buffers that are done with are given back.
INLINE void multiply_all(acc_t sums[SUM_WORDS], shared_t shared, const Block *b, int team, int thread) {
    const int count = b->last - b->first, lane = thread % 32;
    int slot = 0, parity = 0, x_slot = 0, x_parity = 0, tap = b->first % TAPS, fresh = !GATHERS;
    int done_slot = 0, done_x_slot = 0, done_tap = tap, i = 0;
    if (!GATHERS) bar_wait(FIRST, 0);
    NO_UNROLL do {  // at least once: else the compiler waits for each product by itself
        if (fresh) {
            bar_wait(X_FULL(x_slot), x_parity);
            wg_see_copies();
        }
        bar_wait(W_FULL(slot), parity);
        multiply_step(sums, shared, slot, x_slot, tap, team, thread);
        fresh = 0;
        NEXT(slot, parity, STAGES);
        if (++tap == TAPS) {
            tap = 0, fresh = 1;
            NEXT(x_slot, x_parity, X_STAGES);
        }
        if (!PROMOTED && PARTS == 1) WG_WAIT(LAG);
        if (i >= LAG) {
            if (i - LAG + STAGES < count && lane < COPIES) {
                if (COPIES > 1) bar_arrive_at(W_EMPTY(done_slot), b->sc * COPIES + lane);
                else bar_arrive(W_EMPTY(done_slot));
            }
            if (++done_slot == STAGES) done_slot = 0;
            if (++done_tap == TAPS) {
                if (!GATHERS && lane == 0) bar_arrive(X_EMPTY(done_x_slot));
                done_tap = 0;
                if (++done_x_slot == X_STAGES) done_x_slot = 0;
            }
        }
    } while (++i < count);
    WG_WAIT(0);
    join_sums(sums);
}

// Fill the tile of sums: roles part here, and meet again behind it.
INLINE void sum_up(shared_t shared, const Block *b) {
    const int team = __shfl_sync(0xffffffffu, THREAD(0) / 128, 0), thread = THREAD(0) % 128, warp = thread / 32;
    const int count = b->last - b->first, at_once = COPIES > 1 ? 0 : min(count, STAGES);
    const int sender = team == TEAMS && thread == 0;
    if (sender) {
        for (int i = 0; i < STAGES; i++) bar_init(W_FULL(i), 1), bar_init(W_EMPTY(i), 4 * TEAMS * COPIES);
        for (int i = 0; i < X_STAGES; i++) bar_init(X_FULL(i), X_THREADS), bar_init(X_EMPTY(i), 4 * TEAMS);
        bar_init(FIRST, THREADS - 32);
        if (SC > 1) bar_init(MEET, 1);
        bar_init_done();
        if (SC > 1) bar_expect(MEET, SC * rows_of(b->sc) * PITCH * 4);
        send_for_filters(shared, b, 0, at_once);
    }
    __syncwarp();
#if GATHERS
    gather(shared, (const x_t *)b->x, b->px0, b->at.group);
    wg_see_copies();
#endif
    find_places(shared, b->px0);
    CLUSTER_ARRIVE();
    BARRIER();
    if (COPIES > 1) CLUSTER_WAIT();  // the others' barriers are there
    if (!GATHERS && (team < TEAMS || warp > 0)) {  // all but the sender's warp copy the first patch
        CHAIN_WAIT();
        copy_patch(shared, X_FROM, b->x, b->first / TAPS, THREAD(0) - (team == TEAMS ? 32 : 0), THREADS - 32);
        patch_copied(FIRST);
    }
    if (team == TEAMS) {
        if (sender) send_for_filters(shared, b, at_once, count);
        if (warp > 0 && !GATHERS) copy_patches(shared, b, thread - 32);
        __syncwarp();
    } else {
        acc_t sums[SUM_WORDS];
        UNROLL for (int i = 0; i < SUM_WORDS; i++) sums[i] = 0;
        multiply_all(sums, shared, b, team, thread);
        if (TEAMS > 1) asm volatile("bar.sync 1, %0;" ::"n"(128 * TEAMS) : "memory");  // no team reads buffers any more
        write_sums(shared, sums, team, thread);
        if (SC > 1) wg_see_copies();  // what was written, seen by the copy engine
    }
    BARRIER();
#if SC > 1  // each block of the cluster gets its rows from all
    if (COPIES == 1) CLUSTER_WAIT();
    if (sender)
        for (int sc = 0; sc < SC; sc++)
            if (rows_of(sc))
                bulk_to_block(shared + MEET_FROM + b->sc * (MINE * PITCH * 4), shared + sc * (MINE * PITCH * 4),
                              rows_of(sc) * PITCH * 4, MEET, sc * COPIES + b->copy);
    __syncwarp();
    bar_wait(MEET, 0);
#endif
}
#else
// The same, one step after the other; each block of a cluster works out all of its shares.
INLINE void sum_up(shared_t shared, const Block *b) {
    const int team = THREAD(0) / 128, thread = THREAD(0) % 128;
    acc_t sums[SUM_WORDS];
    find_places(shared, b->px0);
    for (int sc = 0; sc < SC; sc++) {
        const int share = b->sg * SC + sc, first = share * STEPS / SPLITS, last = (share + 1) * STEPS / SPLITS;
        for (int i = 0; i < SUM_WORDS; i++) sums[i] = 0;
#if GATHERS
        gather(shared, (const GLOBAL x_t *)b->x, b->px0, b->at.group);
#endif
        BARRIER();
        for (int step = first; step < last; step++) {
            const int slot = (step - first) % STAGES, x_slot = (step / TAPS - first / TAPS) % X_STAGES;
            if (!GATHERS && (step == first || step % TAPS == 0))
                copy_patch(shared, X_FROM + x_slot * X_BYTES, b->x, step / TAPS, THREAD(0), THREADS);
            for (int at = THREAD(0) * 16; at < W_BYTES; at += THREADS * 16)
                copy16(shared, slot * W_BYTES + at, b->w + (offset_t)step * W_BYTES + at, 1);
            BARRIER();
            if (team < TEAMS) multiply_step(sums, shared, slot, x_slot, step % TAPS, team, thread);
            BARRIER();
        }
        join_sums(sums);
        if (team < TEAMS) write_sums(shared, sums, team, thread);
        BARRIER();
        if (SC > 1)
            for (int at = THREAD(0) * 4; at < rows_of(b->sc) * PITCH * 4; at += THREADS * 4)
                write_int(shared, MEET_FROM + sc * (MINE * PITCH * 4) + at, read_int(shared, b->sc * (MINE * PITCH * 4) + at));
        BARRIER();
    }
}
#endif

BOUNDED_KERNEL(hopper, THREADS, MIN_BLOCKS)
(const GLOBAL x_t *RESTRICT x, const GLOBAL unsigned char *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL y_t *RESTRICT y, GLOBAL acc_t *RESTRICT partial,
 GLOBAL unsigned *RESTRICT arrived) {
    TILE_ARRAY(shared);
    CHAIN_NEXT();
    const Block b = find_block(GROUP(0), x, w);
    sum_up(shared, &b);
#if COMBINE == LAST
    SHARED_FLAG(is_last);
#else
    SHARED int *is_last = 0;
#endif
    store_tile(y, bias, z, partial, arrived, is_last, &b, shared);
#ifdef __CUDACC__
    if (SC > 1) {  // nobody leaves before its rows are copied
        CLUSTER_ARRIVE();
        CLUSTER_WAIT();
    }
#endif
}
