// The pointwise family without tensor cores and copy engine, in OpenCL C: the same spans, places in shared memory and
// packed filters, one step after the other by all threads, a barrier between them. To check it where there are none.

#include "portable_number.h"

#define X_PARAM const GLOBAL in_t *RESTRICT x
#define X_GIVEN x

// What a step gives a lane: its two pixels times the channels of the tile that it has.
INLINE void multiply_step(acc_t sums[SUMS], const SHARED unsigned char *rows, const SHARED unsigned char *spans,
                          int warp, int lane) {
    for (int c = 0; c < CHANNELS; c++) {
        acc_t v[2];
        for (int h = 0; h < 2; h++) {
            const int px = PIXEL_OF(warp, lane, h), byte = px % SPAN_PIXELS * (int)sizeof(in_t);
            v[h] = number_at(spans + px / SPAN_PIXELS * SPAN_BYTES + SPOT(c, byte) + AHEAD(c));
        }
        for (int i = 0; i < SUMS / 2; i++) {
            const acc_t w = filter_at(rows, CHUNKS, SUM_ROW(i, lane % 4), c);
            for (int h = 0; h < 2; h++) sums[SUM_AT(i, h)] += v[h] * w;
        }
    }
}

INLINE void copy_step(SHARED unsigned char *spans, const GLOBAL in_t *x, int id, int step) {
    for (int item = THREAD(0); item < SPANS * CHANNELS * SPAN_PIXELS; item += THREADS) {
        const int px = item % SPAN_PIXELS, row = item / SPAN_PIXELS % CHANNELS, number = item / SPAN_PIXELS / CHANNELS;
        const int c = step * CHANNELS + STRAND_CHANNEL(row);
        const Origin origin = find_origin(id, number);
        const int there = origin.image < N && origin.start + px < HW && c < C;
        const offset_t from = ((offset_t)origin.image * C + c) * PLANE_IN + origin.start + px;
        SHARED unsigned char *place = spans + number * SPAN_BYTES + SPOT(row, px * (int)sizeof(in_t)) + AHEAD(row);
        *(SHARED in_t *)place = there ? x[from] : 0;
    }
}

// Make the block's tiles. Each thread is in a team; where these take turns, the others have nothing to multiply.
INLINE void make_tiles(SHARED unsigned char *shared, const GLOBAL in_t *x, const GLOBAL unsigned char *w, Epilogue ep) {
    const int warp = THREAD(0) / 32, lane = THREAD(0) % 32, team = min(warp / 4, TEAMS - 1);
    acc_t sums[SUMS];
    int tile = 0, turn = 0;
    for (EACH_TILE(id)) {
        const int multiplies = warp < 4 * TEAMS && (!TURNS || tile % TEAMS == team);
        for (int i = 0; i < SUMS; i++) sums[i] = 0;
        for (int step = 0; step < STEPS; step++) {
            SHARED unsigned char *rows = shared + (KEEPS ? step : step % STAGES) * W_BYTES;
            SHARED unsigned char *spans = shared + X_FROM + step % STAGES * X_BYTES;
            BARRIER();
            for (int at = THREAD(0); at < W_BYTES && (!KEEPS || tile == 0); at += THREADS)
                rows[at] = w[W_OF(step) + at];
            copy_step(spans, x, id, step);
            BARRIER();
            if (multiplies) multiply_step(sums, rows, spans + SPANS_OF(team) * SPAN_BYTES, warp % 4, lane);
        }
        const Out out = find_out(id, team, THREAD(0) % 128);
        for (int part = 0; part < PARTS; part++, turn++) {
            SHARED kept_t *kept = KEPT(shared, team, turn);
            if (multiplies) keep_part(kept, sums + part * (PART / 2), ep, part, warp % 4, lane);
            BARRIER();
            if (multiplies) store_part(ep, kept, part, out, THREAD(0) % 128);
        }
        tile++;
    }
}
