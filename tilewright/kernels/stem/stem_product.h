// Products of the stem family: fragments from staged rows, and sums.
//
//   Window        where a lane reads for a pixel: its word of the first run, and bits of a word before a run begins
//   window_word   word j of the pixel, of those that its lane takes (taps_of)
//   FIND_FILTER   the filter, of words [step][slice][vector][lane][W_RUN] as it is packed: staged, or a lane's of all
//                 steps in its registers

#include "fetch.h"
#include "ldmatrix.h"
#include "mma_sync.h"

#define W_RUN W_RUN_OF(KT * W_REGS)
// Where lane `lane` of slice `slice` finds its first vector of a step.
#define PACKED_AT(step, slice, lane) (((step) * WN + (slice)) * (KT * W_REGS * 32) + (lane) * W_RUN)

#ifdef __CUDACC__
#define FUNNEL(low, high, bits) __funnelshift_r(low, high, bits)
#else
#define FUNNEL(low, high, bits) (uint)(((ulong)(high) << 32 | (low)) >> (bits))
#endif

// Pixel `place` of the warp's piece i, of the tile: in nchw those of GROUP_OF pieces alternate, two by two.
//
// Where a thread pools (POOL_HELD), pixels are counted window by window, each a square of four, and two pieces have
// the upper and the lower half of the same windows; in nchw those of RUN_OUT pairs of pieces alternate.
INLINE int pixel_of(int i, int place) {
#if POOL_HELD
    const int pair = i / 2, right = Y_NHWC ? place / 8 : place % 2;
    const int window = Y_NHWC ? 8 * pair + place % 8 : (pair / RUN_OUT * 4 + place / 2) * RUN_OUT + pair % RUN_OUT;
    return 4 * window + i % 2 * 2 + right;
#else
    return Y_NHWC ? PIXELS_OF * i + place : alternated(i, place, GROUP_OF);
#endif
}

typedef struct {
    int at, bits;
} Window;

// Words of the tile from the first tap to others. Where columns are apart they are whole fours of words.
INLINE int words_to(Taps it) {
    const int word = it.word + (GAP ? it.word / (COLUMN_BYTES / 4) * (GAP / 4) : 0);
    return (it.plane * XH + it.row * DIL_H) * (PITCH / 4) + word;
}

// Of pixel `mine` of a turn's, which begin at pixel `first` of the tile.
INLINE Window find_window(int first, int mine, int quarter) {
    Window here;
    const int pixel = first + mine;
#if POOL_HELD
    const unsigned window = pixel < TILE_PIXELS ? pixel / 4 : 0, right = mine % 2;
    const unsigned row = window / (WB / 2) * 2 + mine / 2 % 2, column = window % (WB / 2) * 2 + right;
#else
    const unsigned px = pixel < TILE_PIXELS ? pixel : 0, row = px / WB, column = px % WB;
#endif
    const unsigned byte = row * (STR_H * PITCH) + column * (STR_W * (COLUMN_BYTES + GAP)) + LEAD;
    here.at = byte / 4 + words_to(taps_of(0, quarter, R, QUARTERS));
    here.bits = byte % 4 * 8;
    return here;
}

// Word FAN_W i + quarter % FAN_W of a run: the bits that are taps. Sums of i8 need no mask: what is multiplied by zero
// is nothing.
#define WHOLE(i) (DTYPE == 4 || (FAN_W * (i) * IN_WORD >= SHIFT && FAN_W * ((i) + 1) * IN_WORD - SHIFT <= RUN_NUMBERS))
INLINE unsigned mask_of(int i, int quarter) {
    unsigned mask = 0;
    UNROLL for (int j = 0; j < IN_WORD; j++) {
        const int tap = (FAN_W * i + quarter % FAN_W) * IN_WORD + j - SHIFT;
        if (tap >= 0 && tap < RUN_NUMBERS) mask |= 0xffffffffu >> (32 - 8 * NUMBER_BYTES) << 8 * NUMBER_BYTES * j;
    }
    return mask;
}

INLINE unsigned window_word(const SHARED unsigned *tile, Window here, int j, int quarter) {
    const int i = j % QUARTERS;
    if (j >= LANE_WORDS) return 0;
    const SHARED unsigned *from = tile + here.at + words_to(taps_of(j, 0, R, QUARTERS));
#if UNALIGNED
    unsigned word = FUNNEL(from[0], from[1], here.bits);
#else
    unsigned word = from[0];
#endif
    if (!WHOLE(i)) word &= mask_of(i, quarter);
#if PRODUCTS == TF32
    word = tf32_of(word);
#endif
    return word;
}

#ifdef __CUDACC__  // ------------------------------------------------------------- CUDA C++

INLINE void read_filter(unsigned to[KT * W_REGS], const unsigned *from, int step, int slice, int lane) {
    from += PACKED_AT(step, slice, lane);
    UNROLL for (int i = 0; i < KT * W_REGS; i += W_RUN) load_run(W_RUN, to + i, from + i * 32);
}
// The same from global memory.
INLINE void fetch_filter(unsigned to[KT * W_REGS], const unsigned *from, int step, int slice, int lane) {
    from += PACKED_AT(step, slice, lane);
    UNROLL for (int i = 0; i < KT * W_REGS; i += W_RUN)
        W_RUN == 4 ? fetch4(to + i, from + i * 32) : fetch2(to + i, from + i * 32);
}

