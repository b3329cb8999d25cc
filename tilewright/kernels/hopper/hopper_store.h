// The tile of sums of the hopper family: written by the warpgroups, added up over shares, finished and stored by all
// threads of the blocks that have shares of it, RUN_OUT neighbours in y at once. A row of the tile is FAST neighbours:
// the channels of a pixel, or in nchw the pixels of a channel.

#define THREAD_RUNS CEIL_DIV(MINE * FAST, THREADS * RUN_OUT)  // of a thread
#define MOST_AT_ONCE (RUN_OUT > 4 ? 2 : 4)  // at most 16 elements
#define RUNS_AT_ONCE (THREAD_RUNS < MOST_AT_ONCE ? THREAD_RUNS : MOST_AT_ONCE)
#define BY_ROWS (RUN_OUT == 1 && FAST >= 32)  // a warp has a row at once: what its elements share is worked out once
#define OF_ROW (FAST < 256 ? (FAST + 31) / 32 : 8)  // elements of it that a thread has at once
#define WARPS (THREADS / 32)

// Write a thread's sums to the tile.
INLINE void write_sums(shared_t shared, const acc_t *sums, int team, int thread) {
    const int k = team % WM * 64 + thread / 32 * 16 + FIRST_OF(thread % 32), px = team / WM * WG_N + thread % 4 * 2;
    UNROLL for (int i = 0; i < WG_WORDS; i += 2) {
        const int ki = k + i / 2 % 2 * SECOND, pi = px + i / 4 * 8;
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
INLINE int pairs_of(int sc) { return max(0, min(PAIRS, NB / 2 - sc * PAIRS)); }  // of pixels (hopper_own.h)

// Add up a run of the tile, over the shares of the cluster; `row` counts this block's, number `own`. Its own share has
// stayed where it was written.
INLINE void add_up(acc_t v[RUN_OUT], shared_t shared, int own, int row, int column) {
    const int at = (row * PITCH + column) * 4;
    if (SC > 1)
        UNROLL for (int i = 0; i < RUN_OUT; i++) v[i] = 0;
    UNROLL for (int sc = 0; sc < SC; sc++) {
        const int from = (SC > 1 && !(KEPT && sc == own) ? MEET_FROM : 0) + sc * (MINE * PITCH * 4) + at;
        acc_t term[RUN_OUT];
#if RUN_OUT % 4 == 0
        UNROLL for (int i = 0; i < RUN_OUT; i += 4) read4(term + i, shared, from + i * 4);
#else
        UNROLL for (int i = 0; i < RUN_OUT; i++) term[i] = read1(shared, from + i * 4);
#endif
        UNROLL for (int i = 0; i < RUN_OUT; i++) v[i] = SC > 1 ? v[i] + term[i] : term[i];
    }
}

// Element k of a pixel, in y, z and partial sums.
INLINE offset_t element_of(int k, int pixel) {
    if (Y_NHWC) return (offset_t)pixel * (GROUPS_ * K) + k;
    const int n = N == 1 ? 0 : pixel / (P * Q), of_image = N == 1 ? pixel : pixel % (P * Q);
    return ((offset_t)n * (GROUPS_ * K) + k) * (P * Q) + of_image;
}

#define ADDS (ADD && EPILOGUE_HERE)
#define BRINGS (ADDS && FINISH == OWN && STORES == STORE_ROWS)  // rows of the residual before it is added
#ifdef __CUDACC__
// Which pixel of y a pixel of the tile is. A block that stays has no table: it would have to be waited for.
INLINE int output_of(shared_t shared, const Block *b, int px) {
    return STAYS ? find_output(b->px0, px) : read_int(shared, OUTS_FROM + px * 4);
}

// Have the L2 cache fetch what this block adds of a residual, a line of 128 bytes at a time, by those who multiply. Not
// where it is read number by number (Y23, 28269 channels: 105 us with it, 74 without).
INLINE void ask_for_residual(const GLOBAL out_t *z, shared_t shared, const Block *b) {
#if ADDS && !POOL && (FINISH != BY_TILE || RUN_OUT > 1)
    const int first = SC > 1 ? b->sc * (FINISH == MET ? 2 * PAIRS : MINE) : 0, most = Y_NHWC ? NB : KT;
    const int rows = SC > 1 ? min(most - first, FINISH == MET ? 2 * PAIRS : MINE) : most;
    const int in_line = 128 / (int)sizeof(out_t), lines = CEIL_DIV(Y_NHWC ? KT : NB, in_line);
    if (b->sg == 0) NO_UNROLL for (int item = THREAD(0); item < rows * lines; item += 128 * TEAMS) {
        const int row = first + item / lines, along = item % lines * in_line, k = b->channels + (Y_NHWC ? along : row);
        const int out = output_of(shared, b, Y_NHWC ? row : along);
        if (out >= 0 && k < K) prefetch(z + element_of(b->at.group * K + k, out));
    }
#endif
}
#endif

// Pixel of y that an element of the tile is of.
INLINE int pixel_of(shared_t shared, int row, int column) {
    return read_int(shared, OUTS_FROM + (Y_NHWC ? row : column) * 4);
}

// Finish a run of outputs, from an element of the tile on, and store it; or hand partial sums on.
INLINE void finish_out(Epilogue ep, const Block *b, int row, int column, int pixel, acc_t v[RUN_OUT]) {
    const int k = b->channels + (Y_NHWC ? column : row), k_all = b->at.group * K + k;
    if (k < K && pixel >= 0) {
        const offset_t to = SHARE_AT(b->at) + element_of(k_all, pixel);
#if Y_VECTOR
        finish_run(RUN_OUT, ep, k_all, 1, to, v);
#else
        GLOBAL done_t *y = ep.y + to;
        UNROLL for (int i = 0; i < RUN_OUT; i++) y[i] = done_of(epilogue(v[i], ep, k_all + i, to + i), ep, k_all + i);
#endif
    }
}

#if POOL_HERE
// Store what the pool makes of each whole window of the tile.
INLINE void store_tile(Epilogue ep, GLOBAL acc_t *partial, GLOBAL unsigned *arrived, SHARED int *is_last,
                       const Block *b, shared_t shared) {
    const int wide = WINDOWS(TILE_COLUMNS), windows = WINDOWS(TILE_ROWS) * wide;
    const int fast = Y_NHWC ? KT : windows, slow = Y_NHWC ? windows : KT;
    const int row = b->px0 / WR, n = row / HR, p0 = row % HR, q0 = b->px0 % WR;
    for (int e = THREAD(0) * RUN_OUT; e < slow * fast; e += THREADS * RUN_OUT) {
        const int k = Y_NHWC ? e % fast : e / fast, window = Y_NHWC ? e / fast : e % fast;
        const int k_all = b->at.group * K + b->channels + k;
        const int i0 = window / wide * POOL_STRIDE, j0 = window % wide * POOL_STRIDE;
        const int yp = (p0 + i0) / POOL_STRIDE, yq = (q0 + j0) / POOL_STRIDE;
        if (b->channels + k < K && n < N && yp < YP && yq < YQ) {
            acc_t pooled[RUN_OUT];
            done_t out[RUN_OUT];
            GLOBAL done_t *to = ep.y + Y_AT(n, k_all, yp, yq);
            UNROLL for (int c = 0; c < RUN_OUT; c++) pooled[c] = POOL_NOTHING;
            UNROLL for (int cell = 0; cell < POOL_SIZE * POOL_SIZE; cell++) {
                const int i = i0 + cell / POOL_SIZE, j = j0 + cell % POOL_SIZE, place = i * TILE_WIDTH + j;
                acc_t v[RUN_OUT];
                add_up(v, shared, b->sc, Y_NHWC ? place : k, Y_NHWC ? k : place);
                UNROLL for (int c = 0; c < RUN_OUT; c++)
                    pool_take(&pooled[c], before_pool(v[c], ep, k_all + c, Z_AT(n, k_all + c, p0 + i, q0 + j)));
            }
            UNROLL for (int c = 0; c < RUN_OUT; c++) {
                out[c] = done_of(pool_mean(pooled[c]), ep, k_all + c);
                if (!Y_VECTOR) to[c] = out[c];
            }
            if (Y_VECTOR) store_run(RUN_OUT, to, out);
        }
    }
}

#else
// The sum over the shares of the grid, in a fixed order.
INLINE void add_parts(acc_t v[RUN_OUT], const GLOBAL acc_t *part) {
    UNROLL for (int i = 0; i < RUN_OUT; i++) v[i] = 0;
    NO_UNROLL for (int g = 0; g < SG; g++, part += SLOW * FAST) {
        acc_t more[RUN_OUT];
        load_fresh_run(RUN_OUT, more, part);
        UNROLL for (int i = 0; i < RUN_OUT; i++) v[i] += more[i];
    }
}

// Store this block's rows of the tile. LAST: shares of the grid meet in memory, the block that arrives last adds them.
INLINE void store_tile(Epilogue ep, GLOBAL acc_t *partial, GLOBAL unsigned *arrived, SHARED int *is_last,
                       const Block *b, shared_t shared) {
    const int rows = rows_of(b->sc), first = b->sc * MINE;
    GLOBAL acc_t *parts = partial + (offset_t)b->at.tile * SG * (SLOW * FAST) + first * FAST;
    int whole = 1;
#if COMBINE == LAST
    for (int e = THREAD(0) * RUN_OUT; e < rows * FAST; e += THREADS * RUN_OUT) {
        acc_t v[RUN_OUT];
        add_up(v, shared, b->sc, e / FAST, e % FAST);
        store_run(RUN_OUT, parts + (offset_t)b->sg * (SLOW * FAST) + e, v);
    }
    whole = arrive_last(arrived, b->at, SG, is_last);
#endif
    if (!whole) return;
#if BY_ROWS
    const int lane = THREAD(0) % 32;
    for (int row = THREAD(0) / 32; row < rows; row += WARPS)
        NO_UNROLL for (int from = lane; from - lane < FAST; from += OF_ROW * 32) {
            acc_t v[OF_ROW][RUN_OUT];
            UNROLL for (int i = 0; i < OF_ROW; i++) {
                const int column = min(from + i * 32, FAST - 1);
                if (COMBINE == LAST) add_parts(v[i], parts + row * FAST + column);
                else add_up(v[i], shared, b->sc, row, column);
            }
            UNROLL for (int i = 0; i < OF_ROW; i++) {
                const int column = from + i * 32;
                if (column < FAST)
                    finish_out(ep, b, first + row, column, pixel_of(shared, first + row, column), v[i]);
            }
        }
#else
    const int count = rows * FAST;
    NO_UNROLL for (int e = THREAD(0) * RUN_OUT; e < count; e += RUNS_AT_ONCE * THREADS * RUN_OUT) {
        acc_t v[RUNS_AT_ONCE][RUN_OUT];
        int pixel[RUNS_AT_ONCE];
        UNROLL for (int i = 0; i < RUNS_AT_ONCE; i++) {  // all are read before the first is stored
            const int at = min(e + i * (THREADS * RUN_OUT), count - RUN_OUT);
            pixel[i] = pixel_of(shared, first + at / FAST, at % FAST);
            if (COMBINE == LAST) add_parts(v[i], parts + at);
            else add_up(v[i], shared, b->sc, at / FAST, at % FAST);
        }
        UNROLL for (int i = 0; i < RUNS_AT_ONCE; i++) {
            const int at = e + i * (THREADS * RUN_OUT);
            if (at < count) finish_out(ep, b, first + at / FAST, at % FAST, pixel[i], v[i]);
        }
    }
#endif
}
#endif
