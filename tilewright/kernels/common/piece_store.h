// How the sums of a warp's products are finished, PT x KT pieces m16n8 (mma_sync.h) of pixels and channels: a thread
// has runs of RUN_OUT neighbours in y, of one pixel in nhwc, of one channel in nchw. For stem and grouped_mma.
//
//   Channels      bias and scale of the channels of a thread
//   store_sums    finishes the sums of a turn and stores them; pools them where a thread has whole windows
//                 (POOL_HELD), and stores them to shared memory where they meet there (POOL_MEETS)
//   store_pooled  what the pool makes of each window of the tile, of sums that have met
//
// needs, before it is included, beside tile.h:
//   PT KT HB WB TILE_PIXELS      pieces of a warp at once, and the tile of a block
//   RUN_OUT WORDS_OUT       outputs that a thread has side by side, and words that they take requantised
//   GROUP_OF                pieces whose channels (nchw: pixels) alternate (alternated.h): RUN_OUT / 2
//   Y_VECTOR                whether runs are stored at once: whole, and aligned
//   POOL_HELD POOL_MEETS    where a pool is made; of the latter SUM_PITCH and UNIT_OUT, see stem.cu
//   TURNED                  runs that lanes exchange, see below; 1: none

#ifndef PIXEL_AT  // of the tile, of half h of piece i (nchw: the first of a run), where `first` is that of the turn
#define PIXEL_AT(first, i, h, lane) \
    ((first) + (Y_NHWC ? 16 * (i) + 8 * (h) + (lane) / 4 : 8 * (i) + (lane) % 4 * RUN_OUT))
#endif
#ifndef M_IS_PIXELS  // else channels
#define M_IS_PIXELS Y_NHWC
#endif
#define OF(i) (Y_NHWC ? (i) : 0)  // which channel of a run's
#define MY_CHANNELS (2 * KT)      // of a thread

typedef struct {
    acc_t bias[MY_CHANNELS];
    float scale[MY_CHANNELS];
} Channels;

// The first channel of the run that a thread has of piece g (nhwc), or its channel of half h of piece g.
INLINE int channel_of(int g, int h, int lane) {
    return M_IS_PIXELS ? 8 * g + lane % 4 * RUN_OUT : 16 * g + 8 * h + lane / 4;
}

INLINE Channels find_channels(Epilogue ep, int k0, int lane) {
    Channels its;
    UNROLL for (int i = 0; i < MY_CHANNELS; i++) {
        const int k = k0 + (M_IS_PIXELS ? channel_of(i / RUN_OUT * GROUP_OF, 0, lane) + i % RUN_OUT
                                        : channel_of(i / 2, i % 2, lane));
        its.bias[i] = BIAS && EPILOGUE_HERE && k < K ? out_load(ep.bias + k) : 0;
#if REQUANT
        its.scale[i] = EPILOGUE_HERE && k < K ? ep.scale[k] : 0;
#endif
    }
    return its;
}

#if TURNED > 1 && defined(__CUDACC__)
#define RUN_WORDS (RUN_OUT * (int)sizeof(done_t) / 4)

// Words of run `from` for those of run `to` of the lane `apart`, or the other way round in the upper of the two.
INLINE void swap_runs(unsigned from[RUN_WORDS], unsigned to[RUN_WORDS], int apart, int lane) {
    const int upper = (lane & apart) != 0;
    UNROLL for (int i = 0; i < RUN_WORDS; i++) {
        const unsigned other = __shfl_xor_sync(0xffffffff, upper ? from[i] : to[i], apart);
        if (upper) from[i] = other;
        else to[i] = other;
    }
}

// A run of what is final but for its rounding, as words; s: its channels' scale.
INLINE void words_of_run(unsigned to[RUN_WORDS], const acc_t v[RUN_OUT], const float *s) {
#if REQUANT && EPILOGUE_HERE && Y_NHWC && RUN_OUT % 4 == 0
    UNROLL for (int i = 0; i < RUN_WORDS; i++) to[i] = requantised4(v + 4 * i, s + 4 * i);
#else
    done_t out[RUN_OUT];
    UNROLL for (int i = 0; i < RUN_OUT; i++) out[i] = done_by(v[i], s[OF(i)]);
    store_run(RUN_OUT, (done_t *)to, out);
#endif
}
#endif

