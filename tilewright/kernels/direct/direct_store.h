// direct: a tile's sums go to memory, or meet those of the other shares of C first (tile.h has the ways to combine).
//
//   OUT_SHARED 0   every thread stores its own: nothing to wait for, but neighbours in y may be sums of other threads
//   OUT_SHARED 1   by way of shared memory, [SLOW][PITCH], FAST of a row neighbours in y: whole rows are stored, and
//                  shares of block (SB) and cluster (SC) are added up on the way

#if OUT_SHARED
// One element of the output tile, summed over its shares: of block and cluster, or (pass 1) of the grid.
INLINE acc_t tile_sum(const SHARED acc_t *shared, const GLOBAL acc_t *parts, Place at, int slow, int fast, int pass) {
    acc_t sum = 0;
    if (pass == 1) {
        UNROLL for (int g = 0; g < SG; g++)
            sum += load_fresh(parts + (offset_t)g * (KB * TILE_PIXELS) + slow * FAST + fast);
        return sum;
    }
    const SHARED acc_t *tile = shared + slow * PITCH + fast;
    UNROLL for (int rank = 0; rank < SC; rank++)
        UNROLL for (int g = 0; g < (SC > 1 ? 1 : SB); g++)
            sum += cluster_load(tile + g * SLOW * PITCH, (rank + at.sc) % SC);
    return sum;
}

// Finish the elements under each window of the tile and store what the pool makes of them.
INLINE void store_pooled(Epilogue ep, Place at, const SHARED acc_t *shared, const GLOBAL acc_t *parts, int warp,
                         int lane) {
#if POOL_HERE
    const int fast_count = Y_NHWC ? KB : POOLED_PIXELS, slow_count = Y_NHWC ? POOLED_PIXELS : KB;
    for (int fast = lane; fast < fast_count; fast += WARP)
        for (int slow = warp; slow < slow_count; slow += SC * (THREADS / WARP)) {
            int k = Y_NHWC ? fast : slow, window = Y_NHWC ? slow : fast, k_all = at.group * K + at.k0 + k;
            int h = window / WINDOWS(WB), w = window % WINDOWS(WB);
            int p = (at.p0 + POOL_PAD) / POOL_STRIDE + h, q = (at.q0 + POOL_PAD) / POOL_STRIDE + w;
            if (at.k0 + k >= K || p >= YP || q >= YQ) continue;
            acc_t pooled = POOL_NOTHING;
            UNROLL for (int e = 0; e < POOL_SIZE * POOL_SIZE; e++) {
                int i = h * POOL_STRIDE + e / POOL_SIZE, j = w * POOL_STRIDE + e % POOL_SIZE, pixel = i * WB + j;
                if ((unsigned)(at.p0 + i) < P && (unsigned)(at.q0 + j) < Q) {
                    acc_t sum = tile_sum(shared, parts, at, Y_NHWC ? pixel : k, Y_NHWC ? k : pixel, COMBINE == LAST);
                    pool_take(&pooled, before_pool(sum, ep, k_all, Z_AT(at.n, k_all, at.p0 + i, at.q0 + j)));
                }
            }
            ep.y[Y_AT(at.n, k_all, p, q)] = done_of(pool_mean(pooled), ep, k_all);
        }
#endif
}

// Write a thread's sums to the tile of its share in shared memory.
INLINE void write_sums(SHARED acc_t *shared, Lane me, vec acc[TK][TH][TW]) {
    if (me.in_warp == 0) FOR_TILE(a, b, i) {
        acc_t one[VECTOR];
        vec_unpack(one, acc[a][b][i]);
        UNROLL for (int v = 0; v < VECTOR; v++) {
            int k = a * (BK * VECTOR) + me.k + v, pixel = (me.h + b) * WB + me.w + i;
            shared[me.in_block * SLOW * PITCH + (Y_NHWC ? pixel * PITCH + k : k * PITCH + pixel)] = one[v];
        }
    }
}

// Add up the shares of the block, where the cluster's blocks read the sums.
INLINE void add_shares(SHARED acc_t *shared) {
    BARRIER();
    for (int e = THREAD(0); e < SLOW * PITCH; e += THREADS) {
        acc_t sum = shared[e];
        UNROLL for (int g = 1; g < SB; g++) sum += shared[g * SLOW * PITCH + e];
        shared[e] = sum;
    }
}

#define APART (SC * (THREADS / WARP))  // rows between two of a warp

