// What the hopper family sends for and copies (hopper.cu): barriers, filters and patches, by the warps that do not
// multiply.
//
//   barrier    number       a phase ends when                                        who waits for it
//   W_FULL     STAGES       the bytes of a batch have come (one thread expects them;  who multiplies
//                           JOINT: and those of its patches)
//   W_EMPTY    STAGES       each warp that multiplies, of all blocks that share the   who sends, before it refills it
//                           copy, is done with the batch
//   X_FULL     X_BARS       MAPPED: the bytes of a patch have come; else 96 threads   who multiplies
//                           have copied their parts
//   X_EMPTY    X_BARS       each warp that multiplies is done with the patch          who sends or copies, likewise
//   FIRST      1            the first patch is there: by bytes (EARLY), or all        who multiplies
//                           threads but the sender's warp have copied their parts
//   RAW_FULL   RAW_STAGES   a run of pixels that is to be turned has come             who turns
//   MEET       1, SC > 1    the bytes of the cluster's shares have come               who finishes them
//
// Phases have parities 0, 1, 0 ...: who waits for FULL begins with 0, and who waits for EMPTY with 1, the phase before
// the first, which counts as over: all buffers are empty. One step, its buffer in turn:
//
//   sender      wait W_EMPTY, expect bytes, send ................................... (the next buffer)
//   multiplies               wait W_FULL, wgmma, commit; wait for the batch before, arrive at its W_EMPTY

#include "ring.h"

INLINE void make_barriers(shared_t shared, const Block *b) {
    UNROLL for (int i = 0; i < STAGES; i++) bar_init(W_FULL(i), 1), bar_init(W_EMPTY(i), 4 * TEAMS * COPIES);
    UNROLL for (int i = 0; i < X_BARS; i++)
        bar_init(X_FULL(i), MAPPED ? 1 : X_THREADS), bar_init(X_EMPTY(i), 4 * TEAMS);
    if (!MAPPED) bar_init(FIRST, WORKERS - 32);
#if TURNS_RUNS
    UNROLL for (int i = 0; i < RAW_STAGES; i++) bar_init(RAW_FULL(i), 1);
#endif
    if (SC > 1) bar_init(MEET, 1);
    bar_init_done();
    if (SC > 1) bar_expect(MEET, FINISH == MET ? SC * pairs_of(b->sc) * KB * 8 : (SC - 1) * rows_of(b->sc) * PITCH * 4);
}

#if MAPPED
// Send for the patches, SENT of them from `slot` on, that steps from `step` on read.
#define SENT (JOINT ? BATCH : 1)
INLINE void send_for_patches(shared_t shared, const Block *b, int step, int slot, shared_t bar) {
#if LEADS > 1
    UNROLL for (int i = 0; i < SENT * LINES; i++) {
        const int patch = i / LINES, span = i % LINES, place = b->px0 + span * SPAN;
        const shared_t to = shared + X_FROM + (slot + patch) * X_BYTES + span * (SPAN_PIECES * 16);
        const int column = lead_column(place, step + patch), channel = lead_channel(b->at.group, step + patch);
        span_copy(to, b->x, column, channel, 0, place / WR, bar);
    }
#elif SLID
    const int c = b->at.group * C + step / TAPS * (CHUNKS * EACH);
    shared_t to = shared + X_FROM + slot * X_BYTES;
    int q = b->px0 % WR, p = b->px0 / WR % HR, n = b->px0 / (WR * HR);
    UNROLL_BY(4) for (int span = 0; span < LINES; span++, to += SPAN_PIECES * 16) {  // (of few registers)
        span_copy(to, b->x, q, c, p - PAD_T, n, bar);
        if ((q += LINE) == WR) q = 0, p++;
        if (p == HR) p = 0, n++;
    }
#elif SPAN
    UNROLL for (int i = 0; i < SENT * LINES; i++) {
        const int patch = i / LINES, span = i % LINES, run = (step + patch) / TAPS, tap = (step + patch) % TAPS;
        const int c = b->at.group * C + run * (CHUNKS * EACH), r = tap / S, s = tap % S;
        const int o = b->px0 + span * SPAN, q = o % WR, p = o / WR % HR, n = o / (WR * HR);
        const shared_t to = shared + X_FROM + (slot + patch) * X_BYTES + span * (SPAN_PIECES * 16);
        span_copy(to, b->x, q + s * DIL_W - PAD_L, c, p * STR_H + r * DIL_H - PAD_T, n, bar);
    }
#else
    const int lines = PHASES_H * PHASES_W * LINES;
    UNROLL for (int i = 0; i < SENT * X_PARTS * lines; i++) {
        const int line = i % lines, part = i / lines % X_PARTS, patch = i / lines / X_PARTS, phase = line / LINES;
        const int run = (step + patch) / TAPS, tap = TAPWISE ? (step + patch) % TAPS : 0;
        const int c = ((b->at.group * X_PARTS + part) * CC + run * CHUNKS) * EACH;
        const int o = b->px0 + line % LINES * WR, q = o % WR, p = o / WR % HR, n = o / (WR * HR);
        const shared_t to = shared + X_FROM + (slot + patch) * X_BYTES + (part * lines + line) * (LINE * ROW_PITCH);
        image_copy(to, b->x, c, q * STR_W - PAD_L, p * STR_H - PAD_T, n, phase % PHASES_W + tap % S * DIL_W,
                   phase / PHASES_W + tap / S * DIL_H, bar);
    }
#endif
}