#if Y_VECTOR
// Store a run of what is final but for its rounding; s: its channels' scale.
INLINE void store_done(GLOBAL done_t *to, const acc_t v[RUN_OUT], const float *s) {
#if REQUANT && EPILOGUE_HERE && Y_NHWC && RUN_OUT % 4 == 0
    unsigned words[RUN_OUT / 4];
    UNROLL for (int i = 0; i < RUN_OUT / 4; i++) words[i] = requantised4(v + 4 * i, s + 4 * i);
    store_run(WORDS_OUT, (GLOBAL unsigned *)to, words);
#else
    done_t out[RUN_OUT];
    UNROLL for (int i = 0; i < RUN_OUT; i++) out[i] = done_by(v[i], s[OF(i)]);
    store_run(RUN_OUT, to, out);
#endif
}
#endif

#if POOL_MEETS
#define SUM_AT(k, px) (Y_NHWC ? (px) * SUM_PITCH + (k) : (k) * SUM_PITCH + (px))

// Finish sums of a thread, from channel k and pixel px of the tile on, for the pool; b: their channels' bias. (s: of
// the other finish_out.)
INLINE void finish_out(Epilogue ep, SHARED acc_t *sums, Place at, int k, int px, acc_t v[RUN_OUT], const acc_t *b,
                       const float *s) {
    if (px >= TILE_PIXELS) return;
    UNROLL for (int i = 0; i < RUN_OUT; i++) {
        const int ki = k + (Y_NHWC ? i : 0), pi = px + (Y_NHWC ? 0 : i), p = at.p0 + pi / WB, q = at.q0 + pi % WB;
        if (!ADD || (at.k0 + ki < K && (unsigned)p < P && (unsigned)q < Q))
            v[i] = before_pool_by(v[i], b[OF(i)], ep, Z_AT(at.n, at.k0 + ki, p, q));
    }
    store_run(RUN_OUT, sums + SUM_AT(k, px), v);
}

// Pool: UNIT_OUT channels of a pixel to a thread.
INLINE void store_pooled(Epilogue ep, const SHARED acc_t *sums, Place at) {
    const int wide = WINDOWS(WB), windows = WINDOWS(HB) * wide, units = KB / UNIT_OUT;
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
            load_run(UNIT_OUT, v, sums + SUM_AT(k, i * WB + j));
            UNROLL for (int c = 0; c < UNIT_OUT; c++) pool_take(&pooled[c], v[c]);
        }
        GLOBAL done_t *to = ep.y + Y_AT(at.n, k_all, yp, yq);
        done_t out[UNIT_OUT];
        UNROLL for (int c = 0; c < UNIT_OUT; c++)
            if (Y_VECTOR || k_all + c < K) out[c] = done_of(pool_mean(pooled[c]), ep, k_all + c);
#if Y_VECTOR
        store_run(UNIT_OUT, to, out);
#else
        UNROLL for (int c = 0; c < UNIT_OUT; c++) if (k_all + c < K) to[c] = out[c];
#endif
    }
}

#elif !POOL_HELD
// Finish sums of a thread that are neighbours in y, from channel k and pixel px of the tile on; b, s: their channels'.
// (sums: of the other finish_out.)
INLINE void finish_out(Epilogue ep, SHARED acc_t *sums, Place at, int k, int px, acc_t v[RUN_OUT], const acc_t *b,
                       const float *s) {
#if Y_VECTOR
    const int p = at.p0 + px / WB, q = at.q0 + px % WB;
    k += at.k0;
    if (k >= K || px >= TILE_PIXELS || p >= P || q >= Q) return;
    const offset_t to = Z_AT(at.n, k, p, q);
    UNROLL for (int i = 0; i < RUN_OUT; i++) if (EPILOGUE_HERE) v[i] = before_pool_by(v[i], b[OF(i)], ep, to + i);
    store_done(ep.y + to, v, s);
#else
    k += at.k0;
    UNROLL for (int i = 0; i < RUN_OUT; i++) {
        const int ki = k + (Y_NHWC ? i : 0), pi = px + (Y_NHWC ? 0 : i);
        const int row = at.p0 + pi / WB, column = at.q0 + pi % WB;
        if (ki >= K || pi >= TILE_PIXELS || row >= P || column >= Q) continue;
        const offset_t to = Z_AT(at.n, ki, row, column);
        if (EPILOGUE_HERE) v[i] = before_pool_by(v[i], b[OF(i)], ep, to);
        ep.y[to] = done_by(v[i], s[OF(i)]);
    }
#endif
}
#endif

