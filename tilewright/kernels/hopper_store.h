// The tile of sums of the hopper family: written by the warpgroups, added up over shares, finished and stored by all
// threads of the blocks that have shares of it, RUN neighbours in y at once.

#define RUNS_AT_ONCE (RUN > 4 ? 2 : 4)  // of a thread: at most 16 elements

// Write a thread's sums to the tile.
INLINE void write_sums(shared_t shared, const acc_t *sums, int team, int thread) {
    const int k = team % WM * 64 + thread / 32 * 16 + thread % 32 / 4, px = team / WM * WG_N + thread % 4 * 2;
    UNROLL for (int i = 0; i < WG_WORDS; i += 2) {
        const int ki = k + i / 2 % 2 * 8, pi = px + i / 4 * 8;
        if (KT < KB && ki >= KT) continue;
        if (Y_NHWC) {
            write1(shared, (pi * PITCH + ki) * 4, sums[i]);
            write1(shared, ((pi + 1) * PITCH + ki) * 4, sums[i + 1]);
        } else {
            write2(shared, (ki * PITCH + pi) * 4, sums[i], sums[i + 1]);
        }
    }
}

// How many rows of the tile a block of the cluster finishes, from sc * MINE on.
INLINE int rows_of(int sc) { return sc * MINE < SLOW ? min(MINE, SLOW - sc * MINE) : 0; }

// Add up a run of the tile, over the shares of the cluster; `e` counts this block's elements.
INLINE void add_up(acc_t v[RUN], shared_t shared, int e) {
    const int at = (e / FAST * PITCH + e % FAST) * 4;
    UNROLL for (int i = 0; i < RUN; i++) v[i] = 0;
    UNROLL for (int sc = 0; sc < SC; sc++) {
        const int from = SC > 1 ? MEET_FROM + sc * (MINE * PITCH * 4) + at : at;
#if Y_NHWC
        acc_t four[RUN / 4][4];
        const int late = RUN == 8 && THREAD(0) & 4;  // four threads begin with their second half: other banks
        UNROLL for (int i = 0; i < RUN / 4; i++) read4(four[i], shared, from + (late ? RUN / 4 - 1 - i : i) * 16);
        UNROLL for (int i = 0; i < RUN; i++) v[i] += late ? four[RUN / 4 - 1 - i / 4][i % 4] : four[i / 4][i % 4];
#else
        v[0] += read1(shared, from);
#endif
    }
}

// Element k of a pixel, in y, z and partial sums.
INLINE offset_t element_of(int k, int pixel) {
    if (Y_NHWC) return (offset_t)pixel * (GROUPS_ * K) + k;
    return ((offset_t)(N == 1 ? 0 : pixel / (P * Q)) * (GROUPS_ * K) + k) * (P * Q) + (N == 1 ? pixel : pixel % (P * Q));
}

// Pixel of y that element e of the tile is of.
INLINE int pixel_of(shared_t shared, int e) { return read_int(shared, OUTS_FROM + (Y_NHWC ? e / FAST : e % FAST) * 4); }

// Finish a run of outputs, from element e of the tile on, and store it; or hand partial sums on.
INLINE void finish_run(GLOBAL y_t *y, const GLOBAL out_t *bias, const GLOBAL out_t *z, const Block *b, int e, int pixel,
                       const acc_t v[RUN]) {
    const int k = b->channels + (Y_NHWC ? e % FAST : e / FAST), k_all = b->at.group * K + k;
    if (k < K && pixel >= 0) {
        const offset_t to = element_of(k_all, pixel);
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
INLINE void store_tile(GLOBAL y_t *y, const GLOBAL out_t *bias, const GLOBAL out_t *z, GLOBAL acc_t *partial,
                       GLOBAL unsigned *arrived, SHARED int *is_last, const Block *b, shared_t shared) {
    const int fast = Y_NHWC ? KT : WINDOWS(TILE_ROWS) * YQ, slow = Y_NHWC ? WINDOWS(TILE_ROWS) * YQ : KT;
    const int row = b->px0 / WR, n = row / HR, p0 = row % HR;
    for (int e = THREAD(0) * RUN; e < slow * fast; e += THREADS * RUN) {
        const int k = Y_NHWC ? e % fast : e / fast, window = Y_NHWC ? e / fast : e % fast;
        const int k_all = b->at.group * K + b->channels + k;
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

#else
// The sum over the shares of the grid, in a fixed order.
INLINE void add_parts(acc_t v[RUN], const GLOBAL acc_t *part) {
    UNROLL for (int i = 0; i < RUN; i++) v[i] = 0;
    NO_UNROLL for (int g = 0; g < SG; g++, part += SLOW * FAST) {
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
}

// Store this block's rows of the tile. LAST: shares of the grid meet in memory, the block that arrives last adds them.
INLINE void store_tile(GLOBAL y_t *y, const GLOBAL out_t *bias, const GLOBAL out_t *z, GLOBAL acc_t *partial,
                       GLOBAL unsigned *arrived, SHARED int *is_last, const Block *b, shared_t shared) {
    const int start = THREAD(0) * RUN, count = rows_of(b->sc) * FAST, first = b->sc * (MINE * FAST);
    GLOBAL acc_t *parts = partial + (offset_t)b->at.tile * SG * (SLOW * FAST) + first;
    int whole = 1;
#if COMBINE == LAST
    for (int e = start; e < count; e += THREADS * RUN) {
        acc_t v[RUN];
        add_up(v, shared, e);
        store_run(RUN, parts + (offset_t)b->sg * (SLOW * FAST) + e, v);
    }
    whole = arrive_last(arrived, b->at, SG, is_last);
#endif
    if (whole)
        NO_UNROLL for (int e = start; e < count; e += RUNS_AT_ONCE * THREADS * RUN) {
            acc_t v[RUNS_AT_ONCE][RUN];
            int pixel[RUNS_AT_ONCE];
            UNROLL for (int i = 0; i < RUNS_AT_ONCE; i++) {  // all are read before the first is stored
                const int at = min(e + i * (THREADS * RUN), count - RUN);
                pixel[i] = pixel_of(shared, first + at);
                if (COMBINE == LAST) add_parts(v[i], parts + at);
                else add_up(v[i], shared, at);
            }
            UNROLL for (int i = 0; i < RUNS_AT_ONCE; i++)
                if (e + i * (THREADS * RUN) < count)
                    finish_run(y, bias, z, b, first + e + i * (THREADS * RUN), pixel[i], v[i]);
        }
}
#endif
