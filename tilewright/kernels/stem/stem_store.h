// How the stem family finishes the sums of a warp: a thread has runs of RUN_OUT neighbours in y, of one pixel in nhwc,
// of one channel in nchw.
//
//   Channels      bias and scale of the channels of a thread
//   store_sums    finishes the sums of a turn and stores them; to shared memory where they are pooled (POOL_HERE)
//   store_pooled  what the pool makes of each window of the tile

#define OF(i) (Y_NHWC ? (i) : 0)  // which channel of a run's
#define MY_CHANNELS (2 * KT)      // of a thread

typedef struct {
    acc_t bias[MY_CHANNELS];
    float scale[MY_CHANNELS];
} Channels;

// The first channel of the run that a thread has of piece g (nhwc), or its channel of half h of piece g.
INLINE int channel_of(int g, int h, int lane) {
    return Y_NHWC ? 8 * g + lane % 4 * RUN_OUT : 16 * g + 8 * h + lane / 4;
}

INLINE Channels find_channels(const GLOBAL out_t *bias, int k0, int lane SCALE_PARAMETER) {
    Channels its;
    UNROLL for (int i = 0; i < MY_CHANNELS; i++) {
        const int k = k0 + (Y_NHWC ? channel_of(i / RUN_OUT * GROUP_OF, 0, lane) + i % RUN_OUT
                                   : channel_of(i / 2, i % 2, lane));
        its.bias[i] = BIAS && EPILOGUE_HERE && k < K ? out_load(bias + k) : 0;
#if REQUANT
        its.scale[i] = EPILOGUE_HERE && k < K ? scale[k] : 0;
#endif
    }
    return its;
}

#if POOL_HERE
#define SUM_AT(k, px) (Y_NHWC ? (px) * SUM_PITCH + (k) : (k) * SUM_PITCH + (px))

// Finish sums of a thread, from channel k and pixel px of the tile on, for the pool; b: their channels' bias. (y, s: of
// the other finish_run.)
INLINE void finish_run(GLOBAL done_t *y, const GLOBAL out_t *z, SHARED acc_t *sums, Place at, int k, int px,
                       acc_t v[RUN_OUT], const acc_t *b, const float *s) {
    if (px >= PIXELS) return;
    UNROLL for (int i = 0; i < RUN_OUT; i++) {
        const int ki = k + (Y_NHWC ? i : 0), pi = px + (Y_NHWC ? 0 : i), p = at.p0 + pi / TW, q = at.q0 + pi % TW;
        if (!ADD || (at.k0 + ki < K && (unsigned)p < P && (unsigned)q < Q))
            v[i] = before_pool_by(v[i], b[OF(i)], z, Z_AT(at.n, at.k0 + ki, p, q));
    }
    store_run(RUN_OUT, sums + SUM_AT(k, px), v);
}

// Pool: UNIT_OUT channels of a pixel to a thread.
INLINE void store_pooled(GLOBAL done_t *y, const SHARED acc_t *sums, Place at SCALE_PARAMETER) {
    const int wide = WINDOWS(TW), windows = WINDOWS(TH) * wide, units = KB / UNIT_OUT;
    NO_UNROLL for (int e = THREAD(0); e < windows * units; e += THREADS) {
        const int k = (Y_NHWC ? e % units : e / windows) * UNIT_OUT, window = Y_NHWC ? e / units : e % windows;
        const int i0 = window / wide * POOL_STRIDE, j0 = window % wide * POOL_STRIDE, k_all = at.k0 + k;
        const int yp = (at.p0 + POOL_PAD + i0) / POOL_STRIDE, yq = (at.q0 + POOL_PAD + j0) / POOL_STRIDE;
        acc_t pooled[UNIT_OUT];
        if (k_all >= K || yp >= YP || yq >= YQ) continue;
        UNROLL for (int c = 0; c < UNIT_OUT; c++) pooled[c] = POOL_NOTHING;
        UNROLL for (int cell = 0; cell < POOL_SIZE * POOL_SIZE; cell++) {
            const int i = i0 + cell / POOL_SIZE, j = j0 + cell % POOL_SIZE;
            acc_t v[UNIT_OUT];
            if ((unsigned)(at.p0 + i) >= P || (unsigned)(at.q0 + j) >= Q) continue;
            load_run(UNIT_OUT, v, sums + SUM_AT(k, i * TW + j));
            UNROLL for (int c = 0; c < UNIT_OUT; c++) pool_take(&pooled[c], v[c]);
        }
        GLOBAL done_t *to = y + Y_AT(at.n, k_all, yp, yq);
        done_t out[UNIT_OUT];
        UNROLL for (int c = 0; c < UNIT_OUT; c++)
            if (Y_VECTOR || k_all + c < K) out[c] = DONE_OF(pool_mean(pooled[c]), k_all + c);
#if Y_VECTOR
        store_run(UNIT_OUT, to, out);
#else
        UNROLL for (int c = 0; c < UNIT_OUT; c++) if (k_all + c < K) to[c] = out[c];
#endif
    }
}

