// The layer that a kernel computes on the host (numbers_host.h), and the run of clusters. A family has before it
//
//   ready()           what is done to numbers before the kernel gets them: the filter is packed
//   right_sum(...)    of an image, a channel and a pixel of y
//   made(...)         whether the blocks that run make it

template <int count, class type> static void draw(type (&numbers)[count]) {
    const float some[] = {-3, -2, -1, 1, 2, 3};
    for (type &number : numbers) number = narrowed(some[rng() % 6]);
}

int main(int count, char **given) {
    static out_t right[N * K * PIXELS_OUT];
    const double often[] = {AT_ONCE, 0.3, AT_LAST};
    draw(image), draw(filter), draw(bias), draw(added);
    const Epilogue ep = {bias, added, 0};
    for (int i = 0; i < N * K * PIXELS_OUT; i++) {
        const int k = i / PIXELS_OUT % K;
        right[i] = narrowed(before_pool(right_sum(i / PIXELS_OUT / K, k, i % PIXELS_OUT), ep, k, i));
    }
    ready();
    for (int seed = 0; seed < atoi(given[1]); seed++) {
        rng.seed(seed), pace = {often[seed % 3], often[seed / 3 % 3], seed % 2 > 0};
        out_t nothing;
        memset(outputs, 0xff, sizeof outputs), memset(&nothing, 0xff, sizeof nothing);
        run_cluster({CLUSTER, THREADS, BARS_FROM, SHARED_BYTES - 1024}, rng() % (GRID / CLUSTER) * CLUSTER);
        for (int i = 0; i < N * K * PIXELS_OUT; i++) {
            const int n = i / PIXELS_OUT / K, k = i / PIXELS_OUT % K, px = i % PIXELS_OUT;
            const out_t should = made(n, k, px) ? right[i] : nothing;
            CHECK(!memcmp(outputs + i, &should, sizeof should), "image %d, channel %d, pixel %d: %g, not %g", n, k, px,
                  widened(outputs[i]), widened(should));
        }
    }
    puts("done");
}
