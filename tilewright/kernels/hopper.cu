// hopper: the sum over r,s,c of x[n,p*u+r*d-pad,q*u+s*d-pad,c] * w[k,r,s,c], then its epilogue (epilogue.h), by the
// tensor cores and the copy engine of sm_90a.
//
// x: nhwc, in pieces of 16 bytes (as given, or written by nhwc.cu); few channels are gathered from either layout.  y: nhwc or nchw.  w: packed [group][k tile]
// [step][a tile of KB rows, CHUNKS pieces each], as shared memory has it (hopper.h, pack_tensor.h).
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
//            warps 1 .. 3      copy patches: X_STAGES of them
// full_* and empty_* barriers pass the buffers to and fro. All threads store, from a tile of sums in shared memory,
// RUN neighbours in y at once: 16 bytes of nhwc, one element of nchw.
// The sum is split SC ways across a cluster (added up in its shared memory) and SG ways across the grid. A tile that is
// pooled here begins with a row and holds whole windows.
// Example: R12 in f16: KB = 64, NB = 56, CHUNKS = 8: 8 tiles of channels, 72 steps; SC = 8: each of 64 blocks has
// 9 steps, one patch of 80 places (10 KB) and 9 filters of 8 KB, all sent for at once.

#include "hopper_tile.h"

typedef struct {
    int channels, px0;    // first output: of the group, and in the raster
    int copy, sc, sg;     // numbers among the blocks that share filters, and the sum
    int first, last;      // steps
    const GLOBAL unsigned char *x, *w;
    Place at;             // for tile.h
} Block;

INLINE Block find_block(int id, const GLOBAL in_t *x, const GLOBAL unsigned char *w) {
    Block b;
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
    b.px0 = POOL_HERE ? (px_tile / POOL_TILES * HR + px_tile % POOL_TILES * FORWARD(TILE_ROWS)) * WR : px_tile * NB;
    b.first = share * STEPS / SPLITS, b.last = (share + 1) * STEPS / SPLITS;
    b.x = (const GLOBAL unsigned char *)x + (GATHERS ? 0 : (offset_t)group * (CC * 16));
    b.w = w + (offset_t)(group * K_TILES + k_tile) * STEPS * W_BYTES;
    b.at.group = group, b.at.sc = b.sc, b.at.sg = b.sg, b.at.tile = (group * K_TILES + k_tile) * PX_TILES + px_tile;
    return b;
}

// Finish a run of outputs and store it, or hand partial sums on.
INLINE void finish_run(GLOBAL y_t *y, const GLOBAL out_t *bias, const GLOBAL out_t *z, const Block *b, int slow, int fast,
                       const acc_t v[RUN]) {
    const int k = b->channels + (Y_NHWC ? fast : slow), o = b->px0 + (Y_NHWC ? slow : fast);
    const int q = o % WR, p = o / WR % HR, n = o / (WR * HR), k_all = b->at.group * K + k;
    if (k < K && q < Q && p < P && n < N) {
        const offset_t to = Z_AT(n, k_all, p, q);
        y_t out[RUN];
        y += SHARE_AT(b->at) + to;
        UNROLL for (int i = 0; i < RUN; i++)
            if (Y_VECTOR || k + i < K) {
                out[i] = y_of(epilogue(v[i], bias, k_all + i, z, to + i));
                if (!Y_VECTOR) y[i] = out[i];
            }
        if (Y_VECTOR) store_run(RUN, y, out);
    }
}

