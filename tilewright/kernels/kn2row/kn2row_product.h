// Products of the kn2row family: words of x from global memory to fragments, and the taps of a warp's pixels.
//
//   stage_w          the filter into shared memory, if F_SHARED
//   FIND_FILTER      the filter, of words [row][chunk][step][piece][lane][4] as it is packed: staged, or a lane's in
//                    its registers
//   sum_up           the taps of UNIT pixels, of one share of the channels: of every SPLIT-th chunk; if SUM_R > 1,
//                    over as many rows of the filter
//   RUN, STORE_RUN   sums of a lane that are neighbours in the ring
//
// A chunk is two products. Lane t of the four that share a pixel has words 4 t .. 4 t + 3 of its 16: of the first
// product 4 t and 4 t + 1, where the instruction has words t and t + 4. The filter is packed in the same order.
//
// needs: WHOLE     x may be read in whole words: of a pixel's channels, or of VX pixels of a channel
//        AT_ONCE   chunks whose loads are under way together, a batch
//        BODY      batches in the body of the loop, if the filter is in shared memory

#include "fetch.h"
#include "mma_sync.h"
#include "mma_words.h"

#define PLANE_STEP (X_NHWC ? 1 : H * W)  // numbers to the next channel
#define UNIT_OF_X (X_NHWC ? C : 1)       // numbers to the next pixel
#define SHARE_CHUNKS (CHUNKS / SPLIT)
#if X_NHWC
#define RUN 2
#define STORE_RUN(to, run) store_run(2, to, run)
#elif VX == 1
#define RUN 1
#define STORE_RUN(to, run) (*(to) = (run)[0])
#else
#define RUN VX
#if VX == 2
#define STORE_RUN(to, run) store_run(2, to, run)
#elif VX == 4
#define STORE_RUN(to, run) store_run(4, to, run)
#else
#define STORE_RUN(to, run) (store_run(4, to, run), store_run(4, (to) + 4, (run) + 4))
#endif
#endif

INLINE void stage_w(SHARED acc_t *to, const GLOBAL acc_t *w) {
    UNROLL_BY(4) for (int i = THREAD(0) * 4; i < W_STAGED; i += THREADS * 4) async_copy4(to + i, w + i, 1);
    ASYNC_COMMIT();
}

typedef struct {
    const GLOBAL in_t *from;  // channel 0 of a pixel; where there is none, zeros
    int plane;                // numbers to the next channel, or none
} Pixel;

typedef struct {
    const GLOBAL in_t *from;  // channel 0 of a pixel under row 0 of the filter, wherever that is
    int h;                    // its row in x; outside of all, if its column is
} Spot;

// Where pixel `pixel` is of those that are taken in the step whose first row is row0.
INLINE Spot find_spot(const GLOBAL in_t *x, Place at, int row0, int pixel) {
    const int row = row0 + pixel / COLUMNS * ROWS, h = at.p0 - PAD_T + row, w = at.q0 - PAD_L - LEAD + pixel % COLUMNS;
    const int exists = (unsigned)w < W && row < XH && (PIXELS % UNIT == 0 || pixel < PIXELS);
    const Spot it = {x + X_AT(at.n, 0, h, w), exists ? h : -H - R * DIL_H};
    return it;
}

// The pixel r rows below.
INLINE Pixel under(Spot its, const GLOBAL in_t *zeros, int r) {
    const int exists = (unsigned)(its.h + r * DIL_H) < H;
    Pixel it = {zeros, 0};
    if (exists) it.from = its.from + (offset_t)(r * DIL_H * W) * UNIT_OF_X, it.plane = PLANE_STEP;
    return it;
}

// Word `word` of a pixel's channels, number by number.
INLINE unsigned word_of(Pixel it, int word) {
    unsigned bits = 0;
    UNROLL for (int i = 0; i < IN_WORD; i++)
        if (C % CHUNK == 0 || word * IN_WORD + i < C)
            bits |= BITS_OF(it.from[(offset_t)(word * IN_WORD + i) * it.plane]) << (8 * NUMBER_BYTES * i);
    return bits;
}

#ifdef __CUDACC__  // ------------------------------------------------------------- CUDA C++