#if POOL_HELD
// The four sums of each window are a thread's (pixel_of): those of neighbouring channels, in nchw of neighbouring
// windows, make a run. (sums: of the other store_sums.)
INLINE void store_sums(Epilogue ep, SHARED acc_t *sums, Place at, int k, int first, int lane, acc_t acc[PT][KT][4],
                       const Channels *its) {
    UNROLL for (int i = 0; i < (Y_NHWC ? PT / 2 : KT); i++)
        UNROLL for (int h = 0; h < (Y_NHWC ? 1 : 2); h++)
            UNROLL for (int g = 0; g < (Y_NHWC ? KT : PT / 2); g += Y_NHWC ? GROUP_OF : RUN_OUT) {
                const int mine = Y_NHWC ? 2 * g : 2 * i + h;
                acc_t pooled[RUN_OUT];
                UNROLL for (int j = 0; j < RUN_OUT; j++) {
                    const int kj = at.k0 + k + channel_of(Y_NHWC ? g : i, h, lane) + (Y_NHWC ? j : 0);
                    const int window = first / 4 + (Y_NHWC ? 8 * i + lane / 4 : 4 * g + lane % 4 * RUN_OUT + j);
                    const int yp = at.p0 / 2 + window / (WB / 2), yq = at.q0 / 2 + window % (WB / 2);
                    const int inside = window < TILE_PIXELS / 4 && yp < YP && yq < YQ && kj < K;
                    GLOBAL done_t *to = ep.y + Y_AT(at.n, kj, yp, yq);
                    pooled[j] = POOL_NOTHING;
                    UNROLL for (int cell = 0; cell < 4; cell++) {
                        acc_t v = Y_NHWC ? acc[2 * i + cell / 2][g + j / 2][2 * (cell % 2) + j % 2]
                                         : acc[2 * (g + j) + cell / 2][i][2 * h + cell % 2];
                        if (!ADD || inside)
                            v = before_pool_by(v, its->bias[mine + OF(j)], ep,
                                               Z_AT(at.n, kj, 2 * yp + cell / 2, 2 * yq + cell % 2));
                        pool_take(&pooled[j], v);
                    }
                    pooled[j] = pool_mean(pooled[j]);
#if Y_VECTOR
                    if (j == RUN_OUT - 1 && inside) store_done(to - (RUN_OUT - 1), pooled, its->scale + mine);
#else
                    if (inside) *to = done_by(pooled[j], its->scale[mine + OF(j)]);
#endif
                }
            }
}

#elif TURNED > 1 && !M_IS_PIXELS && defined(__CUDACC__)
// In nchw four lanes have neighbouring runs of a channel, eight times four those of as many channels. Where rows of y
// begin anywhere in a sector such pieces are short, and a part of a sector takes as long as several whole ones. So the
// lanes of TURNED channels exchange their runs: each store has TURNED times as long a piece of fewer channels.
//
//     run      0   1   2   3                                  run      0   1   2   3
//     store 0  a0  .   .   .    a's lanes have a0 a1 a2 a3    store 0  a0  a1  a2  a3    and those of b b0 b1 b2 b3
//     store 1  .   a1  .   .                                  store 1  b0  b1  b2  b3
//
// If runs are not aligned (of two numbers, then), lanes store neighbouring numbers, one each.
#define LANES_OF (4 * TURNED)  // that store to one channel