#if POOL_HERE
// Store what the pool makes of each whole window of the tile.
INLINE void store_pooled(GLOBAL y_t *y, const GLOBAL out_t *bias, const GLOBAL out_t *z, const Block *b, shared_t shared) {
    const int fast = Y_NHWC ? KT : WINDOWS(TILE_ROWS) * YQ, slow = Y_NHWC ? WINDOWS(TILE_ROWS) * YQ : KT;
    const int row = b->px0 / WR, n = row / HR, p0 = row % HR;
    for (int e = THREAD(0) * RUN; e < slow * fast; e += THREADS * RUN) {
        const int k = Y_NHWC ? e % fast : e / fast, window = Y_NHWC ? e / fast : e % fast, k_all = b->at.group * K + b->channels + k;
        const int i0 = window / YQ * POOL_STRIDE, j0 = window % YQ * POOL_STRIDE, yp = p0 / POOL_STRIDE + window / YQ;
        if (b->channels + k < K && n < N && yp < YP) {
            acc_t pooled[RUN];
            y_t out[RUN];
            GLOBAL y_t *to = y + Y_AT(n, k_all, yp, window % YQ);
            UNROLL for (int c = 0; c < RUN; c++) pooled[c] = POOL_NOTHING;
            UNROLL for (int cell = 0; cell < POOL_SIZE * POOL_SIZE; cell++) {
                const int i = i0 + cell / POOL_SIZE, j = j0 + cell % POOL_SIZE, place = i * WR + j;
                acc_t v[RUN];
                add_up(v, shared, Y_NHWC ? place * FAST + k : k * FAST + place);
                UNROLL for (int c = 0; c < RUN; c++)
                    if (Y_VECTOR || b->channels + k + c < K)
                        pool_take(&pooled[c], before_pool(v[c], bias, k_all + c, z, Z_AT(n, k_all + c, p0 + i, j)));
            }
            UNROLL for (int c = 0; c < RUN; c++) {
                out[c] = y_of(pool_mean(pooled[c], POOL_SIZE * POOL_SIZE));
                if (!Y_VECTOR && b->channels + k + c < K) to[c] = out[c];
            }
            if (Y_VECTOR) store_run(RUN, to, out);
        }
    }
}
#endif

#ifdef __CUDACC__
#define NEXT(slot, parity, count) if (++slot == (count)) slot = 0, parity ^= 1

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

INLINE void copy_patches(shared_t shared, const Block *b, int thread) {
    int slot = 0, parity = 1;
    CHAIN_WAIT();
    NO_UNROLL for (int step = b->first / TAPS; step <= (b->last - 1) / TAPS; step++) {
        if (step - b->first / TAPS >= X_STAGES) bar_wait(X_EMPTY(slot), parity);
        copy_patch(shared, X_FROM + slot * X_BYTES, b->x, step, thread, X_THREADS);
        bar_after_copies(X_FULL(slot));
        NEXT(slot, parity, X_STAGES);
    }
}

// Multiply all steps. A buffer is given back when the products of the next step are under way and its own are done.
INLINE void multiply_all(acc_t sums[WG_WORDS], shared_t shared, const Block *b, int team, int thread) {
    int slot = 0, parity = 0, x_slot = 0, x_parity = 0, was = 0, x_was = 0, tap = b->first % TAPS, fresh = !GATHERS;
    const int lane = thread % 32;
    int step = b->first;
    NO_UNROLL do {  // at least once: else the compiler waits for each product by itself
        if (fresh) {
            bar_wait(X_FULL(x_slot), x_parity);
            wg_see_copies();
        }
        bar_wait(W_FULL(slot), parity);
        wg_begin();
        multiply_step(sums, shared, slot, x_slot, tap, team, thread);
        wg_commit();
        WG_WAIT(1);
        if (step > b->first) {
            if (step - 1 + STAGES < b->last && lane < COPIES) {
                if (COPIES > 1) bar_arrive_at(W_EMPTY(was), b->sc * COPIES + lane);
                else bar_arrive(W_EMPTY(was));
            }
            if (fresh && lane == 0) bar_arrive(X_EMPTY(x_was));
        }
        was = slot, x_was = x_slot, fresh = 0;
        NEXT(slot, parity, STAGES);
        if (++tap == TAPS) {
            tap = 0, fresh = 1;
            NEXT(x_slot, x_parity, X_STAGES);
        }
    } while (++step < b->last);
    WG_WAIT(0);
}

