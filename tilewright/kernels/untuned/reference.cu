// reference: y = pool(act(ALPHA * sum + BETA * z + bias)), with sum[n,k,p,q] = sum over c,r,s of
// x[n,c,p*u+r*d-pad,q*u+s*d-pad] * w[k,c,r,s]; in f64, straight from the formula. One thread makes
// STRIP sums of a row; x is 0 in the padding and is multiplied there too, so a NaN or Inf in w shows
// wherever the formula has it. If there is a pool, a second launch takes its values from the first's.
//
// x: nchw or nhwc (X_NHWC), w: kcrs as given, both in_t.  bias, z: out_t, y: final_t, z and y in Y_NHWC's layout.
// size = |ALPHA| conv(|x|, |w|) + |BETA z| + |bias|, of which the error bound is a multiple (error_bound.py);
// a pool takes the largest of its window, or their mean, as it does with the values.
// Example: one f32 product has 48 bits, so 32 of them add up in f64 without any rounding.

#include "loop.h"
#include "epilogue.h"
#include "sizes.h"

#define STRIPS CEIL_DIV(SIZE_Q, STRIP)
#define ITEMS ((offset_t)SIZE_N * SIZE_K * SIZE_P * STRIPS)
#define SIZE_OF(v) ((v) < 0 ? -(v) : (v))

// Where a strip is.
typedef struct {
    int n, k, p, q;
} Strip;

INLINE Strip find_strip(offset_t item) {
    Strip at;
    at.q = (int)(item % STRIPS) * STRIP;
    item /= STRIPS;
    at.p = item % SIZE_P;
    item /= SIZE_P;
    at.k = item % SIZE_K;
    at.n = item / SIZE_K;
    return at;
}

// Adds one filter row of one channel to the sums and to the sums of magnitudes.
INLINE void add_row(double *sum, double *size, GLOBAL const in_t *x, GLOBAL const in_t *w, Strip at,
                    int c, int h) {
    int inside_h = h >= 0 && h < SIZE_H;
    for (int s = 0; s < SIZE_S; s++) {
        int w0 = at.q * STRIDE_W + s * DILATION_W - PAD_LEFT;
        double weight = in_load(w + s), weight_size = SIZE_OF(weight);
        if (inside_h && w0 >= 0 && w0 + (STRIP - 1) * STRIDE_W < SIZE_W) {
            UNROLL for (int i = 0; i < STRIP; i++) {
                double value = in_load(x + X_AT(at.n, c, h, w0 + i * STRIDE_W));
                sum[i] += value * weight;
                size[i] += SIZE_OF(value) * weight_size;
            }
        } else {
            UNROLL for (int i = 0; i < STRIP; i++) {
                int column = w0 + i * STRIDE_W, inside = inside_h && column >= 0 && column < SIZE_W;
                double value = inside ? in_load(x + X_AT(at.n, c, h, column)) : 0;
                sum[i] += value * weight;
                size[i] += SIZE_OF(value) * weight_size;
            }
        }
    }
}

// As in epilogue.h, but in f64. NaN stays NaN.
INLINE double activated_f64(double v) {
#if ACT == 0
    return v;
#elif ACT == 1
    return v < 0 ? 0 : v;
#elif ACT == 2
    return v < 0 ? v * NUMBER(ACT_LOW) : v;
#elif ACT == 3
    return v / (1 + exp(-v));
#elif ACT == 4
    return v < NUMBER(ACT_LOW) ? NUMBER(ACT_LOW) : v > NUMBER(ACT_HIGH) ? NUMBER(ACT_HIGH) : v;
#else
#error "ACT: an activation that has no formula here, see docs/new_activation.md"
#endif
}

// Sums of i8 are of 32 bits: beyond them they start again at the other end.
#if DTYPE == 4
#define WRAPPED(v) ((double)(int)(long)(v))
#else
#define WRAPPED(v) (v)
#endif