// The filter as sum_up takes it: staged, or a warp's registers of all steps.
#if F_SHARED
typedef const unsigned *filter_t;
#define FIND_FILTER(name, shared, w, slice, lane) const filter_t name = (filter_t)(shared)
#define STEP_FILTER(name, filter, step, slice, lane) \
    unsigned name[KT * W_REGS];                      \
    read_filter(name, filter, step, slice, lane)
#else
typedef const unsigned (*filter_t)[KT * W_REGS];
#define FIND_FILTER(name, shared, w, slice, lane)    \
    unsigned name[KSTEPS][KT * W_REGS];              \
    UNROLL for (int step = 0; step < KSTEPS; step++) \
        fetch_filter(name[step], (const unsigned *)(w), step, slice, lane)
#define STEP_FILTER(name, filter, step, slice, lane) const unsigned *name = filter[step]
#endif

// The registers of x for a product, of piece i. Where columns are whole pieces of 32 bytes all four come at once.
#if X_NHWC && Y_NHWC && COLUMN_BYTES % 32 == 0
#define WINDOWS_OF 1  // of a lane
INLINE Window find_windows(int first, int i, int h, int lane) {
    Window here = find_window(first, pixel_of(i, lane % 16), 0);
    here.at += lane / 16 * 4;
    return here;
}
INLINE void read_x(unsigned x[4], const unsigned *tile, const Window *here, int k, int lane) {
    const unsigned *from = tile + here->at + words_to(taps_of(2 * k, 0, R, QUARTERS));
    read_matrices(x, (unsigned)__cvta_generic_to_shared(from));
    UNROLL for (int e = 0; e < 4; e++) if (PRODUCTS == TF32) x[e] = tf32_of(x[e]);
}
#else
#define WINDOWS_OF HALVES_OF
INLINE Window find_windows(int first, int i, int h, int lane) {
    return find_window(first, pixel_of(i, lane / 4 + 8 * h), lane % 4);
}
INLINE void read_x(unsigned x[2 * HALVES_OF], const unsigned *tile, const Window *here, int k, int lane) {
    UNROLL for (int e = 0; e < 2 * HALVES_OF; e++)
        x[e] = window_word(tile, here[e % HALVES_OF], 2 * k + e / HALVES_OF, lane % 4);
}
#endif

INLINE void sum_up(acc_t acc[PT][KT][4], const unsigned *tile, filter_t filter, int first, int slice, int lane) {
    Window windows[PT][WINDOWS_OF];
    UNROLL for (int i = 0; i < PT; i++)
        UNROLL for (int h = 0; h < WINDOWS_OF; h++) windows[i][h] = find_windows(first, i, h, lane);
    UNROLL for (int i = 0; i < PT; i++)
        UNROLL for (int j = 0; j < KT; j++) UNROLL for (int e = 0; e < 4; e++) acc[i][j][e] = 0;
    UNROLL for (int k = 0; k < KSTEPS; k++) {
        STEP_FILTER(w, filter, k, slice, lane);
        UNROLL for (int i = 0; i < PT; i++) {
            unsigned x[2 * HALVES_OF];
            read_x(x, tile, windows[i], k, lane);
            UNROLL for (int j = 0; j < KT; j++)
                Y_NHWC ? mma_sync(acc[i][j], x, w[j * W_REGS], w[j * W_REGS + 1])
                       : mma_sync(acc[i][j], w + j * W_REGS, x[0], x[1]);
        }
    }
}

#else  // ------------------------------------------------ OpenCL C: the same sums, each by itself

#if F_SHARED
typedef const SHARED uint *filter_t;
#define FIND_FILTER(name, shared, w, slice, lane) const filter_t name = (filter_t)(shared)
#else
typedef const GLOBAL uint *filter_t;
#define FIND_FILTER(name, shared, w, slice, lane) const filter_t name = (filter_t)(w)
#endif

INLINE void sum_up(acc_t acc[PT][KT][4], const SHARED uint *tile, filter_t filter, int first, int slice,
                   int lane) {
    for (int i = 0; i < PT; i++)
        for (int j = 0; j < KT; j++)
            for (int e = 0; e < 4; e++) {
                const int m = lane / 4 + e / 2 * 8, n = lane % 4 * 2 + e % 2;
                const int place = Y_NHWC ? m : n, channel = Y_NHWC ? n : m;
                acc_t sum = 0;
                for (int word = 0; word < LANE_WORDS; word++)
                    for (int quarter = 0; quarter < 4; quarter++) {
                        const Window here = find_window(first, pixel_of(i, place), quarter);
                        const int at = j * W_REGS + word % 2 * (W_REGS / 2) + channel / 8;  // of a lane's registers
                        const int from = PACKED_AT(word / 2, slice, channel % 8 * 4 + quarter) +
                                         at / W_RUN * (32 * W_RUN) + at % W_RUN;
                        sum = dot_word(window_word(tile, here, word, quarter), filter[from], sum);
                    }
                acc[i][j][e] = sum;
            }
}
#endif
