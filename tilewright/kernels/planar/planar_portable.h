// The planar family without tensor cores and copy engine, in OpenCL C: the same tiles, buffers and order of channels,
// one step after the other by all threads, a barrier between them. To check the family where there is no such GPU.

#include "portable_number.h"

// What a product gives a lane: its two pixels times the channels of the tile that it has.
INLINE void multiply_step(acc_t *sums, const SHARED unsigned char *rows, const SHARED unsigned char *planes, Lane me,
                          int left) {
    for (int place = 0; place < OF_STEP; place++) {
        const int c = CHANNEL_AT(place);
        acc_t v[2] = {0, 0};
        if (c >= left) continue;
        for (int h = 0; h < 2 && me.there[h]; h++)
            v[h] = number_at(planes + me.image[h] * IMAGE_BYTES + c * PLANE_BYTES + me.pixel[h] * (int)sizeof(in_t));
        for (int i = 0; i < SUMS / 2; i++) {
            const acc_t w = filter_at(rows, 8, SUM_ROW(i, me.t), place);
            for (int h = 0; h < 2; h++) sums[SUM_AT(i, h)] += v[h] * w;
        }
    }
}

// Fill a tile; each block of a cluster works out all of its shares.
INLINE void fill_tile(SHARED unsigned char *shared, const GLOBAL in_t *x, const GLOBAL unsigned char *w, Epilogue ep,
                      const Block *b) {
    const Lane me = find_lane(b, THREAD(0) / 32, THREAD(0) % 32);
    const int multiplies = THREAD(0) < 128 * TEAMS && me.there[0];
    acc_t sums[SUMS], part[SUMS];
    for (int i = 0; i < SUMS; i++) sums[i] = 0;
    for (int share = 0; share < SC; share++) {
        for (int i = 0; i < SUMS; i++) part[i] = 0;
        for (int step = FIRST_STEP(share); step < FIRST_STEP(share + 1); step++) {
            const int slot = step % STAGES, count = CHANNELS_OF(step) * HW;
            SHARED unsigned char *planes = shared + X_FROM + slot * X_BYTES;
            BARRIER();
            for (int at = THREAD(0); at < W_BYTES; at += THREADS) shared[slot * W_BYTES + at] = w[W_OF(b, step) + at];
            for (int at = THREAD(0); at < b->images * count; at += THREADS)
                ((SHARED in_t *)(planes + at / count * IMAGE_BYTES))[at % count] =
                    x[X_OF(b, at / count, step * OF_STEP) + at % count];
            BARRIER();
            if (multiplies) multiply_step(part, shared + slot * W_BYTES, planes, me, CHANNELS_OF(step));
        }
        for (int i = 0; i < SUMS; i++) sums[i] += part[i];
    }
    BARRIER();
    if (multiplies) keep_sums(shared + TILE_FROM, sums, b, me, ep);
    BARRIER();
}

INLINE void make_tiles(SHARED unsigned char *shared, const GLOBAL in_t *x, const GLOBAL unsigned char *w, Epilogue ep) {
    for (int id = GROUP(0); id < TILES * SC; id += GROUPS(0)) {
        const Block b = find_block(id);
        fill_tile(shared, x, w, ep, &b);
#if SC == 1
        store_tile(ep.y, shared + TILE_FROM, &b);
        BARRIER();
#endif
    }
}
