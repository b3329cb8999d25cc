// The layer that planar.cu computes on the host. Of tf32 x is not whole, but rounded it is.

static void pack(const in_t *, in_t *);
static void ready() {
    pack(filter, packed);
#if PRODUCTS == TF32
    for (in_t &number : image) number = bits_float(float_bits(number) + rng() % 0x1fff - 0xfff);
#endif
}
void run_kernel() { planar(image, (unsigned char *)packed, bias, added, (done_t *)outputs); }

static acc_t right_sum(int n, int k, int px) {
    acc_t sum = 0;
    for (int c = 0; c < C; c++) sum += widened(image[(n * C + c) * HW + px]) * widened(filter[k * C + c]);
    return sum;
}
static bool made(int n, int k, int) {
    for (int id = first_block; id < TILES * SC; id += GRID) {
        const Block b = find_block(id);
        if (n >= b.n0 && n < b.n0 + b.images && k >= b.k0 && k < b.k0 + b.channels) return true;
    }
    return false;
}
#include "numbers_host_main.h"
