// How the mma family stages the input as pixels, each a row of CHUNKS chunks along the sum.
//
//   AS_IS, COPIED   a chunk is EACH channels of a tap of a pixel, CC chunks a tap; a thread takes one chunk column of
//                   several pixels, and keeps where each begins
//   GATHERED        a thread gathers all chunks of its pixels
// Padding, and pixels past the last one, are zeros: `met` says which taps of the filter lie in the image (taps.h).

#define X_BYTES (PB * ROW_BYTES)          // of a stage
#define ALL_CHUNKS (X_WAY == GATHERED ? CEIL_DIV(R * S * C, EACH) : R * S * CC)
#define ROWS_APART (THREADS / CHUNKS)     // pixels between two copies of a thread
#define X_COPIES (X_WAY == GATHERED ? CEIL_DIV(PB, THREADS) : CEIL_DIV(PB, ROWS_APART))
#define X_CHANNELS (GROUPS_ * (X_WAY == GATHERED ? C : CC))  // of a pixel of the input, or chunks
#define X_STEP_C (X_WAY != GATHERED || X_NHWC ? 1 : H * W)
#define X_STEP_W (X_WAY != GATHERED || X_NHWC ? X_CHANNELS : 1)

#include "taps.h"

typedef struct {
    const GLOBAL unsigned char *x;
    offset_t at[X_COPIES];    // where the window of a pixel begins: chunks from x on, or numbers
    Met met[X_COPIES];        // which of its taps lie in the image
} InputSource;

// The pixel of copy j of this thread, in the tile: a thread copies one chunk column, or gathers whole rows.
INLINE int copy_row(int j) {
    return X_WAY == GATHERED ? THREAD(0) + j * THREADS : THREAD(0) / CHUNKS + j * ROWS_APART;
}
INLINE int copy_pixel(int row) { return Y_NHWC || PRODUCTS == DOUBLE ? row : COLUMN(row); }

INLINE InputSource find_input(const GLOBAL x_t *x, Place at) {
    InputSource from;
    from.x = (const GLOBAL unsigned char *)x;
    UNROLL for (int j = 0; j < X_COPIES; j++) {
        int px = at.q0 + copy_pixel(copy_row(j)), n = N == 1 ? 0 : px / (P * Q), column = P * N == 1 ? px : px % Q;
        int h = px / Q % P * STR_H - PAD_T, v = column * STR_W - PAD_L, group = at.group * (X_WAY == GATHERED ? C : CC);
        from.at[j] = n * ((offset_t)H * W * X_CHANNELS) + (h * W + v) * (offset_t)X_STEP_W + group * (offset_t)X_STEP_C;
        from.met[j] = met_at(h, v);
        if (PIXELS % PB && px >= PIXELS) from.met[j] = met_never();
    }
    return from;
}

// Copy the input of a step to `to`, if it comes before `last`.
#if X_WAY == GATHERED
INLINE void stage_x(shared_t to, const InputSource *from, int step, int last) {
    if (step >= last) return;
    const GLOBAL x_t *x = (const GLOBAL x_t *)from->x;
    UNROLL for (int j = 0; j < X_COPIES; j++) {
        int row = copy_row(j);
        if (PB % THREADS && row >= PB) continue;
        UNROLL for (int chunk = 0; chunk < CHUNKS; chunk++) {
            unsigned words[4] = {0, 0, 0, 0};
            UNROLL for (int e = 0; e < EACH; e++) {
                int i = (step * CHUNKS + chunk) * EACH + e, r = i / C / S, s = i / C % S;
                unsigned need = i < R * S * C ? tap_of(r, s) : NO_TAP;
                offset_t off = (offset_t)(r * DIL_H * W + s * DIL_W) * X_STEP_W + (offset_t)(i % C) * X_STEP_C;
                unsigned bits = meets(from->met[j], need) ? x[from->at[j] + off] : 0;
                words[e * 4 / EACH] |= (EACH == 16 ? bits & 0xff : bits) << (e * (128 / EACH) % 32);
            }
            write16(to + row * ROW_BYTES + (chunk ^ SWIZZLE(row)) * 16, words);
        }
    }
}
#else
INLINE void stage_x(shared_t to, const InputSource *from, int step, int last) {
    if (step >= last) return;
    const int column = THREAD(0) % CHUNKS, chunk = step * CHUNKS + column;
    const int run = RUN == CHUNKS ? step : chunk / RUN, tap = run % (R * S), r = tap / S, s = tap % S;
    const int c = run / (R * S) * RUN + (RUN == CHUNKS ? column : chunk % RUN);
    unsigned need = ALL_CHUNKS % CHUNKS == 0 || chunk < ALL_CHUNKS ? tap_of(r, s) : NO_TAP;
    const GLOBAL unsigned char *x = from->x + (offset_t)((r * DIL_H * W + s * DIL_W) * X_CHANNELS + c) * 16;
    UNROLL for (int j = 0; j < X_COPIES; j++) {
        int row = copy_row(j), keep = meets(from->met[j], need);
        if (PB % ROWS_APART && row >= PB) continue;
        shared_t place = to + row * ROW_BYTES + (column ^ SWIZZLE(row)) * 16;
        if (X_L1) copy16_cached(place, x + from->at[j] * 16, keep);
        else copy16(place, x + from->at[j] * 16, keep);
    }
}
#endif
