// reference: y[n,k,p,q] = act(bias[k] + sum over c,r,s of x[n,c,p*u+r*d-pad,q*u+s*d-pad] * w[k,c,r,s])
// in f64, straight from the formula. One thread makes STRIP outputs of a row; x is 0 in the padding
// and is multiplied there too, so a NaN or Inf in w shows wherever the formula has it.
//
// x, y: nchw or nhwc (X_NHWC, Y_NHWC).  w: kcrs as given.
// reference_f64 also writes conv(|x|, |w|) + |bias|, of which the error bound is a multiple.
// Example: one f32 product has 48 bits, so 32 of them add up in f64 without any rounding.

#include "loop.h"

#define STRIPS ((SIZE_Q + STRIP - 1) / STRIP)
#define ITEMS ((offset_t)SIZE_N * SIZE_K * SIZE_P * STRIPS)
#define X_AT(n, c, h, w) (X_NHWC ? (((offset_t)(n) * SIZE_H + (h)) * SIZE_W + (w)) * SIZE_C + (c) \
                                 : (((offset_t)(n) * SIZE_C + (c)) * SIZE_H + (h)) * SIZE_W + (w))
#define Y_AT(n, k, p, q) (Y_NHWC ? (((offset_t)(n) * SIZE_P + (p)) * SIZE_Q + (q)) * SIZE_K + (k) \
                                 : (((offset_t)(n) * SIZE_K + (k)) * SIZE_P + (p)) * SIZE_Q + (q))

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
INLINE void add_row(double *sum, double *size, GLOBAL const float *x, GLOBAL const float *w, Strip at,
                    int c, int h) {
    int inside_h = h >= 0 && h < SIZE_H;
    for (int s = 0; s < SIZE_S; s++) {
        int w0 = at.q * STRIDE_W + s * DILATION_W - PAD_LEFT;
        double weight = w[s], weight_size = weight < 0 ? -weight : weight;
        if (inside_h && w0 >= 0 && w0 + (STRIP - 1) * STRIDE_W < SIZE_W) {
            UNROLL for (int i = 0; i < STRIP; i++) {
                double value = x[X_AT(at.n, c, h, w0 + i * STRIDE_W)];
                sum[i] += value * weight;
                size[i] += (value < 0 ? -value : value) * weight_size;
            }
        } else {
            UNROLL for (int i = 0; i < STRIP; i++) {
                int column = w0 + i * STRIDE_W, inside = inside_h && column >= 0 && column < SIZE_W;
                double value = inside ? x[X_AT(at.n, c, h, column)] : 0.0f;
                sum[i] += value * weight;
                size[i] += (value < 0 ? -value : value) * weight_size;
            }
        }
    }
}

INLINE void make_strip(double *sum, double *size, GLOBAL const float *x, GLOBAL const float *w,
                       GLOBAL const float *bias, Strip at) {
    UNROLL for (int i = 0; i < STRIP; i++) sum[i] = size[i] = 0.0;
    for (int c = 0; c < CG; c++) {
        for (int r = 0; r < SIZE_R; r++) {
            int h = at.p * STRIDE_H + r * DILATION_H - PAD_TOP;
            GLOBAL const float *row = w + (((offset_t)at.k * CG + c) * SIZE_R + r) * SIZE_S;
            add_row(sum, size, x, row, at, at.k / KG * CG + c, h);
        }
    }
    UNROLL for (int i = 0; i < STRIP; i++) {
#if BIAS
        double b = bias[at.k];
        sum[i] += b;
        size[i] += b < 0 ? -b : b;
#endif
#if ACT == 1
        sum[i] = sum[i] < 0 ? 0 : sum[i];  // NaN stays NaN
#endif
    }
}

KERNEL(reference)(GLOBAL const float *RESTRICT x, GLOBAL const float *RESTRICT w,
                  GLOBAL const float *RESTRICT bias, GLOBAL float *RESTRICT y) {
    FOR_EACH(item, ITEMS) {
        double sum[STRIP], size[STRIP];
        Strip at = find_strip(item);
        make_strip(sum, size, x, w, bias, at);
        UNROLL for (int i = 0; i < STRIP; i++)
            if (at.q + i < SIZE_Q) y[Y_AT(at.n, at.k, at.p, at.q + i)] = (float)sum[i];
    }
}

KERNEL(reference_f64)(GLOBAL const float *RESTRICT x, GLOBAL const float *RESTRICT w,
                      GLOBAL const float *RESTRICT bias, GLOBAL double *RESTRICT y,
                      GLOBAL double *RESTRICT sizes) {
    FOR_EACH(item, ITEMS) {
        double sum[STRIP], size[STRIP];
        Strip at = find_strip(item);
        make_strip(sum, size, x, w, bias, at);
        UNROLL for (int i = 0; i < STRIP; i++) {
            if (at.q + i >= SIZE_Q) continue;
            y[Y_AT(at.n, at.k, at.p, at.q + i)] = sum[i];
            sizes[Y_AT(at.n, at.k, at.p, at.q + i)] = size[i];
        }
    }
}