// Fill the tile of sums: roles part here, and meet again behind it.
INLINE void sum_up(shared_t shared, const Block *b) {
    const int team = __shfl_sync(0xffffffffu, THREAD(0) / 128, 0), thread = THREAD(0) % 128, warp = thread / 32;
    const int count = b->last - b->first, at_once = COPIES > 1 ? 0 : min(count, STAGES);
    const int sender = team == TEAMS && thread == 0;
    if (sender) {
        for (int i = 0; i < STAGES; i++) bar_init(W_FULL(i), 1), bar_init(W_EMPTY(i), 4 * TEAMS * COPIES);
        for (int i = 0; i < X_STAGES; i++) bar_init(X_FULL(i), X_THREADS), bar_init(X_EMPTY(i), 4 * TEAMS);
        if (SC > 1) bar_init(MEET, 1);
        bar_init_done();
        if (SC > 1) bar_expect(MEET, SC * rows_of(b->sc) * PITCH * 4);
        send_for_filters(shared, b, 0, at_once);
    }
    __syncwarp();
#if GATHERS
    gather(shared, (const in_t *)b->x, b->px0, b->at.group);
    wg_see_copies();
#else
    find_places(shared, b->px0);
#endif
    CLUSTER_ARRIVE();
    BARRIER();
    if (COPIES > 1) CLUSTER_WAIT();  // the others' barriers are there
    if (team == TEAMS) {
        if (sender) send_for_filters(shared, b, at_once, count);
        if (warp > 0 && !GATHERS) copy_patches(shared, b, thread - 32);
        __syncwarp();
    } else {
        acc_t sums[WG_WORDS];
        UNROLL for (int i = 0; i < WG_WORDS; i++) sums[i] = 0;
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
// The same, one step after the other.
INLINE void sum_up(shared_t shared, const Block *b) {
    const int team = THREAD(0) / 128, thread = THREAD(0) % 128;
    acc_t sums[WG_WORDS];
    for (int i = 0; i < WG_WORDS; i++) sums[i] = 0;
#if GATHERS
    gather(shared, (const GLOBAL in_t *)b->x, b->px0, b->at.group);
#else
    find_places(shared, b->px0);
#endif
    BARRIER();
    for (int step = b->first; step < b->last; step++) {
        const int slot = (step - b->first) % STAGES, x_slot = (step / TAPS - b->first / TAPS) % X_STAGES;
        if (!GATHERS && (step == b->first || step % TAPS == 0))
            copy_patch(shared, X_FROM + x_slot * X_BYTES, b->x, step / TAPS, THREAD(0), THREADS);
        for (int at = THREAD(0) * 16; at < W_BYTES; at += THREADS * 16)
            copy16(shared, slot * W_BYTES + at, b->w + (offset_t)step * W_BYTES + at, 1);
        BARRIER();
        if (team < TEAMS) multiply_step(sums, shared, slot, x_slot, step % TAPS, team, thread);
        BARRIER();
    }
    if (team < TEAMS) write_sums(shared, sums, team, thread);
    BARRIER();
}
#endif

BOUNDED_KERNEL(hopper, THREADS, MIN_BLOCKS)
(const GLOBAL in_t *RESTRICT x, const GLOBAL unsigned char *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL y_t *RESTRICT y, GLOBAL acc_t *RESTRICT partial,
 GLOBAL unsigned *RESTRICT arrived) {
    TILE_ARRAY(shared);
    CHAIN_NEXT();
    const Block b = find_block(GROUP(0), x, w);
    sum_up(shared, &b);

    // all threads of the blocks that have shares of a tile store it
#if POOL_HERE
    store_pooled(y, bias, z, &b, shared);
#else
    const int start = THREAD(0) * RUN, count = rows_of(b.sc) * FAST, first = b.sc * (MINE * FAST);
#if COMBINE == LAST  // the shares of the grid meet in memory: the block that arrives last adds them up, in order
    SHARED_FLAG(is_last);
    GLOBAL acc_t *parts = partial + (offset_t)b.at.tile * SG * (SLOW * FAST) + first;
    for (int e = start; e < count; e += THREADS * RUN) {
        acc_t v[RUN];
        add_up(v, shared, e);
        store_run(RUN, parts + (offset_t)b.sg * (SLOW * FAST) + e, v);
    }
    const int mine = arrive_last(arrived, b.at, SG, is_last);
#else
    const int mine = 1;
#endif
    if (mine)
        for (int e = start; e < count; e += THREADS * RUN) {
            acc_t v[RUN];
#if COMBINE == LAST
            UNROLL for (int i = 0; i < RUN; i++) v[i] = 0;
            NO_UNROLL for (int g = 0; g < SG; g++) {
                const GLOBAL acc_t *part = parts + (offset_t)g * (SLOW * FAST) + e;
#if Y_NHWC
                UNROLL for (int i = 0; i < RUN; i += 4) {
                    acc_t four[4];
                    fresh4(four, part + i);
                    UNROLL for (int j = 0; j < 4; j++) v[i + j] += four[j];
                }
#else
                v[0] += load_fresh(part);
#endif
            }
#else
            add_up(v, shared, e);
#endif
            finish_run(y, bias, z, &b, (first + e) / FAST, (first + e) % FAST, v);
        }
#endif
#ifdef __CUDACC__
    if (SC > 1) {  // nobody leaves before its rows are copied
        CLUSTER_ARRIVE();
        CLUSTER_WAIT();
    }
#endif
}
