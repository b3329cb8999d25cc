// The hopper family without tensor cores and copy engine, in OpenCL C: the same tiles, buffers and sums (hopper.cu),
// one step after the other by all threads, a barrier between them. To check the family where there is no such GPU.

// Fill the tile of sums; each block of a cluster works out all of its shares.
INLINE void sum_up(Epilogue ep, const GLOBAL unsigned char *w, shared_t shared, const Block *b) {
    const int team = THREAD(0) / 128, thread = THREAD(0) % 128;
    acc_t sums[SUM_WORDS];
    int moves[2];
    find_places(shared, b, THREAD(0), THREADS);
    for (int sc = 0; sc < SC; sc++) {
        const int share = b->sg * SC + sc, first = FIRST_STEP(share), last = FIRST_STEP(share + 1);
        for (int i = 0; i < SUM_WORDS; i++) sums[i] = 0;
#if GATHERS
        gather(shared, (const GLOBAL x_t *)b->x, b->px0, b->at.group);
#endif
        BARRIER();
        for (int step = first; step < last; step++) {
            const int slot = (step - first) % (STAGES * BATCH);
            const int x_slot = SLID ? 0 : JOINT ? slot : (step / TAPS - first / TAPS) % X_STAGES;
#if SPAN
            copy_spans(shared, X_FROM + x_slot * X_BYTES, b, step);
#else
            if (!GATHERS && (TAPWISE || step == first || step % TAPS == 0))
                copy_patch(shared, X_FROM + x_slot * X_BYTES, b, TAPWISE ? step : step / TAPS, THREAD(0), THREADS);
#endif
            for (int at = THREAD(0) * 16; at < W_BYTES; at += THREADS * 16)
                copy16(shared, slot * W_BYTES + at, b->w + (offset_t)step * W_BYTES + at, 1);
            BARRIER();
            const int tap = JOINT || SLID ? 0 : step % TAPS;
            if (team < TEAMS) multiply_step(sums, shared, slot, x_slot, tap / S, tap % S, team, thread);
            BARRIER();
        }
        if (team < TEAMS) {
            find_moves(moves, b, team, thread);
            join_sums(sums, moves);
            write_sums(shared, sums, team, thread);
        }
        BARRIER();
        if (SC > 1)
            for (int at = THREAD(0) * 4; at < rows_of(b->sc) * PITCH * 4; at += THREADS * 4) {
                const int sums = read_int(shared, b->sc * (MINE * PITCH * 4) + at);
                write_int(shared, MEET_FROM + sc * (MINE * PITCH * 4) + at, sums);
            }
        BARRIER();
    }
}
