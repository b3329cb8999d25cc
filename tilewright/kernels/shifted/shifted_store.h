// From sums to y, in the shifted family. By way of the tile in shared memory:
//
//   keep_sums    a lane's sums into the tile, as they are
//   store_tile   finish what the shares of a cluster have summed up, RUN neighbouring pixels at once, and store them
// Or without it, where blocks stay for more tiles (STAYS):
//   store_sums   finish and store a lane's sums, a word at once where its two pixels are one

INLINE void keep_sums(SHARED acc_t *tile, const acc_t sums[SUMS], int warp, int lane) {
    UNROLL for (int sum = 0; sum < SUMS; sum++) {  // SUM_AT(i, h), in their order
        const int i = sum / 4 * 2 + sum % 2, at = PIXEL_OF(warp, lane, sum / 2 % 2);
        if (64 * TEAMS == TILE_PIXELS || at < TILE_PIXELS) tile[SUM_ROW(i, lane % 4) * TILE_PITCH + at] = sums[sum];
    }
}

// Pixels of a thread at once: of a cluster's sums lanes side by side read 16 bytes each, side by side. They are stored
// at once, too, if they are neighbours in y (RUN divides RUN_OUT) and that is aligned.
#if SC > 1
#define RUN 4
#else
#define RUN RUN_OUT
#endif

#define SKIPS (SC == 1 && !ACROSS)  // a thread's pixels are outputs, none between two rows of the tile

// RUN neighbours of the tile, of all shares one after the other.
INLINE void add_shares(acc_t v[RUN], SHARED acc_t *tile, int at) {
#if SC > 1 && defined(__CUDACC__)
    sum_of_blocks(v, place_of(tile + at), SC);
#else
    load_run(RUN, v, tile + at);
#endif
}

// Element of y of a channel's pixel.
INLINE offset_t out_of(const Block *b, Pixel one, int k) {
    return ((offset_t)(b->n0 + one.image) * K + k) * (P * Q) + one.to;
}

INLINE void store_tile(Epilogue ep, SHARED acc_t *tile, const Block *b) {
    const int mine = CEIL_DIV(KB, SC), first = b->sc * mine, rows = min(mine, b->channels - first);
    const int runs = CEIL_DIV(SKIPS ? IMAGES * ROWS * COLUMNS : TILE_PIXELS, RUN);  // of a channel
    NO_UNROLL for (int item = THREAD(0); item < rows * runs; item += THREADS) {
        const int row = first + item / runs, at = item % runs * RUN, k = b->k0 + row;
        const int px = SKIPS && WIDE != COLUMNS ? at / COLUMNS * WIDE + at % COLUMNS : at;
        acc_t v[RUN];
#if RUN_OUT % RUN == 0 && Y_VECTOR
        const Pixel one = find_pixel(b, px);
        if (!one.there) continue;
        const offset_t to = out_of(b, one, k);
        add_shares(v, tile, row * TILE_PITCH + px);
        finish_run(RUN, ep, k, 0, to, v);
#else
        add_shares(v, tile, row * TILE_PITCH + px);
        UNROLL for (int i = 0; i < RUN; i++) {
            const Pixel one = find_pixel(b, px + i);
            if (one.there) finish_one(ep, k, out_of(b, one, k), v[i]);
        }
#endif
    }
}

// The eight lanes that share channels have sixteen neighbouring pixels, or twice eight of tf32: 32 bytes of y at once.
INLINE void store_sums(Epilogue ep, const acc_t sums[TALL * SUMS], const Block *b, int warp, int lane) {
    offset_t first[2];
    int rows[2];  // of y, one below the other
    UNROLL for (int h = 0; h < 2; h++) {
        const Pixel one = find_pixel(b, PIXEL_OF(warp, lane, h));
        rows[h] = !one.there ? 0 : P % TALL ? min(TALL, P - one.p * TALL) : TALL;
        first[h] = (offset_t)(b->n0 + one.image) * K * (P * Q) + one.to;
    }
    UNROLL for (int at = 0; at < TALL * SUMS / 2; at++) {
        const int i = at / TALL, m = at % TALL, row = SUM_ROW(i, lane % 4), k = b->k0 + row;
        const offset_t to = (offset_t)k * (P * Q) + m * Q;
        acc_t v[2];
        UNROLL for (int h = 0; h < 2; h++) v[h] = sums[m * SUMS + SUM_AT(i, h)];
        if (K % KB && row >= b->channels) continue;
#if PAIRED && Q % 2 == 0 && Y_VECTOR  // a word has both pixels
        if (m >= rows[0]) continue;
        finish_run(2, ep, k, 0, first[0] + to, v);
#else
        UNROLL for (int h = 0; h < 2; h++) if (m < rows[h]) finish_one(ep, k, first[h] + to, v[h]);
#endif
    }
}
