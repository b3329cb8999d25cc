// Staging of the gemm family: CS channels of the filter and of the input, from global into shared memory.
//
// The filter is packed as it is staged: one run of CS * KB floats. The input, COPY floats at a time:
//   nchw           [c][X_PITCH], 16 bytes along the pixels (X_QUADS) or 4
//   nhwc, CV = 4   [px][X_PITCH], 16 bytes along the channels
//   nhwc, CV = 1   [c][X_PITCH], transposed on the way, 4 bytes a copy: a warp takes 8 channels of 4 pixels
// Pixels past the last one are staged as the last: their sums are not stored. Channels past the last one are zeros.
// Here is a single product. The products of a filter's taps (TAPPED) are staged by gemm_taps.h, of few channels (FLAT)
// by gemm_flat.h.

#define CHANNEL_RUN (CS < 8 ? CS : 8)
#define ROW_COPIES (X_NHWC ? (CV == 4 ? CS / 4 : CHANNEL_RUN) : PB / COPY)  // copies in a row
#define X_ITEMS (CS * PB / COPY)
#define X_COPIES CEIL_DIV(X_ITEMS, THREADS)
#define W_ITEMS (CS * KB / 4)

// Copy j of this thread: its channel and pixel in the tile.
#define WHOLE_ROWS (THREADS % ROW_COPIES == 0)  // all threads copy whole rows: the column is the same for all j
#define ROWS_APART (THREADS / ROW_COPIES)       // and copy j lies so many rows behind copy j - 1
INLINE int copy_row(int j) {
    return WHOLE_ROWS ? j * ROWS_APART + THREAD(0) / ROW_COPIES : (j * THREADS + THREAD(0)) / ROW_COPIES;
}
INLINE int copy_column(int j) {
    return WHOLE_ROWS ? THREAD(0) % ROW_COPIES : (j * THREADS + THREAD(0)) % ROW_COPIES;
}
INLINE int copy_c(int j) {
    return !X_NHWC ? copy_row(j) : CV == 4 ? copy_column(j) * 4 : copy_column(j) + copy_row(j) / PB * CHANNEL_RUN;
}
INLINE int copy_px(int j) { return !X_NHWC ? copy_column(j) * COPY : CV == 4 ? copy_row(j) : copy_row(j) % PB; }

INLINE int copied_px(Place at, int j) {
    int px = at.q0 + copy_px(j);
    return PIXELS % PB ? min(px, X_LAST) : px;
}
INLINE offset_t copy_from(Place at, int j) { return x_at(copied_px(at, j)) + (offset_t)copy_c(j) * C_STEP; }

#if TAPPED
#include "taps.h"

INLINE Met met_under(int px) { return met_at(px / Q % P * STR_H - PAD_T, px % Q * STR_W - PAD_L); }
#endif

#if FLAT
#include "gemm_flat.h"
#elif TAPPED
#include "gemm_taps.h"
#else
typedef struct {
    const GLOBAL float *x, *w;          // of the step to stage next
    offset_t at[X_KEPT ? X_COPIES : 1];  // of this thread's copies, from x on
} Source;

INLINE Source find_source(const GLOBAL float *x, const GLOBAL float *w, Place at, int step) {
    Source from;
    from.x = x + (offset_t)(at.group * C + step * CS) * C_STEP;
    from.w = w + ((offset_t)(at.group * K_TILES + at.k0 / KB) * C_PADDED + step * CS) * KB + THREAD(0) * 4;
#if X_KEPT
    UNROLL for (int j = 0; j < X_COPIES; j++) from.at[j] = copy_from(at, j);
#endif
    return from;
}

// Copy the tiles of a step to `to`, if it comes before `last`.
INLINE void stage(SHARED float *to, Source *from, Place at, int step, int last) {
    if (step < last) {
        UNROLL for (int j = 0; j < W_ITEMS; j += THREADS)
            if (j + THREADS <= W_ITEMS || j + THREAD(0) < W_ITEMS)
                async_copy4(to + (j + THREAD(0)) * 4, from->w + j * 4, 1);
        to += CS * KB;
        UNROLL_BY(X_KEPT ? X_COPIES : 1) for (int j = 0; j < X_COPIES; j++) {
            int c = copy_c(j), px = copy_px(j), keep = C % CS == 0 || step * CS + c < C;
            offset_t at_x = X_KEPT ? from->at[X_KEPT ? j : 0] : copy_from(at, j);
            if (X_ITEMS % THREADS && j * THREADS + THREAD(0) >= X_ITEMS) continue;
            if (COPY == 4)
                async_copy4(to + (CV == 4 ? px * X_PITCH + c : c * X_PITCH + px), from->x + (keep ? at_x : 0), keep);
            else async_copy1(to + c * X_PITCH + px, from->x + (keep ? at_x : 0), keep);
        }
        from->x += CS * C_STEP;
        from->w += CS * KB;
    }
    ASYNC_COMMIT();
}
#endif
