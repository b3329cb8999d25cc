// The shifted family without tensor cores and copy engine, in OpenCL C: the same tiles, runs and packed filters, one
// step after the other by all threads, a barrier between them. To check the family where there is no such GPU.

#include "portable_number.h"

// What a product gives a lane: its two pixels times the channels of the tile that it has.
INLINE void multiply_tap(acc_t *sums, const SHARED unsigned char *rows, const SHARED unsigned char *run, const Block *b,
                         Lane me, int r, int s, int channels) {  // r: of SEEN
    for (int c = 0; c < channels; c++) {
        acc_t v[2];
        for (int h = 0; h < 2; h++) {
            const int number = me.place[h] + LEAD(b, me.image[h], c);
            const SHARED unsigned char *from = run + IMAGE_AT(b, me.image[h]) + c * PITCH + TAP_BYTES(r, s);
            v[h] = SEES(me, h, r, s) ? number_at(from + number * (int)sizeof(in_t)) : 0;
        }
        for (int i = 0; i < SUMS / 2; i++) {
            const acc_t w = filter_at(rows, CHUNKS, SUM_ROW(i, me.t), c);
            for (int h = 0; h < 2; h++) sums[SUM_AT(i, h)] += v[h] * w;
        }
    }
}

INLINE void copy_run(SHARED unsigned char *run, const GLOBAL in_t *x, const Block *b, int first) {
    const int channels = CHANNELS_OF(first);
    for (int plane = THREAD(0); plane < b->images * channels; plane += THREADS) {
        const int c = plane % channels, image = plane / channels;
        const Piece piece = find_piece(b, image, c);
        const GLOBAL in_t *from = x + RUN_OF(b, image, first) + piece.low;
        SHARED in_t *to = (SHARED in_t *)(run + IMAGE_AT(b, image) + c * PITCH) + piece.at;
        for (int i = 0; i < piece.count * piece.rows; i++)
            to[i / piece.count * ROW_W + i % piece.count] = from[i / piece.count * W + i % piece.count];
    }
}

// Sum up a tile; each block of a cluster works out all of its shares.
INLINE void sum_up(acc_t sums[TALL * SUMS], SHARED unsigned char *shared, const GLOBAL in_t *x,
                   const GLOBAL unsigned char *w, const Block *b, Lane me) {
    const int multiplies = THREAD(0) < 128 * TEAMS;
    acc_t part[TALL * SUMS];
    for (int i = 0; i < TALL * SUMS; i++) sums[i] = 0;
    for (int share = 0; share < SC; share++) {
        for (int i = 0; i < TALL * SUMS; i++) part[i] = 0;
        for (int step = FIRST_STEP(share); step < FIRST_STEP(share + 1); step++) {
            const int run = RUN_OF_STEP(step), first = step * OF_STEP % R;
            BARRIER();
            for (int at = THREAD(0); at < STEP_BYTES; at += THREADS) shared[at] = w[W_OF(b, step) + at];
            copy_run(shared + X_FROM, x, b, run);
            BARRIER();
            for (int at = 0; at < TALL * OF_STEP * S && multiplies; at++) {
                const int s = at % S, r = at / S % OF_STEP, m = at / S / OF_STEP;
                multiply_tap(part + m * SUMS, shared + (r * S + s) * W_BYTES, shared + X_FROM, b, me,
                             m * STR_H + first + r, s, CHANNELS_OF(run));
            }
        }
        for (int i = 0; i < TALL * SUMS; i++) sums[i] += part[i];
    }
}

// Make the block's tiles, from registers to y (STAYS), or fill the tile.
INLINE void make_tiles(SHARED unsigned char *shared, const GLOBAL in_t *x, const GLOBAL unsigned char *w, Epilogue ep) {
    const int warp = THREAD(0) / 32, multiplies = warp < 4 * TEAMS;
    acc_t sums[TALL * SUMS];
    for (EACH_TILE(id)) {
        const Block b = find_block(id);
        const Lane me = find_lane(&b, warp, THREAD(0) % 32);
        sum_up(sums, shared, x, w, &b, me);
#if STAYS
        if (multiplies) store_sums(ep, sums, &b, warp, THREAD(0) % 32);
#else
        BARRIER();
        if (multiplies) keep_sums((SHARED acc_t *)shared, sums, warp, THREAD(0) % 32);
#endif
    }
    BARRIER();
}
