// grouped on CPU cores, nchw to nchw: filters of one tap to few output channels, lanes over the pixels of an image
// (grouped.cu has the formula).
//
// x, y: nchw, an image as one line of PIXELS.  w: packed [k][c] in words of DTYPE (word.h).
//
//   item     RUN pixels of the KG channels of one group, whose sums stay in the first-level cache
//   step     TW vectors of VECTOR pixels, over CHANNELS input channels: their sums are in registers meanwhile
//
//      channels 0 .. CHANNELS-1    x0 x1 x2 ... of each, RUN pixels side by side
//      channels CHANNELS ..        the same again, added to the sums of each k
//
// What limits such a layer is how x comes from memory: CHANNELS long runs at once, which the hardware foresees. All
// channels, of a few pixels each, take twice as long.
// The last vector of an image ends with the image: some outputs are made twice, and are the same both times.
// Knobs (spec.py): VECTOR (v 2 .. 16), TW (tw): a step. RUN and CHANNELS follow (runs.py).
// Example: 64 channels of 256x256 to 2: 16 items, of 4096 pixels; 4 times 16 channels, 16 KB of each.

#include "loop.h"

#define KB 1
#define HB 1
#define WB 1
#define PIXELS (P * Q)
#define ITEMS ((offset_t)N * (K / KG) * Q_BLOCKS)
#define FOR_STEP(a, j) UNROLL for (int a = 0; a < KG; a++) UNROLL for (int j = 0; j < TW; j++)

#include "tile.h"
#include "lanes_memory.h"

INLINE acc_t tap_of(const GLOBAL acc_t *taps, int c) {
#if DTYPE == 4
    return taps[c / 4] << (24 - c % 4 * 8) >> 24;
#else
    return taps[c];
#endif
}

// Where a step's vectors begin, of sums and of pixels of the image.
typedef struct {
    int sums, pixels[TW];
} Step;

INLINE void take_sums(vec acc[KG][TW], const acc_t sums[KG][RUN], const Step *at, int c0) {
    FOR_STEP(a, j) {
        if (c0 == 0) vec_zero(&acc[a][j]);
        else acc[a][j] = vec_load(sums[a] + at->sums + j * VECTOR);
    }
}

// acc += the products of `count` channels, x and w of the first of them.
INLINE void add_channels(vec acc[KG][TW], const GLOBAL in_t *x, const Step *at, const GLOBAL acc_t *w, int c0,
                         int count) {
    UNROLL for (int c = c0; c < c0 + count; c++) {
        vec v[TW];
        UNROLL for (int j = 0; j < TW; j++) v[j] = load_lanes(x + (offset_t)c * PIXELS + at->pixels[j]);
        UNROLL for (int a = 0; a < KG; a++) {
            acc_t tap = tap_of(w + a * CW, c);
            UNROLL for (int j = 0; j < TW; j++) acc[a][j] += tap * v[j];
        }
    }
}

INLINE void keep_sums(acc_t sums[KG][RUN], vec acc[KG][TW], const Step *at) {
    FOR_STEP(a, j) vec_store(sums[a] + at->sums + j * VECTOR, acc[a][j]);
}

INLINE void store_sums(Epilogue ep, vec acc[KG][TW], const Step *at, int n, int k0) {
    FOR_STEP(a, j) finish_columns(ep, k0 + a, ((offset_t)n * K + k0 + a) * PIXELS + at->pixels[j], &acc[a][j]);
}

HOT void make_item(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
                   const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y, offset_t item SCALE_PARAMETER) {
    acc_t sums[KG][RUN] __attribute__((aligned(64)));
    const Epilogue ep = {bias, z, y SCALE_ARGUMENT};
    const int from = (int)(item % Q_BLOCKS) * RUN, width = PIXELS - from < RUN ? PIXELS - from : RUN;
    const int group = (int)(item / Q_BLOCKS % (K / KG)), n = (int)(item / Q_BLOCKS / (K / KG));
    x += ((offset_t)n * C + group * CG) * PIXELS, w += group * KG * CW;
    NO_UNROLL for (int c0 = 0; c0 < CG; c0 += CHANNELS)
        NO_UNROLL for (int q = 0; q < width; q += TW * VECTOR) {
            Step at = {q, {0}};
            UNROLL for (int j = 0; j < TW; j++) {
                const int pixel = from + q + j * VECTOR;
                at.pixels[j] = pixel < PIXELS - VECTOR ? pixel : PIXELS - VECTOR;
            }
            vec acc[KG][TW];
            take_sums(acc, sums, &at, c0);
            if (CG % CHANNELS == 0 || c0 + CHANNELS <= CG) add_channels(acc, x, &at, w, c0, CHANNELS);
            else add_channels(acc, x, &at, w, c0, CG % CHANNELS);
            if (c0 + CHANNELS < CG) keep_sums(sums, acc, &at);
            else store_sums(ep, acc, &at, n, group * KG);
        }
}

BOUNDED_KERNEL(grouped, 1, 1)
(const GLOBAL in_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y SCALE_PARAMETER) {
    FOR_EACH(item, ITEMS) make_item(x, w, bias, z, y, item SCALE_ARGUMENT);
}
