// From sums to y, in the planar family, by way of a tile in shared memory.
//
//   keep_sums    a lane's sums into the tile: finished, as outputs; or as they are, where they are shares (SC > 1)
//   store_tile   the tile to y: images of it by bulk copies, or by STORERS threads
//   TILE_READ    wait until the copies have read it; by whoever sent them
//   add_tiles    the shares of a cluster to y

#define TILE_OF(type, shared) ((SHARED type *)(shared))

INLINE void keep_sums(SHARED unsigned char *tile, const acc_t sums[SUMS], const Block *b, Lane me, Epilogue ep) {
    if (!me.there[0]) return;
    UNROLL for (int i = 0; i < SUMS / 2; i++) {
        const int row = SUM_ROW(i, me.t);
        const int at = (me.image[0] * KB + row) * HW + me.pixel[0];
        const int next = PAIRED ? at + 1 : (me.image[1] * KB + row) * HW + me.pixel[1];
        acc_t v[2] = {sums[SUM_AT(i, 0)], sums[SUM_AT(i, 1)]};
#if SC > 1
        SHARED acc_t *to = TILE_OF(acc_t, tile);
        const int aligned = HW % 2 == 0;
        acc_t *out = v;
#else
        SHARED done_t *to = TILE_OF(done_t, tile);
        const int k = b->k0 + row, aligned = HW % 2 == 0 || (i % 2 == 0 && me.there[1]);
        if (K % KB && k >= K) continue;
        const acc_t added = BIAS ? out_load(ep.bias + k) : 0;
        done_t out[2];
        const offset_t first = Y_OF(b, me.image[0], row) + me.pixel[0];
        const offset_t second = PAIRED ? first + 1 : Y_OF(b, me.image[1], row) + me.pixel[1];
        out[0] = done_of(before_pool_by(v[0], added, ep, first), ep, k);
        out[1] = done_of(before_pool_by(v[1], added, ep, me.there[1] ? second : first), ep, k);  // none past the last
#endif
        if (PAIRED && aligned) {
            store_run(2, to + at, out);
        } else {
            to[at] = out[0];
            if (me.there[1]) to[next] = out[1];
        }
    }
}

#if SC > 1
#define MINE (KB / SC)  // channels of the tile that this block finishes

#define RUN 4           // neighbouring sums of a thread at once, of all shares one after the other
INLINE void add_shares(acc_t v[RUN], SHARED unsigned char *shared, int at) {
#ifdef __CUDACC__
    sum_of_blocks(v, place_of(shared + at * 4), SC);
#else
    load_run(RUN, v, TILE_OF(acc_t, shared) + at);
#endif
}

INLINE void add_tiles(Epilogue ep, SHARED unsigned char *shared, const Block *b) {
    // Images of y are multiples of 16 bytes, and MINE of 4: so are the outputs of an image that a block finishes.
    const int row0 = b->sc * MINE, count = (K % KB ? min(MINE, b->channels - row0) : MINE) * HW;
    NO_UNROLL for (int i = THREAD(0) * RUN; i < b->images * count; i += THREADS * RUN) {
        const int image = i / count, at = i % count;
        const offset_t to = Y_OF(b, image, row0) + at;
        acc_t v[RUN];
        done_t out[RUN];
        add_shares(v, shared, (image * KB + row0) * HW + at);
        UNROLL for (int e = 0; e < RUN; e++) {
            const int k = b->k0 + row0 + (at + e) / HW;
            out[e] = done_of(before_pool(v[e], ep, k, to + e), ep, k);
        }
#if Y_ALIGNED
        store_run(RUN, ep.y + to, out);
#else
        UNROLL for (int e = 0; e < RUN; e++) ep.y[to + e] = out[e];
#endif
    }
}

#define TILE_READ()

#elif defined(__CUDACC__) && Y_ALIGNED
#define TILE_READ() asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory")
INLINE void store_tile(done_t *y, unsigned char *tile, const Block *b) {
    const int image = THREAD(0), of_channel = HW * (int)sizeof(done_t);
    if (image >= b->images) return;
    const shared_t from = place_of(tile + image * (KB * of_channel));
    const int bytes = (K % KB ? b->channels : KB) * of_channel;
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(y + Y_OF(b, image, 0)), "r"(from), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

#else
#define TILE_READ()
INLINE void store_tile(GLOBAL done_t *y, const SHARED unsigned char *tile, const Block *b) {
    const int count = b->channels * HW;
    NO_UNROLL for (int i = THREAD(0); i < b->images * count; i += STORERS)
        y[Y_OF(b, i / count, 0) + i % count] = TILE_OF(const done_t, tile)[i / count * (KB * HW) + i % count];
}
#endif
