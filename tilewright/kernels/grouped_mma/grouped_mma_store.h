// How the grouped_mma family stores a strip where lanes may exchange sums first: the four of a pixel have RUN_OUT
// channels each, of every bundle; exchanged among TURNED bundles, each has TURNED runs of one of them, so that fewer
// stores reach as many lines of y.
//
//     lane   has of bundles 0 1 2 3      has then, TURNED = 4      TURNED = 2
//     0      a0 b0 c0 d0                 a0 a1 a2 a3               a0 a1   c0 c1
//     1      a1 b1 c1 d1                 b0 b1 b2 b3               b0 b1   d0 d1
//     2      a2 b2 c2 d2                 c0 c1 c2 c3               a2 a3   c2 c3
//     3      a3 b3 c3 d3                 d0 d1 d2 d3               b2 b3   d2 d3

#include "piece_store.h"

#if !Y_NHWC
// Of nchw a lane has neither neighbours of a channel nor all of a pixel: a matrix of eight pixels by eight channels of
// two bytes each is turned, so that it has two pixels of a channel.
#ifdef __CUDACC__
#define TURNS_OUT PAIRS_OUT
#else
#define TURNS_OUT 0
#endif

INLINE void store_strip(Epilogue ep, SHARED acc_t *sums, Place at, int k, int first, int lane, acc_t acc[PT][KT][4],
                        const Channels *its) {
    UNROLL for (int i = 0; i < PT; i++)
        UNROLL for (int h = 0; h < 2; h++) {
            const int px = PIXEL_AT(first, i, h, lane), p = at.p0 + px / WB, q = at.q0 + px % WB;
            const int inside = p < P && q < Q, own = at.k0 + k + lane % 4 * 2;
            UNROLL for (int j = 0; j < KT; j++) {
                done_t out[2];
                UNROLL for (int e = 0; e < 2; e++) {
                    const offset_t to = Z_AT(at.n, own + 8 * j + e, p, q);
                    acc_t v = acc[i][j][2 * h + e];
                    if (EPILOGUE_HERE && (!ADD || inside)) v = before_pool_by(v, its->bias[2 * j + e], ep, to);
                    out[e] = done_by(v, its->scale[2 * j + e]);
#if !TURNS_OUT
                    if (inside) ep.y[to] = out[e];
#endif
                }
#if TURNS_OUT
                const unsigned two = turned_matrix(out[0] | (unsigned)out[1] << 16);
                const int column = q - lane / 4 + lane % 4 * 2;
                if (p < P && column < Q)
                    *(unsigned *)(ep.y + Z_AT(at.n, at.k0 + k + 8 * j + lane / 4, p, column)) = two;
#endif
            }
        }
}

#elif TURNED > 1 && defined(__CUDACC__)

INLINE void store_strip(Epilogue ep, SHARED acc_t *sums, Place at, int k, int first, int lane, acc_t acc[PT][KT][4],
                        const Channels *its) {
    // Behind the exchange: which of TURNED bundles, and which of its runs.
    const int bundle = lane % TURNED, run = lane % 4 / TURNED * TURNED;
    UNROLL for (int i = 0; i < PT; i++)
        UNROLL for (int h = 0; h < 2; h++) {
            const int px = PIXEL_AT(first, i, h, lane), p = at.p0 + px / WB, q = at.q0 + px % WB;
            const int inside = p < P && q < Q;
            const offset_t to = Z_AT(at.n, at.k0 + k, p, q);
            UNROLL for (int b = 0; b < BW; b += TURNED)
                UNROLL for (int g = 0; g < NT; g += GROUP_OF) {
                    unsigned words[TURNED][RUN_WORDS];
                    UNROLL for (int u = 0; u < TURNED; u++) {
                        const int piece = (b + u) * NT + g, channel = 8 * piece + lane % 4 * RUN_OUT;
                        acc_t v[RUN_OUT];
                        UNROLL for (int j = 0; j < RUN_OUT; j++) {
                            v[j] = acc[i][piece + j / 2][2 * h + j % 2];
                            if (EPILOGUE_HERE && (!ADD || inside))
                                v[j] = before_pool_by(v[j], its->bias[2 * piece + j], ep, to + channel + j);
                        }
                        words_of_run(words[u], v, its->scale + 2 * piece);
                    }
#if TURNED == 4
                    swap_runs(words[0], words[2], 2, lane), swap_runs(words[1], words[3], 2, lane);
#endif
                    UNROLL for (int u = 0; u < TURNED; u += 2) swap_runs(words[u], words[u + 1], 1, lane);
                    const int channel = 8 * ((b + bundle) * NT + g) + run * RUN_OUT;
                    if (inside) store_run(TURNED * RUN_WORDS, (GLOBAL unsigned *)(ep.y + to + channel), words[0]);
                }
        }
}

#else
#define store_strip store_sums
#endif
