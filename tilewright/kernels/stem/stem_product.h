// Products of the stem family: fragments from staged rows, and sums.
//
//   Window        where a lane reads for a pixel: its word of the first run, and bits of a word before a run begins
//   window_word   word j of the pixel, of those that its lane takes: every fourth of each run, row by row
//   FIND_FILTER   the filter, of words [step][slice][vector][lane][W_RUN] as it is packed: staged, or a lane's of all
//                 steps in its registers

#include "mma_sync.h"
#include "mma_tf32.h"

#define W_RUN W_RUN_OF(KT * W_REGS)
// Where lane `lane` of slice `slice` finds its first vector of a step.
#define PACKED_AT(step, slice, lane) (((step) * WN + (slice)) * (KT * W_REGS * 32) + (lane) * W_RUN)

#ifdef __CUDACC__
#define FUNNEL(low, high, bits) __funnelshift_r(low, high, bits)
#else
#define FUNNEL(low, high, bits) (uint)(((ulong)(high) << 32 | (low)) >> (bits))
#endif

// Pixel `place` of the warp's piece i, of the tile: in nchw those of GROUP_OF pieces alternate, two by two.
INLINE int pixel_of(int i, int place) {
    return Y_NHWC ? PIXELS_OF * i + place : alternated(i, place, GROUP_OF);
}

typedef struct {
    int at, bits;
} Window;

INLINE Window find_window(int pixel, int quarter) {
    Window here;
    const unsigned px = pixel < PIXELS ? pixel : 0;
    const unsigned byte = px / TW * (STR_H * PITCH) + px % TW * (STR_W * UNIT * NUMBER_BYTES) + LEAD;
    here.at = byte / 4 + quarter;
    here.bits = byte % 4 * 8;
    return here;
}

// Word 4 i + quarter of a run: the bits that are taps. Sums of i8 need no mask: what is multiplied by zero is nothing.
#define WHOLE(i) (DTYPE == 4 || (4 * (i) * IN_WORD >= SHIFT && 4 * ((i) + 1) * IN_WORD - SHIFT <= RUN))
INLINE unsigned mask_of(int i, int quarter) {
    unsigned mask = 0;
    UNROLL for (int j = 0; j < IN_WORD; j++) {
        const int tap = (4 * i + quarter) * IN_WORD + j - SHIFT;
        if (tap >= 0 && tap < RUN) mask |= 0xffffffffu >> (32 - 8 * NUMBER_BYTES) << 8 * NUMBER_BYTES * j;
    }
    return mask;
}

INLINE unsigned window_word(const SHARED unsigned *tile, Window here, int j, int quarter) {
    const int row = j / QUARTERS, i = j % QUARTERS;
    if (j >= WORDS) return 0;
    const SHARED unsigned *from = tile + here.at + (row / R * ROWS + row % R * DIL_H) * (PITCH / 4) + 4 * i;
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
// The same from global memory, asked for here and now: the compiler would rather wait for the input first.
INLINE void fetch_filter(unsigned to[KT * W_REGS], const unsigned *from, int step, int slice, int lane) {
    from += PACKED_AT(step, slice, lane);
    UNROLL for (int i = 0; i < KT * W_REGS; i += W_RUN) {
#if W_RUN == 4
        asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[i]), "=r"(to[i + 1]), "=r"(to[i + 2]), "=r"(to[i + 3]) : "l"(from + i * 32));
#else
        asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(to[i]), "=r"(to[i + 1]) : "l"(from + i * 32));
#endif
    }
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

INLINE void sum_up(acc_t acc[PT][KT][4], const unsigned *tile, filter_t filter, int first, int slice, int lane) {
    Window windows[PT][HALVES_OF];
    UNROLL for (int i = 0; i < PT; i++)
        UNROLL for (int h = 0; h < HALVES_OF; h++)
            windows[i][h] = find_window(first + pixel_of(i, lane / 4 + 8 * h), lane % 4);
    UNROLL for (int i = 0; i < PT; i++)
        UNROLL for (int j = 0; j < KT; j++) UNROLL for (int e = 0; e < 4; e++) acc[i][j][e] = 0;
    UNROLL for (int k = 0; k < KSTEPS; k++) {
        STEP_FILTER(w, filter, k, slice, lane);
        UNROLL for (int i = 0; i < PT; i++) {
            unsigned x[2 * HALVES_OF];
            UNROLL for (int e = 0; e < 2 * HALVES_OF; e++)
                x[e] = window_word(tile, windows[i][e % HALVES_OF], 2 * k + e / HALVES_OF, lane % 4);
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
                for (int word = 0; word < WORDS; word++)
                    for (int quarter = 0; quarter < 4; quarter++) {
                        const Window here = find_window(first + pixel_of(i, place), quarter);
                        const int at = j * W_REGS + word % 2 * (W_REGS / 2) + channel / 8;  // of a lane's registers
                        const int from = PACKED_AT(word / 2, slice, channel % 8 * 4 + quarter) +
                                         at / W_RUN * (32 * W_RUN) + at % W_RUN;
                        sum = dot_word(window_word(tile, here, word, quarter), filter[from], sum);
                    }
                acc[i][j][e] = sum;
            }
}
#endif
