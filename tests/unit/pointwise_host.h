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
// Rows of a span's channels, swizzled; zeros outside of the image. Numbers of tf32 are rounded.
static void span_copy(shared_t to, const ImageMap *, int px, int c, int row, int n, shared_t bar) {
    CHECK(to % 1024 == 0 && row == 0 && px >= 0 && px % SPAN_PIXELS == 0, "a box that is none, to %d", place_of(to));
    copy(to, SPAN_BYTES, bar, [=] {
        for (int i = 0; i < CHANNELS * SPAN_PIXELS; i++) {
            const int channel = i / SPAN_PIXELS, pixel = i % SPAN_PIXELS, place = i * (int)sizeof(in_t);
            const bool there = n < N && c + channel < C && px + pixel < HW;
            in_t number = there ? image[(n * C + c + channel) * HW + px + pixel] : narrowed(0);
#if PRODUCTS == TF32
            number = bits_float(tf32_of(float_bits(number)));
#endif
            *(in_t *)(memory + to + (place ^ (place >> 7 & 7) << 4)) = number;
        }
    });
}
