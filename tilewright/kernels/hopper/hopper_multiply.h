// What the warpgroups of the hopper family do that multiply (hopper.cu): batch after batch, as buffers are filled.
//
//   wait for the patch, if it is new, and the batch; wgmma, commit; wait for the batch before, give its buffers back
//
// Where planes begin anywhere, lead after lead; between two of them the sums move (hopper_lead.h).

#define TOGETHER !PROMOTED  // products of a batch are under way together
// Batches whose products are under way, besides the newest (2 cost more: a buffer). Those with low parts go on while
// high parts' are added up, behind the end of their batch.
#define LAG (TOGETHER || PARTS == 2 ? 1 : 0)
#define BATCHES (TAPS < BATCH ? 1 : TAPS / BATCH)  // of a patch

// Multiply the steps of a batch, which is number `at` of its patch.
INLINE void multiply_batch(acc_t sums[SUM_WORDS], shared_t shared, int slot, int x_slot, int at, int team, int thread) {
    if (TOGETHER) wg_begin();
    UNROLL for (int j = 0; j < BATCH; j++) {
        const int r = BATCH % S ? (at * BATCH + j) / S : at * (BATCH / S) + j / S;  // whole rows, where they are
        const int s = BATCH % S ? (at * BATCH + j) % S : j % S;
        if (JOINT) multiply_step(sums, shared, slot * BATCH + j, slot * BATCH + j, 0, 0, team, thread);
        else multiply_step(sums, shared, slot * BATCH + j, x_slot, r, s, team, thread);
    }
    if (TOGETHER) wg_commit();
}

// Have the sender know that a warp is done with a batch.
INLINE void give_back(shared_t shared, const Block *b, int slot, int lane) {
    if (lane < COPIES) {
        if (COPIES > 1) bar_arrive_at(W_EMPTY(slot), b->sc * COPIES + lane);
        else bar_arrive(W_EMPTY(slot));
    }
}

// Multiply the block's batches from `first` to before `end`. LAG of them are under way; behind them the buffers that
// are done with are given back, but for those that nothing comes to any more.
INLINE void multiply_batches(acc_t sums[SUM_WORDS], shared_t shared, const Block *b, Ring *ring, int first, int end,
                             int team, int thread) {
    const int count = (b->last - b->first) / BATCH, lane = thread % 32;
    int slot = ring->slot, parity = ring->parity, x_slot = ring->x_slot, x_parity = ring->x_parity;
    int at = b->first % TAPS / BATCH, fresh = !GATHERS, done_slot = slot, done_x_slot = x_slot, done_at = at, i = first;
    NO_UNROLL do {  // at least once: else the compiler waits for each product by itself
        if (!JOINT && fresh) {
            bar_wait(X_FULL(x_slot), x_parity);
            if (!MAPPED && !THROUGH_REGISTERS) wg_see_copies();
        }
        bar_wait(W_FULL(slot), parity);
        multiply_batch(sums, shared, slot, x_slot, at, team, thread);
        fresh = 0;
        NEXT(slot, parity, STAGES);
        if (++at == BATCHES) {
            at = 0, fresh = 1;
            NEXT(x_slot, x_parity, X_STAGES);
        }
        if (TOGETHER) WG_WAIT(LAG);
        if (i - first >= LAG) {
            if (STAYS || i - LAG + STAGES < count) give_back(shared, b, done_slot, lane);
            if (++done_slot == STAGES) done_slot = 0;
            if (!JOINT && ++done_at == BATCHES) {
                if (!GATHERS && lane == 0) bar_arrive(X_EMPTY(done_x_slot));
                done_at = 0;
                if (++done_x_slot == X_STAGES) done_x_slot = 0;
            }
        }
    } while (++i < end);
    WG_WAIT(0);
    if (PARTS == 1 && !PROMOTED)  // no sum is read before
        UNROLL for (int i = 0; i < SUM_WORDS; i += WG_WORDS) wg_done(sums + i);
    if (STAYS && LAG && lane == 0) {  // the last batch's; and its patch's
        bar_arrive(W_EMPTY(done_slot));
        if (!JOINT) bar_arrive(X_EMPTY(done_x_slot));
    }
    if (LEADS > 1 && !STAYS && end - LAG + STAGES < count) give_back(shared, b, done_slot, lane);
    *ring = Ring{slot, parity, x_slot, x_parity};
}

// Multiply all batches: of planes that begin anywhere lead by lead, and those of the last one where outputs are.
INLINE void multiply_all(acc_t sums[SUM_WORDS], shared_t shared, const Block *b, Ring *ring, int team, int thread) {
    const int count = (b->last - b->first) / BATCH;
    if (EARLY || !(GATHERS || MAPPED)) bar_wait(FIRST, 0);
#if LEADS > 1
    int lead = LEADS - 1 - b->first / OF_LEAD, done = 0;
    NO_UNROLL for (;;) {
        const int end = min(((LEADS - lead) * OF_LEAD - b->first) / BATCH, count);
        multiply_batches(sums, shared, b, ring, done, end, team, thread);
        if (end == count) break;
        move_sums(sums, MOVE, thread % 32);
        wg_done(sums);
        wg_begin();
        done = end, lead--;
    }
    move_home(sums, lead * MOVE, thread % 32);
#else
    multiply_batches(sums, shared, b, ring, 0, count, team, thread);
#endif
}
