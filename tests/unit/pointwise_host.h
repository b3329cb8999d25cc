// pointwise.cu on the host (numbers_host.h), and boxes of its tensor map.
#define TILE "pointwise_tile.h"
#define PIXELS_IN HW
#define PIXELS_OUT HW
#define PACKED_BYTES (K_TILES * STEPS * W_BYTES)
#define TAPS 1
#include "numbers_host.h"
#include "mma_tf32.h"

#define __grid_constant__
struct ImageMap {};
static void image_soon(const ImageMap *) {}
// Rows of a strand's spans, swizzled if there is one; zeros outside of the image. Numbers of tf32 are rounded.
static void span_copy(shared_t to, const ImageMap *, int px, int c, int row, int n, shared_t bar) {
    CHECK(to % (STRANDS > 1 ? 128 : 1024) == 0 && row == 0, "a box that is none, to %d", place_of(to));
    CHECK(px >= 0 && px * (int)sizeof(in_t) % 16 == 0, "a box that is none, from %d", px);
    copy(to, BOX_BYTES, bar, [=] {
        const int pixels = ROW_BYTES / sizeof(in_t);
        for (int i = 0; i < OF_STRAND * pixels; i++) {
            const int strand = i / pixels, pixel = i % pixels, place = i * (int)sizeof(in_t);
            const bool there = n < N && c + strand < C / STRANDS && px + pixel < HW * STRANDS;
            in_t number = there ? image[(n * C + (c + strand) * STRANDS) * HW + px + pixel] : narrowed(0);
#if PRODUCTS == TF32
            number = bits_float(tf32_of(float_bits(number)));
#endif
            *(in_t *)(memory + to + (STRANDS > 1 ? place : place ^ (place >> 7 & 7) << 4)) = number;
        }
    });
}