INLINE void make_strip(double *sum, double *size, GLOBAL const in_t *x, GLOBAL const in_t *w, Epilogue ep, Strip at) {
    UNROLL for (int i = 0; i < STRIP; i++) sum[i] = size[i] = 0.0;
    for (int c = 0; c < CG; c++) {
        for (int r = 0; r < SIZE_R; r++) {
            int h = at.p * STRIDE_H + r * DILATION_H - PAD_TOP;
            GLOBAL const in_t *row = w + (((offset_t)at.k * CG + c) * SIZE_R + r) * SIZE_S;
            add_row(sum, size, x, row, at, at.k / KG * CG + c, h);
        }
    }
    double alpha = NUMBER(ALPHA), shift = BIAS ? out_load(ep.bias + at.k) : 0;
    UNROLL for (int i = 0; i < STRIP; i++) {
        double more = 0;
        if (ADD && at.q + i < SIZE_Q)
            more = (double)NUMBER(BETA) * out_load(ep.z + Z_AT(at.n, at.k, at.p, at.q + i));
        sum[i] = activated_f64(WRAPPED(alpha * sum[i] + more + shift));
        size[i] = SIZE_OF(alpha) * size[i] + SIZE_OF(more) + SIZE_OF(shift);
    }
}

KERNEL(reference)(GLOBAL const in_t *RESTRICT x, GLOBAL const in_t *RESTRICT w, GLOBAL const out_t *RESTRICT bias,
                  GLOBAL const out_t *RESTRICT z, GLOBAL final_t *RESTRICT y SCALE_PARAMETER) {
    const Epilogue ep = {bias, z, y SCALE_ARGUMENT};
    CHAIN_WAIT();
    FOR_EACH(item, ITEMS) {
        double sum[STRIP], size[STRIP];
        Strip at = find_strip(item);
        make_strip(sum, size, x, w, ep, at);
        UNROLL for (int i = 0; i < STRIP; i++)
            if (at.q + i < SIZE_Q) y[Z_AT(at.n, at.k, at.p, at.q + i)] = final_of((acc_t)sum[i], ep, at.k);
    }
}

KERNEL(reference_f64)(GLOBAL const in_t *RESTRICT x, GLOBAL const in_t *RESTRICT w,
                      GLOBAL const out_t *RESTRICT bias, GLOBAL const out_t *RESTRICT z,
                      GLOBAL double *RESTRICT sums, GLOBAL double *RESTRICT sizes) {
    const Epilogue ep = {bias, z, 0};
    CHAIN_WAIT();
    FOR_EACH(item, ITEMS) {
        double sum[STRIP], size[STRIP];
        Strip at = find_strip(item);
        make_strip(sum, size, x, w, ep, at);
        UNROLL for (int i = 0; i < STRIP; i++) {
            if (at.q + i >= SIZE_Q) continue;
            sums[Z_AT(at.n, at.k, at.p, at.q + i)] = sum[i];
            sizes[Z_AT(at.n, at.k, at.p, at.q + i)] = size[i];
        }
    }
}

#if POOL  // --------------------------------------------------------------------- the second launch

#define POOLED ((offset_t)SIZE_N * SIZE_K * Y_P * Y_Q)

INLINE int channel_of(offset_t item) { return Y_NHWC ? item % SIZE_K : item / ((offset_t)Y_P * Y_Q) % SIZE_K; }

// Pools the window of one element of y, in y's layout. NaN wins over every number.
INLINE double pooled(offset_t item, GLOBAL const double *from) {
    int k = channel_of(item);
    offset_t rest = Y_NHWC ? item / SIZE_K : item % ((offset_t)Y_P * Y_Q);
    int q = rest % Y_Q, p = rest / Y_Q % Y_P, n = item / ((offset_t)SIZE_K * Y_P * Y_Q), count = 0;
    double value = 0;
    for (int i = 0; i < POOL_SIZE * POOL_SIZE; i++) {
        int row = p * POOL_STRIDE - POOL_PAD + i / POOL_SIZE;
        int column = q * POOL_STRIDE - POOL_PAD + i % POOL_SIZE;
        if (row < 0 || row >= SIZE_P || column < 0 || column >= SIZE_Q) continue;
        double v = from[Z_AT(n, k, row, column)];
        value = POOL == 2 ? value + v : count == 0 || v > value || v != v ? v : value;
        count++;
    }
    return POOL == 2 ? value / count : value;
}

KERNEL(pool)(GLOBAL const double *RESTRICT sums, GLOBAL final_t *RESTRICT y SCALE_PARAMETER) {
    const Epilogue ep = {0, 0, y SCALE_ARGUMENT};
    FOR_EACH(item, POOLED) y[item] = final_of((acc_t)pooled(item, sums), ep, channel_of(item));
}

KERNEL(pool_f64)(GLOBAL const double *RESTRICT sums, GLOBAL const double *RESTRICT sizes,
                 GLOBAL double *RESTRICT ref, GLOBAL double *RESTRICT size) {
    FOR_EACH(item, POOLED) {
        ref[item] = pooled(item, sums);
        size[item] = pooled(item, sizes);
    }
}
#endif
