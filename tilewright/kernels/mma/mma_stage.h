// Staging of the mma family: CHUNKS chunks of 16 bytes of the sum, of PB pixels and KB filters, into shared memory.
//
// The sum runs over RUN chunks of channels, all taps (r, s) of these, then the next RUN chunks: so what one tap has
// read, the next ones find in the L1 cache (X_L1). The filter is packed as it is staged: KB * CHUNKS chunks side by
// side. The input, X_WAY (tile.py has the same names):
//   AS_IS, COPIED   nhwc, as given or written by nhwc.cu: a chunk is EACH channels of a tap of a pixel (mma_pixels.h)
//   GATHERED        number by number, nhwc or nchw: few channels, so taps and channels are packed without gaps (there)
//   PLANES          nchw as given, 1x1: a step's channels are rows of pixels (mma_planes.h)

#define GATHERED 2
#define PLANES 4
#define EACH (16 / NUMBER_BYTES)          // numbers of a chunk
#define W_ITEMS (KB * CHUNKS)

#if X_WAY == PLANES
#include "mma_planes.h"
#else
#define ONE_IMAGE 0
#include "mma_pixels.h"
#endif

typedef struct {
    const GLOBAL unsigned char *w;  // this thread's first chunk of the next step
} FilterSource;

INLINE FilterSource find_filter(const GLOBAL unsigned char *w, Place at, int step) {
    FilterSource from;
    from.w = w + ((offset_t)((at.group * K_TILES + at.k0 / KB) * STEPS + step) * W_ITEMS + THREAD(0)) * 16;
    return from;
}

// Copy the filters of a step to behind the input at `to`, if it comes before `last`; steps come one by one.
INLINE void stage_w(shared_t to, FilterSource *from, int step, int last) {
    if (step < last) {
        UNROLL for (int j = 0; j < W_ITEMS; j += THREADS)
            if (j + THREADS <= W_ITEMS || j + THREAD(0) < W_ITEMS)
                copy16(to + X_BYTES + (j + THREAD(0)) * 16, from->w + j * 16, 1);
        from->w += W_BYTES;
    }
}
