// Staging of the gemm family for filters of several taps, or with padding (TAPPED). A step is CS channels at one tap
// (r, s) of the filter, a product like any other: of the pixels that lie r rows and s columns further, or of zeros
// where these are padding.
//
//   steps   the taps of CS channels, then those of the next CS, so that pixels are mostly in the caches
//   filter  packed [c][tap][KB], staged as CS rows of KB that lie TAPS rows apart
//   input   laid out as gemm_stage.h says; which taps meet the image under a pixel is worked out once (taps.h)

#define TAPS (R * S)
#define W_QUADS (KB / 4)                              // copies in a row of the filter
#define WHOLE_W (THREADS % W_QUADS == 0)              // all threads copy whole rows
#define LINEAR (WHOLE_ROWS && (!X_NHWC || CV == 4))   // copy j goes j * ROWS_APART rows behind the first
#define ONE_COLUMN (WHOLE_ROWS && !X_NHWC)            // and comes from the same pixel, of other channels
#define KEPT (ONE_COLUMN ? 1 : X_KEPT ? X_COPIES : 0)
#define PIXEL ((offset_t)(X_NHWC ? GROUPS_ * C : 1))  // floats of x from one pixel to the next
#define RIGHT (DIL_W * PIXEL)                         // from one tap to the next, and to the next row of them
#define DOWN (DIL_H * W * PIXEL)

typedef struct {
    const GLOBAL float *x, *w;     // of the step to stage next
    int c, r, s;                   // its first channel, and its tap
    offset_t at[KEPT ? KEPT : 1];  // of this thread's copies, from x on
    Met met[KEPT ? KEPT : 1];
} Source;

// Where quad e of a step's filter lies, from its first on; where copy j of the input goes in the staged tile.
INLINE offset_t filter_at(int e) { return (offset_t)(e / W_QUADS) * (TAPS * KB) + e % W_QUADS * 4; }
INLINE int copy_to(int j) { return CV == 4 ? copy_px(j) * X_PITCH + copy_c(j) : copy_c(j) * X_PITCH + copy_px(j); }

INLINE Source find_source(const GLOBAL float *x, const GLOBAL float *w, Place at, int step) {
    Source from;
    const int tap = step % TAPS;
    from.c = step / TAPS * CS, from.r = tap / S, from.s = tap % S;
    from.x = x + (offset_t)(at.group * C + from.c) * C_STEP + from.r * DOWN + from.s * RIGHT;
    from.w = w + ((offset_t)(at.group * K_TILES + at.k0 / KB) * C_PADDED + from.c * TAPS + tap) * KB;
    if (WHOLE_W) from.w += filter_at(THREAD(0));
    UNROLL for (int j = 0; j < KEPT; j++) from.at[j] = copy_from(at, j), from.met[j] = met_under(copied_px(at, j));
    return from;
}

INLINE void next_step(Source *from) {
    from->x += RIGHT, from->w += KB;
    if (++from->s < S) return;
    from->s = 0;
    from->x += DOWN - S * RIGHT;
    if (++from->r < R) return;
    from->r = 0;
    from->c += CS;
    from->x += (offset_t)CS * C_STEP - R * DOWN;
    from->w += (CS - 1) * TAPS * KB;
}

// Copy the tiles of a step to `to`, if it comes before `last`.
INLINE void stage(SHARED float *to, Source *from, Place at, int step, int last) {
    if (step < last) {
        const unsigned tap = tap_of(from->r, from->s);
        SHARED float *to_w = to + THREAD(0) * 4, *to_x = to + CS * KB + (LINEAR ? copy_to(0) : 0);
        UNROLL for (int j = 0; j < W_ITEMS; j += THREADS)
            if (j + THREADS <= W_ITEMS || j + THREAD(0) < W_ITEMS)
                async_copy4(to_w + j * 4, from->w + filter_at(WHOLE_W ? j : j + THREAD(0)), 1);
        UNROLL_BY(KEPT ? X_COPIES : 1) for (int j = 0; j < X_COPIES; j++) {
            if (X_ITEMS % THREADS && j * THREADS + THREAD(0) >= X_ITEMS) continue;
            const int kept = KEPT > 1 ? j : 0;
            const int inside = meets(KEPT ? from->met[kept] : met_under(copied_px(at, j)), tap);
            const int keep = inside && (C % CS == 0 || from->c + copy_c(j) < C);
            const GLOBAL float *x = from->x + (inside ? KEPT ? from->at[kept] : copy_from(at, j) : 0);
            if (ONE_COLUMN) x += (offset_t)j * ROWS_APART * C_STEP;
            SHARED float *there = to_x + (LINEAR ? j * (ROWS_APART * X_PITCH) : copy_to(j));
            if (COPY == 4) async_copy4(there, x, keep);
            else async_copy1(there, x, keep);
        }
        next_step(from);
    }
    ASYNC_COMMIT();
}
