// The layer that shifted.cu computes on the host. Of tf32 x is not whole, but rounded it is; the filter is packed so.

static void ready() {
    for (int i = 0; i < K * C * TAPS; i++) {
        const int k = i / TAPS / C, c = i / TAPS % C, step = c / CHANNELS * R + i / S % R;
        const int at = swizzled(k % KB * (CHUNKS * 16) + c % CHANNELS * sizeof(in_t));
        packed[(((k / KB * (RUNS * R) + step) * S + i % S) * W_BYTES + at) / sizeof(in_t)] = filter[i];
    }
#if PRODUCTS == TF32
    for (in_t &number : image) number = bits_float(float_bits(number) + rng() % 0x1fff - 0xfff);
#endif
}
void run_kernel() { shifted(image, (unsigned char *)packed, bias, added, outputs); }

static acc_t right_sum(int n, int k, int px) {
    acc_t sum = 0;
    for (int i = 0; i < C * TAPS; i++) {
        const int c = i / TAPS, row = px / Q * STR_H + i / S % R * DIL_H - PAD_T;
        const int column = px % Q * STR_W + i % S * DIL_W - PAD_L;
        if (row >= 0 && row < H && column >= 0 && column < W)
            sum += widened(image[((n * C + c) * H + row) * W + column]) * widened(filter[k * C * TAPS + i]);
    }
    return sum;
}
static bool made(int n, int k, int px) {
    for (int id = first_block; id < TILES * SC; id += GRID) {
        const Block b = find_block(id);
        if (k < b.k0 || k >= b.k0 + b.channels) continue;
        for (int i = 0; i < TILE_PIXELS; i++) {
            const Pixel one = find_pixel(&b, i);
            for (int m = 0; m < TALL && one.there && b.n0 + one.image == n; m++)
                if (one.p * TALL + m < P && one.to + m * Q == px) return true;
        }
    }
    return false;
}
#include "numbers_host_main.h"