#else
// Finish sums of a thread that are neighbours in y, from channel k and pixel px of the tile on; b, s: their channels'.
// (sums: of the other finish_run.)
INLINE void finish_run(GLOBAL done_t *y, const GLOBAL out_t *z, SHARED acc_t *sums, Place at, int k, int px,
                       acc_t v[RUN_OUT], const acc_t *b, const float *s) {
    const int p = at.p0 + px / TW, q = at.q0 + px % TW;
#if Y_VECTOR
    k += at.k0;
    if (k >= K || px >= PIXELS || p >= P || q >= Q) return;
    const offset_t to = Z_AT(at.n, k, p, q);
    UNROLL for (int i = 0; i < RUN_OUT; i++) if (EPILOGUE_HERE) v[i] = before_pool_by(v[i], b[OF(i)], z, to + i);
#if REQUANT && EPILOGUE_HERE && Y_NHWC && RUN_OUT % 4 == 0
    unsigned words[RUN_OUT / 4];
    UNROLL for (int i = 0; i < RUN_OUT / 4; i++) words[i] = requantised4(v + 4 * i, s + 4 * i);
    store_run(WORDS_OUT, (GLOBAL unsigned *)(y + to), words);
#else
    done_t out[RUN_OUT];
    UNROLL for (int i = 0; i < RUN_OUT; i++) out[i] = DONE_BY(v[i], s[OF(i)]);
    store_run(RUN_OUT, y + to, out);
#endif
#else
    k += at.k0;
    UNROLL for (int i = 0; i < RUN_OUT; i++) {
        const int ki = k + (Y_NHWC ? i : 0), pi = px + (Y_NHWC ? 0 : i);
        const int row = at.p0 + pi / TW, column = at.q0 + pi % TW;
        if (ki >= K || pi >= PIXELS || row >= P || column >= Q) continue;
        const offset_t to = Z_AT(at.n, ki, row, column);
        if (EPILOGUE_HERE) v[i] = before_pool_by(v[i], b[OF(i)], z, to);
        y[to] = DONE_BY(v[i], s[OF(i)]);
    }
#endif
}
#endif

INLINE void store_sums(GLOBAL done_t *y, const GLOBAL out_t *z, SHARED acc_t *sums, Place at, int k, int first,
                       int lane, acc_t acc[PT][KT][4], const Channels *its) {
    UNROLL for (int i = 0; i < (Y_NHWC ? PT : KT); i++)
        UNROLL for (int h = 0; h < 2; h++)
            UNROLL for (int g = 0; g < (Y_NHWC ? KT : PT); g += GROUP_OF) {
                acc_t v[RUN_OUT];
                UNROLL for (int j = 0; j < RUN_OUT; j++)
                    v[j] = (Y_NHWC ? acc[i][g + j / 2] : acc[g + j / 2][i])[2 * h + j % 2];
                const int px = first + (Y_NHWC ? 16 * i + 8 * h + lane / 4 : 8 * g + lane % 4 * RUN_OUT);
                const int mine = Y_NHWC ? 2 * g : 2 * i + h;
                finish_run(y, z, sums, at, k + channel_of(Y_NHWC ? g : i, h, lane), px, v, its->bias + mine,
                           its->scale + mine);
            }
}