#if F_SHARED
typedef const unsigned *filter_t;
#define FIND_FILTER(name, shared, w, share, lane) const filter_t name = (filter_t)(shared)
#else
typedef const unsigned (*filter_t)[2][MT][4];
#define FIND_FILTER(name, shared, w, share, lane)                                                              \
    unsigned name[SUM_R * SHARE_CHUNKS][2][MT][4];                                                             \
    UNROLL for (int i = 0; i < SUM_R * SHARE_CHUNKS; i++)                                                      \
        UNROLL for (int j = 0; j < 2 * MT; j++)                                                                \
            fetch4(name[i][j / MT][j % MT],                                                                    \
                   (const unsigned *)(w) + (((i * SPLIT + (share)) * 2 * MT + j) * 32 + (lane)) * 4)
#endif

#if X_NHWC || VX == 4 * IN_WORD
#define FETCH fetch4
#elif VX == 2 * IN_WORD
#define FETCH fetch2
#else
#define FETCH(to, from) ((to)[0] = *(from))
#endif
#define PLACES (PT / VX)  // a lane's pixels, or runs of them
#define BATCHES (SHARE_CHUNKS / AT_ONCE)
#define AHEAD (SUM_R > 1)  // a batch is asked for while that before it is multiplied

// What a lane loads for a pixel, or a run, of chunk `chunk`: asked for here, and made into words (make_words) when all
// of a batch has been asked for: rounding, say, would wait for each.
INLINE void ask_for(unsigned raw[4 * VX], Pixel it, const in_t *zeros, int chunk, int t) {
    const int first = (chunk * 16 + t * 4) * IN_WORD;  // channel
#if WHOLE
    UNROLL for (int i = 0; i < (X_NHWC ? 1 : 4 * IN_WORD); i++) {
        const in_t *from = it.from + (offset_t)(first + i) * it.plane;
        if (C % CHUNK != 0 && first + i >= C) from = zeros;
        FETCH(raw + i * (VX / IN_WORD), (const unsigned *)from);
    }
#else
    UNROLL for (int u = 0; u < VX; u++) {
        const Pixel one = {it.from + (it.plane ? u : 0), it.plane};
        UNROLL for (int j = 0; j < 4; j++) raw[4 * u + j] = word_of(one, first / IN_WORD + j);
    }
#endif
}

// From IN_WORD channels of four bytes of pixels each to as many pixels of IN_WORD channels, in place.
INLINE void turn(unsigned v[IN_WORD]) {
#if IN_WORD == 2
    const unsigned low = (v[0] & 0xffff) | v[1] << 16;
    v[1] = v[0] >> 16 | (v[1] & 0xffff0000), v[0] = low;
#elif IN_WORD == 4
    unsigned to[4];
    UNROLL for (int i = 0; i < 4; i++) {
        to[i] = 0;
        UNROLL for (int j = 0; j < 4; j++) to[i] |= (v[j] >> 8 * i & 0xff) << 8 * j;
    }
    UNROLL for (int i = 0; i < 4; i++) v[i] = to[i];
#endif
}

// The words of VX pixels, which of nchw's come as VX neighbours of each channel.
INLINE void make_words(unsigned words[VX][4], const unsigned raw[4 * VX]) {
#if WHOLE && !X_NHWC
    UNROLL for (int j = 0; j < 4; j++)
        UNROLL for (int u = 0; u < VX / IN_WORD; u++) {
            unsigned v[IN_WORD];
            UNROLL for (int i = 0; i < IN_WORD; i++) v[i] = raw[(j * IN_WORD + i) * (VX / IN_WORD) + u];
            turn(v);
            UNROLL for (int i = 0; i < IN_WORD; i++) words[u * IN_WORD + i][j] = v[i];
        }
#else
    UNROLL for (int i = 0; i < 4 * VX; i++) words[i / 4][i % 4] = raw[i];
#endif
    UNROLL for (int i = 0; i < 4 * VX; i++) if (DTYPE == 1) words[i / 4][i % 4] = tf32_of(words[i / 4][i % 4]);
}

INLINE void multiply(acc_t acc[MT][PT][4], const unsigned words[PT][4], filter_t filter, int j, int share, int lane) {
    UNROLL for (int step = 0; step < 2; step++)
        UNROLL for (int m = 0; m < MT; m++) {
#if F_SHARED
            unsigned a[4];
            load_run(4, a, filter + (((j * SPLIT + share) * 2 + step) * MT + m) * 128 + lane * 4);
#else
            const unsigned *a = filter[j][step][m];
#endif
            UNROLL for (int i = 0; i < PT; i++) mma_sync(acc[m][i], a, words[i][2 * step], words[i][2 * step + 1]);
        }
}