// Send for the block's first patches, while another thread sends for its first filters (EARLY). Where several blocks
// share a unit all filters would wait behind all of their patches: there one thread sends, filters first.
INLINE void send_first(shared_t shared, const Block *b) {
    bar_init(FIRST, 1);
    bar_init_done();
    CHAIN_WAIT();
    bar_expect(FIRST, SENT * X_BYTES);
    send_for_patches(shared, b, b->first, 0, FIRST);
}
#endif

// Send for all filters of the block, BATCH steps at a time; where they are mapped, for patches too. By one thread:
// to wait, announce and send takes it about 200 cycles.
INLINE void send(shared_t shared, const Block *b, Ring *ring) {
    int slot = ring->slot, parity = ring->parity, x_slot = ring->x_slot, x_parity = ring->x_parity;
    NO_UNROLL for (int i = 0; i < (b->last - b->first) / BATCH; i++) {
        const int step = b->first + i * BATCH, part = BATCH * W_BYTES / COPIES * b->copy;
        if (STAYS || i >= STAGES) bar_wait(W_EMPTY(slot), parity);
        const int sent = EARLY && b->id == GROUP(0) && i == 0;  // for the first patches another thread has
        bar_expect(W_FULL(slot), BATCH * (W_BYTES + (JOINT && !sent ? X_BYTES : 0)));
        bulk_copy(shared + slot * (BATCH * W_BYTES) + part, b->w + (offset_t)step * W_BYTES + part,
                  BATCH * W_BYTES / COPIES, W_FULL(slot), ((1u << COPIES) - 1) << b->sc * COPIES);
#if MAPPED
        if (i == 0) CHAIN_WAIT();  // filters were there before
#endif
#if JOINT
        if (!sent) send_for_patches(shared, b, step, slot * BATCH, W_FULL(slot));
#elif MAPPED
        if (i == 0 || step % TAPS == 0) {
            if (STAYS || step / TAPS - b->first / TAPS >= X_STAGES) bar_wait(X_EMPTY(x_slot), x_parity);
            bar_expect(X_FULL(x_slot), sent ? 0 : X_BYTES);
            if (!sent) send_for_patches(shared, b, step, x_slot, X_FULL(x_slot));
            NEXT(x_slot, x_parity, X_STAGES);
        }
#endif
        NEXT(slot, parity, STAGES);
    }
    *ring = Ring{slot, parity, x_slot, x_parity};
}

// Arrive when this thread's part of a patch has come; what it has written itself, seen by the tensor cores.
INLINE void patch_copied(shared_t bar) {
    if (!THROUGH_REGISTERS) return bar_after_copies(bar);
    wg_see_copies();
    bar_arrive(bar);
}

#define COPIERS_SYNC() asm volatile("bar.sync 7, %0;" ::"n"(X_THREADS) : "memory")

// Copy the block's patches; the first one has been by all threads.
INLINE void copy_patches(shared_t shared, const Block *b, int thread) {
    int slot = 0, parity = 1;
    NO_UNROLL for (int step = b->first / TAPS; step <= (b->last - 1) / TAPS; step++) {
        if (step - b->first / TAPS >= X_STAGES) bar_wait(X_EMPTY(slot), parity);
        if (step > b->first / TAPS) copy_patch(shared, X_FROM + slot * X_BYTES, b, step, thread, X_THREADS);
        patch_copied(X_FULL(slot));
#if TURNS_RUNS
        if (step > b->first / TAPS) COPIERS_SYNC();  // all have read what is raw
        if (thread == 0) send_for_raw(shared, b, step - b->first / TAPS + RAW_STAGES);
#endif
        NEXT(slot, parity, X_STAGES);
    }
}
