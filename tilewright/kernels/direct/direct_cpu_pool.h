// How a CPU core pools complete sums that direct_cpu.h left in `partial`, where windows meet more than one register
// tile: by vectors. A line is a row of y; one work-item has LINES of them.
//   nchw   the rows of VECTOR windows side by side become one row, of which each window is then the neighbours
//   nhwc   each vector is VECTOR channels of a pixel

#define WINDOWS_SEEN ((VECTOR - 1) * POOL_STRIDE + POOL_SIZE)  // columns that VECTOR windows side by side meet
#define LINES_ALL (Y_FLOATS / ((offset_t)YQ * (Y_NHWC ? GROUPS_ * K : 1)))

// The first `count` sums from element `at` on: neighbouring columns of channel k, in nhwc channels from k on.
INLINE wide finished(const GLOBAL acc_t *partial, Epilogue ep, int k, offset_t at, int count) {
    wide v = (wide)(0), b = (wide)(0);
    UNROLL for (int g = 0; g < SG; g++) {
        const GLOBAL acc_t *from = partial + (offset_t)g * Z_FLOATS + at;
        if (count == VECTOR) v += *(const GLOBAL wide *)from;
        else UNROLL for (int j = 0; j < VECTOR; j++) if (j < count) v[j] += from[j];
    }
    if (BIAS) b = Y_NHWC ? load_first(ep.bias + k, count) : (wide)(out_load(ep.bias + k));
    return before_pool_lanes(v, b, ADD ? load_first(ep.z + at, count) : (wide)(0));
}

#if Y_NHWC
INLINE void pool_line(GLOBAL final_t *y, const GLOBAL acc_t *partial, Epilogue ep, offset_t line) {
    const int n = line / YP, p0 = line % YP * POOL_STRIDE - POOL_PAD;
    for (int pixel = 0; pixel < YQ; pixel++)
        for (int k = 0; k < GROUPS_ * K; k += VECTOR) {
            const int count = GROUPS_ * K - k < VECTOR ? GROUPS_ * K - k : VECTOR, q0 = pixel * POOL_STRIDE - POOL_PAD;
            wide pooled = (wide)(POOL_NOTHING);
            for (int p = p0 < 0 ? 0 : p0; p < P && p < p0 + POOL_SIZE; p++)
                for (int q = q0 < 0 ? 0 : q0; q < Q && q < q0 + POOL_SIZE; q++) {
                    wide v = finished(partial, ep, k, Z_AT(n, k, p, q), count);
                    pool_take_lanes(&pooled, &v);
                }
            pooled = pool_mean_lanes(pooled);
            GLOBAL final_t *to = y + (line * YQ + pixel) * (GROUPS_ * K) + k;
            UNROLL for (int j = 0; j < VECTOR; j++) if (j < count) to[j] = final_of(pooled[j], ep, k + j);
        }
}
#else
INLINE void pool_line(GLOBAL final_t *y, const GLOBAL acc_t *partial, Epilogue ep, offset_t line) {
    const offset_t image = line / YP;
    const int n = image / (GROUPS_ * K), k = image % (GROUPS_ * K), p0 = line % YP * POOL_STRIDE - POOL_PAD;
    acc_t row[WINDOWS_SEEN + VECTOR];
    for (int first = 0; first < YQ; first += VECTOR) {
        const int q0 = first * POOL_STRIDE - POOL_PAD, count = YQ - first < VECTOR ? YQ - first : VECTOR;
        for (int j = 0; j < -q0; j++) row[j] = POOL_NOTHING;
        for (int q = q0 < 0 ? 0 : q0; q < Q && q < q0 + WINDOWS_SEEN; q += VECTOR) {
            wide pooled = (wide)(POOL_NOTHING);
            for (int p = p0 < 0 ? 0 : p0; p < P && p < p0 + POOL_SIZE; p++) {
                wide v = finished(partial, ep, k, Z_AT(n, k, p, q), Q - q < VECTOR ? Q - q : VECTOR);
                pool_take_lanes(&pooled, &v);
            }
            *(wide *)(row + q - q0) = pooled;
        }
        for (int j = Q - q0; j < WINDOWS_SEEN; j++) row[j] = POOL_NOTHING;
        acc_t pooled[VECTOR];
        UNROLL for (int j = 0; j < VECTOR; j++) {
            pooled[j] = POOL_NOTHING;
            UNROLL for (int s = 0; s < POOL_SIZE; s++) pool_take(&pooled[j], row[j * POOL_STRIDE + s]);
        }
        GLOBAL final_t *to = y + line * YQ + first;
        UNROLL for (int j = 0; j < VECTOR; j++) if (j < count) to[j] = final_of(pool_mean(pooled[j]), ep, k);
    }
}
#endif

BOUNDED_KERNEL(pool_lines, 1, 1)
(const GLOBAL acc_t *RESTRICT partial, const GLOBAL out_t *RESTRICT bias, const GLOBAL out_t *RESTRICT z,
 GLOBAL final_t *RESTRICT y SCALE_PARAMETER) {
    const offset_t first = (offset_t)GROUP(0) * LINES;
    const Epilogue ep = {bias, z, 0 SCALE_ARGUMENT};
    for (offset_t line = first; line < first + LINES && line < LINES_ALL; line++)
        pool_line(y, partial, ep, line);
}
