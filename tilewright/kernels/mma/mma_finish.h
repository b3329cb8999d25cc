// How the mma family finishes four sums of a thread, which are neighbours in y: four channels of a pixel in nhwc, four
// pixels of a channel in nchw (COLUMN, swizzle.h). They are stored at once where Y_VECTOR says that all are there.

#include "pixels.h"

// Element k of pixel px, in the part of the block's share; px counts those of one image if ONE_IMAGE.
INLINE offset_t y_at(Place at, int k, int px) {
    if (ONE_IMAGE) return SHARE_AT(at) + ((offset_t)at.n * (GROUPS_ * K) + k) * (P * Q) + px;
    return SHARE_AT(at) + pixel_at(k, px);
}

// Finish a thread's output, or hand its partial sum on. (No early return: PoCL miscompiles it here.)
INLINE void finish_out(Epilogue ep, Place at, int m, int n, acc_t v[4]) {
    const int k = at.k0 + (Y_NHWC ? n : m), px = at.q0 + (Y_NHWC ? m : n), group = at.group * K;
    const int whole = (K % KB == 0 || k < K) && (PIXELS % PB == 0 || px < PIXELS);
#if Y_VECTOR
    if (whole) {
        done_t out[4];
        const offset_t to = y_at(at, group + k, px);
        finished_run(4, out, ep, group + k, Y_NHWC, to, v);
        store4(ep.y + to, out);
    }
#else
    UNROLL for (int i = 0; i < 4; i++) {
        int ki = k + (Y_NHWC ? i : 0), pi = px + (Y_NHWC ? 0 : i);
        if (whole && ki < K && pi < PIXELS) finish_one(ep, group + ki, y_at(at, group + ki, pi), v[i]);
    }
#endif
}