// The shares of block and cluster meet in shared memory, behind the staged tiles' last use; those of the grid in
// memory, where the last block to arrive goes through the tile once more (pass 1).
INLINE void store_sums(Epilogue ep, GLOBAL acc_t *partial, GLOBAL unsigned *arrived, SHARED int *is_last,
                       SHARED acc_t *shared, Place at, Lane me, vec acc[TK][TH][TW]) {
    if (STAGED) ASYNC_WAIT(0);
    BARRIER();
    write_sums(shared, me, acc);
    if (SB > 1 && SC > 1) add_shares(shared);
    CLUSTER_BARRIER();
    int warp = at.sc * (THREADS / WARP) + THREAD(0) / WARP, lane = THREAD(0) % WARP;
    GLOBAL acc_t *parts = partial + (offset_t)at.tile * SG * (KB * TILE_PIXELS);
    UNROLL for (int pass = 0; pass < (COMBINE == LAST ? 2 : 1); pass++) {
        if (pass == 1) {
            if (SC > 1) CLUSTER_BARRIER();
            if (!arrive_last(arrived, at, SG, is_last)) return;
        }
        if (POOL_HERE && pass == (COMBINE == LAST)) {
            store_pooled(ep, at, shared, parts, warp, lane);
            continue;
        }
        for (int fast = lane; fast < FAST; fast += WARP) {
#if SC > 1 || COMBINE == LAST  // a sum is long on its way: four at once
            for (int slow = warp; slow < SLOW; slow += 4 * APART) {
                acc_t sums[4];
                UNROLL for (int j = 0; j < 4; j++)
                    if (slow + j * APART < SLOW) sums[j] = tile_sum(shared, parts, at, slow + j * APART, fast, pass);
                UNROLL for (int j = 0; j < 4; j++)
                    if (slow + j * APART < SLOW) {
                        const int row = slow + j * APART, k = Y_NHWC ? fast : row, pixel = Y_NHWC ? row : fast;
                        if (COMBINE == LAST && pass == 0)
                            parts[(offset_t)at.sg * (KB * TILE_PIXELS) + row * FAST + fast] = sums[j];
                        else finish(ep, at, k, pixel / WB, pixel % WB, sums[j]);
                    }
            }
#else
            UNROLL_BY(4) for (int slow = warp; slow < SLOW; slow += APART) {
                int k = Y_NHWC ? fast : slow, pixel = Y_NHWC ? slow : fast;
                acc_t sum = tile_sum(shared, parts, at, slow, fast, pass);
                finish(ep, at, k, pixel / WB, pixel % WB, sum);
            }
#endif
        }
    }
    if (SC > 1 && COMBINE != LAST) {
        CLUSTER_READ();
        CLUSTER_LEAVE();  // a block's shared memory outlives its readers
    }
}

#else  // every thread stores its own

#if Y_ROWS  // nchw, rows of 16-byte aligned quads
INLINE void store_own(Epilogue ep, Place at, Lane me, vec acc[TK][TH][TW]) {
    UNROLL for (int i = 0; i < TW; i += 4) UNROLL for (int a = 0; a < TK; a++) UNROLL for (int b = 0; b < TH; b++) {
        acc_t quad[4][VECTOR];
        UNROLL for (int j = 0; j < 4; j++) vec_unpack(quad[j], acc[a][b][i + j]);
        UNROLL for (int v = 0; v < VECTOR; v++) {
            int k = at.k0 + a * (BK * VECTOR) + me.k + v, p = at.p0 + me.h + b, q = at.q0 + me.w + i;
            if (k >= K || p >= P || q >= Q) continue;
            k += at.group * K;
            acc_t run[4];
            UNROLL for (int j = 0; j < 4; j++) run[j] = quad[j][v];
            finish_run(4, ep, k, 0, OUT_AT(at, k, p, q), run);
        }
    }
}
#else
INLINE void store_own(Epilogue ep, Place at, Lane me, vec acc[TK][TH][TW]) {
    FOR_TILE(a, b, i) {
        acc_t one[VECTOR];
        vec_unpack(one, acc[a][b][i]);
#if Y_VECTOR  // nhwc: neighbouring channels
        int k = at.k0 + a * (BK * VECTOR) + me.k, p = at.p0 + me.h + b, q = at.q0 + me.w + i;
        if (k < K && p < P && q < Q) {
            k += at.group * K;
            finish_run(VECTOR, ep, k, 1, OUT_AT(at, k, p, q), one);
        }
#else
        UNROLL for (int v = 0; v < VECTOR; v++)
            finish(ep, at, a * (BK * VECTOR) + me.k + v, me.h + b, me.w + i, one[v]);
#endif
    }
}
#endif

INLINE void store_sums(Epilogue ep, GLOBAL acc_t *partial, GLOBAL unsigned *arrived, SHARED int *is_last,
                       SHARED acc_t *shared, Place at, Lane me, vec acc[TK][TH][TW]) {
#if COMBINE == LAST  // the block that arrives last adds up all shares, in a fixed order
    GLOBAL acc_t *mine = partial + (offset_t)at.tile * SG * (KB * TILE_PIXELS) + me.team * VECTOR;
// On their way, in registers.
#define SHARES_AT_ONCE (TK * TH * TW * VECTOR <= 16 ? 4 : TK * TH * TW * VECTOR <= 32 ? 2 : 1)
#define PART(g, a, b, i) (mine + ((offset_t)(g) * (TK * TH * TW) + ((a) * TH + (b)) * TW + (i)) * (TEAM * VECTOR))
    if (me.in_warp == 0) FOR_TILE(a, b, i) vec_store(PART(at.sg, a, b, i), acc[a][b][i]);
    if (!arrive_last(arrived, at, SG, is_last)) return;
    FOR_TILE(a, b, i) vec_zero(&acc[a][b][i]);
    UNROLL_BY(SHARES_AT_ONCE) for (int g = 0; g < SG; g++)
        FOR_TILE(a, b, i) vec_add_fresh(&acc[a][b][i], PART(g, a, b, i));
#endif
    if (me.in_warp == 0) store_own(ep, at, me, acc);
}
#endif
