// The layer that planar.cu computes on the host (planar_host.h), and the run of clusters.

static void pack(const in_t *, in_t *);
void run_kernel() { planar(image, (unsigned char *)packed, bias, added, outputs); }

template <int count> static void draw(in_t (&numbers)[count]) {
    const float some[] = {-3, -2, -1, 1, 2, 3};
    for (in_t &number : numbers) number = narrowed(some[rng() % 6]);
}
static out_t right_output(int i) {
    const int n = i / HW / K, k = i / HW % K;
    acc_t sum = 0;
    for (int c = 0; c < C; c++) sum += widened(image[(n * C + c) * HW + i % HW]) * widened(filter[k * C + c]);
    return narrowed(before_pool(sum, bias, k, added, i));
}

// Whether the blocks that run make this channel of an image.
static bool made(int n, int k) {
    for (int id = first_block; id < TILES * SC; id += GRID) {
        const Block b = find_block(id);
        if (n >= b.n0 && n < b.n0 + b.images && k >= b.k0 && k < b.k0 + b.channels) return true;
    }
    return false;
}

int main(int count, char **given) {
    static out_t right[N * K * HW];
    const out_t nothing = 0xffff;
    const double often[] = {AT_ONCE, 0.3, AT_LAST};
    draw(image), draw(filter), draw(bias), draw(added);
    pack(filter, packed);
    for (int i = 0; i < N * K * HW; i++) right[i] = right_output(i);
    for (int seed = 0; seed < atoi(given[1]); seed++) {
        rng.seed(seed), pace = {often[seed % 3], often[seed / 3 % 3], seed % 2 > 0};
        for (done_t &one : outputs) one.bits = nothing;
        run_cluster({CLUSTER, THREADS, BARS_FROM, SHARED_BYTES - 1024}, rng() % (GRID / CLUSTER) * CLUSTER);
        for (int i = 0; i < N * K * HW; i++) {
            const int n = i / HW / K, k = i / HW % K;
            const out_t is = outputs[i].bits, should = made(n, k) ? right[i] : nothing;
            CHECK(is == should, "image %d, channel %d, pixel %d: %g, not %g", n, k, i % HW, widened(is),
                  widened(should));
        }
    }
    puts("done");
}