INLINE int is_inside(Place at, int k, int px) {
    return at.k0 + k < K && px < TILE_PIXELS && at.p0 + px / WB < P && at.q0 + px % WB < Q;
}
INLINE offset_t z_at(Place at, int k, int px) { return Z_AT(at.n, at.k0 + k, at.p0 + px / WB, at.q0 + px % WB); }

// Store the words of channel k, of pixels from px on.
INLINE void store_words(GLOBAL done_t *y, Place at, int k, int px, int lane, const unsigned words[RUN_WORDS]) {
    const int part = lane % LANES_OF;
#if Y_VECTOR
    px += part * RUN_OUT;
    if (is_inside(at, k, px)) store_run(RUN_WORDS, (GLOBAL unsigned *)(y + z_at(at, k, px)), words);
#else
    UNROLL for (int half = 0; half < 2; half++) {
        const int from = lane - part + half * (LANES_OF / 2) + part / 2, pixel = px + half * LANES_OF + part;
        unsigned v = __shfl_sync(0xffffffff, words[0], from);
        if (RUN_WORDS == 2) {
            const unsigned second = __shfl_sync(0xffffffff, words[RUN_WORDS - 1], from);
            if (lane % 2) v = second;
        } else if (lane % 2) v >>= 16;
        if (!is_inside(at, k, pixel)) continue;
        if (RUN_WORDS == 2) *(GLOBAL unsigned *)(y + z_at(at, k, pixel)) = v;
        else *(GLOBAL unsigned short *)(y + z_at(at, k, pixel)) = v;
    }
#endif
}

INLINE void store_sums(Epilogue ep, SHARED acc_t *sums, Place at, int k, int first, int lane, acc_t acc[PT][KT][4],
                       const Channels *its) {
    UNROLL for (int i = 0; i < KT; i++)
        UNROLL for (int h = 0; h < 2; h++)
            UNROLL for (int g = 0; g < PT; g += TURNED * GROUP_OF) {
                unsigned words[TURNED][RUN_WORDS];
                UNROLL for (int u = 0; u < TURNED; u++) {
                    const int piece = g + u * GROUP_OF, own = k + channel_of(i, h, lane);
                    acc_t v[RUN_OUT];
                    UNROLL for (int j = 0; j < RUN_OUT; j++) {
                        const int px = PIXEL_AT(first, piece, h, lane) + j;
                        v[j] = acc[piece + j / 2][i][2 * h + j % 2];
                        if (EPILOGUE_HERE && (!ADD || is_inside(at, own, px)))
                            v[j] = before_pool_by(v[j], its->bias[2 * i + h], ep, z_at(at, own, px));
                    }
                    words_of_run(words[u], v, its->scale + 2 * i + h);
                }
                UNROLL for (int b = 1; b < TURNED; b *= 2)
                    UNROLL for (int u = 0; u < TURNED; u++)
                        if (!(u & b)) swap_runs(words[u], words[u | b], 4 * b, lane);
                const int own = k + 16 * i + 8 * h + lane / LANES_OF * TURNED;
                UNROLL for (int u = 0; u < TURNED; u++) store_words(ep.y, at, own + u, first + 8 * g, lane, words[u]);
            }
}

#else
INLINE void store_sums(Epilogue ep, SHARED acc_t *sums, Place at, int k, int first, int lane, acc_t acc[PT][KT][4],
                       const Channels *its) {
    UNROLL for (int i = 0; i < (Y_NHWC ? PT : KT); i++)
        UNROLL for (int h = 0; h < 2; h++)
            UNROLL for (int g = 0; g < (Y_NHWC ? KT : PT); g += GROUP_OF) {
                acc_t v[RUN_OUT];
                UNROLL for (int j = 0; j < RUN_OUT; j++)
                    v[j] = (Y_NHWC ? acc[i][g + j / 2] : acc[g + j / 2][i])[2 * h + j % 2];
                const int px = PIXEL_AT(first, Y_NHWC ? i : g, h, lane);
                const int mine = Y_NHWC ? 2 * g : 2 * i + h;
                finish_out(ep, sums, at, k + channel_of(Y_NHWC ? g : i, h, lane), px, v, its->bias + mine,
                           its->scale + mine);
            }
}
#endif