// Ask for the words of a batch: AT_ONCE chunks of all places, in a row of x.
INLINE void ask_for_batch(unsigned raw[AT_ONCE][PLACES][4 * VX], const Spot spots[PLACES], const in_t *zeros, int batch,
                          int share, int lane) {
    const int r = batch / BATCHES, j = batch % BATCHES * AT_ONCE;
    UNROLL for (int i = 0; i < PLACES; i++) {
        const Pixel mine = under(spots[i], zeros, r);
        UNROLL for (int one = 0; one < AT_ONCE; one++)
            ask_for(raw[one][i], mine, zeros, (j + one) * SPLIT + share, lane % 4);
    }
}

INLINE void sum_up(acc_t acc[ROWS][MT][PT][4], const in_t *x, const in_t *zeros, filter_t filter, Place at, int row0,
                   int first, int share, int lane) {
    UNROLL for (int m = 0; m < ROWS * MT; m++)
        UNROLL for (int i = 0; i < PT; i++) UNROLL for (int e = 0; e < 4; e++) acc[m / MT][m % MT][i][e] = 0;
    const int batches = (SUM_R + ROWS - 1) * BATCHES;
    Spot spots[PLACES];
    UNROLL for (int i = 0; i < PLACES; i++) spots[i] = find_spot(x, at, row0, first + VX * (8 * i + lane / 4));
    unsigned raw[AT_ONCE][PLACES][4 * VX];
    if (AHEAD) ask_for_batch(raw, spots, zeros, 0, share, lane);
    UNROLL_BY(F_SHARED ? BODY : batches) for (int batch = 0; batch < batches; batch++) {
        unsigned words[AT_ONCE][PT][4];
        if (!AHEAD) ask_for_batch(raw, spots, zeros, batch, share, lane);
        UNROLL for (int one = 0; one < AT_ONCE; one++)
            UNROLL for (int i = 0; i < PLACES; i++) make_words(words[one] + i * VX, raw[one][i]);
        if (AHEAD && batch + 1 < batches) ask_for_batch(raw, spots, zeros, batch + 1, share, lane);
        UNROLL for (int i = 0; i < ROWS; i++) {
            const int r = batch / BATCHES - i;  // row of the filter
            if (ROWS == 1 || (r >= 0 && r < SUM_R))
                UNROLL for (int one = 0; one < AT_ONCE; one++)
                    multiply(acc[i], words[one], filter, (batch - i * BATCHES) * AT_ONCE + one, share, lane);
        }
    }
}

#else  // ------------------------------------------------ OpenCL C: the same sums, each by itself

#if F_SHARED
typedef const SHARED uint *filter_t;
#define FIND_FILTER(name, shared, w, share, lane) const filter_t name = (filter_t)(shared)
#else
typedef const GLOBAL uint *filter_t;
#define FIND_FILTER(name, shared, w, share, lane) const filter_t name = (filter_t)(w)
#endif

INLINE void sum_up(acc_t acc[ROWS][MT][PT][4], const GLOBAL in_t *x, const GLOBAL in_t *zeros, filter_t filter,
                   Place at, int row0, int first, int share, int lane) {
    for (int m = 0; m < ROWS * MT; m++)
        for (int i = 0; i < PT; i++)
            for (int e = 0; e < 4; e++) {
                const int column = lane % 4 * 2 + e % 2, tap = lane / 4 + e / 2 * 8, piece = m % MT;
                const int pixel = first + i / VX * 8 * VX + column * VX + i % VX;
                const Spot spot = find_spot(x, at, row0, pixel);
                acc_t sum = 0;
                for (int r = 0; r < SUM_R; r++) {
                    const Pixel it = under(spot, zeros, r + m / MT);
                    for (int chunk = share; chunk < CHUNKS; chunk += SPLIT)
                        for (int word = 0; word < 16; word++) {
                            const int from = ((r * CHUNKS + chunk) * 2 + word % 4 / 2) * MT + piece;
                            const int of = (from * 32 + tap % 8 * 4 + word / 4) * 4 + word % 2 * 2 + tap / 8;
                            sum = dot_word(word_of(it, chunk * 16 + word), filter[of], sum);
                        }
                }
                acc[m / MT][piece][i][e] = sum;
            }
}
#endif
