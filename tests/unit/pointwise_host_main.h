// The layer that pointwise.cu computes on the host. Of tf32 x is not whole, but rounded it is; the filter is packed so.

static void ready() {
    for (int i = 0; i < K * STEPS * CHANNELS; i++) {
        const int k = i / (STEPS * CHANNELS), step = i / CHANNELS % STEPS, place = i % CHANNELS;
        const int c = step * CHANNELS + STRAND_CHANNEL(place);
        const int at = swizzled(k % KB * (CHUNKS * 16) + place * sizeof(in_t));
        if (c < C) packed[((k / KB * STEPS + step) * W_BYTES + at) / sizeof(in_t)] = filter[k * C + c];
    }
#if PRODUCTS == TF32
    for (in_t &number : image) number = bits_float(float_bits(number) + rng() % 0x1fff - 0xfff);
#endif
}
void run_kernel() { pointwise(ImageMap(), (unsigned char *)packed, bias, added, outputs); }

static acc_t right_sum(int n, int k, int px) {
    acc_t sum = 0;
    for (int c = 0; c < C; c++) sum += widened(image[(n * C + c) * HW + px]) * widened(filter[k * C + c]);
    return sum;
}
static bool made(int n, int k, int px) {
    for (int id = first_block; id < PLACES * K_TILES; id += GRID)
        for (int i = 0; i < SPANS; i++) {
            const Origin one = find_origin(id, i);
            if (one.image == n && px / SPAN_PIXELS == one.start / SPAN_PIXELS && k / KB == id % K_TILES) return true;
        }
    return false;
}
#include "numbers_host_main.h"
