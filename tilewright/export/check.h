// What an exported kernel's inputs are filled with, and what its outputs should be; the layer is in layer.h.

#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer.h"

// ------------------------------------------------------------------------------------ numbers

// Element i of every input is -1, 0 or 1: sums of them are exact in every dtype.
static int number(size_t i) { return (int)(((unsigned)i * 2654435761u >> 16) % 3) - 1; }

enum { F64, F32, F16, BF16, I8, F8, I32 };  // as layer.h numbers dtypes; f8 is e4m3
static const size_t ELEMENT_BYTES[] = {8, 4, 2, 2, 1, 1, 4};

static void store(void *at, size_t i, int dtype, int value) {
    static const unsigned short f16[] = {0xbc00, 0, 0x3c00}, bf16[] = {0xbf80, 0, 0x3f80};
    static const unsigned char f8[] = {0xb8, 0, 0x38};
    if (dtype == F64) ((double *)at)[i] = value;
    if (dtype == F32) ((float *)at)[i] = value;
    if (dtype == F16) ((unsigned short *)at)[i] = f16[value + 1];
    if (dtype == BF16) ((unsigned short *)at)[i] = bf16[value + 1];
    if (dtype == I8) ((signed char *)at)[i] = value;
    if (dtype == F8) ((unsigned char *)at)[i] = f8[value + 1];
    if (dtype == I32) ((int *)at)[i] = value;
}

static double load(const void *at, size_t i, int dtype) {
    if (dtype == F64) return ((const double *)at)[i];
    if (dtype == F32) return ((const float *)at)[i];
    if (dtype == I8) return ((const signed char *)at)[i];
    if (dtype == I32) return ((const int *)at)[i];
    unsigned bits = ((const unsigned short *)at)[i];
    if (dtype == BF16) {
        float value;
        bits <<= 16;
        memcpy(&value, &bits, 4);
        return value;
    }
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent == 31 ? INFINITY : exponent ? ldexp(fraction + 1024, exponent - 25) : ldexp(fraction, -24);
    return bits & 0x8000 ? -size : size;
}

// Fill every input, those too that this layer has not (no kernel reads them), and hand it to `upload`.
static void give_inputs(void (*upload)(int buffer, const void *host)) {
    const int inputs[][2] = {
        {TW_BUF_X, TW_DTYPE}, {TW_BUF_W, TW_DTYPE}, {TW_BUF_BIAS, TW_ADDED_DTYPE}, {TW_BUF_Z, TW_ADDED_DTYPE},
#ifdef TW_SCALED
        {TW_BUF_SCALE, F32},
#endif
    };
    for (size_t input = 0; input < sizeof inputs / sizeof *inputs; input++) {
        const int buffer = inputs[input][0], dtype = inputs[input][1];
        void *host = malloc(TW_BYTES[buffer]);
        for (size_t i = 0; i < TW_BYTES[buffer] / ELEMENT_BYTES[dtype]; i++) store(host, i, dtype, number(i));
        upload(buffer, host);
        free(host);
    }
}

// ---------------------------------------------------------------------------- what y should be

static size_t place(int nhwc, int n, int c, int h, int w, int channels, int height, int width) {
    return nhwc ? (((size_t)n * height + h) * width + w) * channels + c
                : (((size_t)n * channels + c) * height + h) * width + w;
}

// A right value, and the size of what was added up to it: an error is in proportion to that.
typedef struct { double value, size; } Expected;

typedef char each_activation_has_a_formula[TW_ACT <= 4 ? 1 : -1];

static double activated(double v) {
    if (TW_ACT == 1) return v < 0 ? 0 : v;
    if (TW_ACT == 2) return v < 0 ? v * TW_LOW : v;
    if (TW_ACT == 3) return v / (1 + exp(-v));
    if (TW_ACT == 4) return v < TW_LOW ? TW_LOW : v > TW_HIGH ? TW_HIGH : v;
    return v;
}

// act(alpha * conv + beta * z + bias)
static Expected value_at(int n, int k, int p, int q) {
    const int cg = TW_C / TW_GROUPS, group = k / (TW_K / TW_GROUPS);
    double sum = 0, size = 0;
    for (int c = 0; c < cg; c++)
        for (int r = 0; r < TW_R; r++)
            for (int s = 0; s < TW_S; s++) {
                int h = p * TW_STRIDE_H - TW_PAD_TOP + r * TW_DILATION_H;
                int w = q * TW_STRIDE_W - TW_PAD_LEFT + s * TW_DILATION_W;
                if (h < 0 || h >= TW_H || w < 0 || w >= TW_W) continue;
                int product = number(place(TW_IN_NHWC, n, group * cg + c, h, w, TW_C, TW_H, TW_W)) *
                              number((((size_t)k * cg + c) * TW_R + r) * TW_S + s);
                sum += product;
                size += abs(product);
            }
    Expected v = {TW_ALPHA * sum, fabs(TW_ALPHA) * size};
    double z = TW_HAS_Z ? TW_BETA * number(place(TW_OUT_NHWC, n, k, p, q, TW_K, TW_P, TW_Q)) : 0;
    double bias = TW_HAS_BIAS ? number(k) : 0;
    v.value = activated(v.value + z + bias);
    v.size += fabs(z) + fabs(bias);
    return v;
}

static Expected pooled(int n, int k, int p, int q) {
    if (!TW_POOL) return value_at(n, k, p, q);
    Expected most = {-INFINITY, 0}, mean = {0, 0};
    for (int i = 0; i < TW_POOL_SIZE; i++)
        for (int j = 0; j < TW_POOL_SIZE; j++) {
            int h = p * TW_POOL_STRIDE - TW_POOL_PAD + i, w = q * TW_POOL_STRIDE - TW_POOL_PAD + j;
            if (h < 0 || h >= TW_P || w < 0 || w >= TW_Q) continue;
            Expected v = value_at(n, k, h, w);
            most.value = v.value > most.value ? v.value : most.value;
            most.size = v.size > most.size ? v.size : most.size;
            mean.value += v.value / (TW_POOL_SIZE * TW_POOL_SIZE);
            mean.size += v.size / (TW_POOL_SIZE * TW_POOL_SIZE);
        }
    return TW_POOL == 1 ? most : mean;
}

// The sums of i8 may be requantised: rounded to the nearest even number.
static Expected expected(int n, int k, int p, int q) {
    Expected v = pooled(n, k, p, q);
#ifdef TW_SCALED
    v.value = rint(v.value * number(k));
    v.value = v.value < -128 ? -128 : v.value > 127 ? 127 : v.value;
#endif
    return v;
}

static int is_right(double got, Expected want) {
    double allowed = TW_SLOPE * want.size + TW_UNIT * fabs(want.value) + TW_LEAST;
    if (isinf(got)) return got * want.value > 0 && fabs(want.value) + allowed >= TW_OVERFLOW;
    return fabs(got - want.value) <= allowed;
}

// Compare about a thousand outputs; return how many are wrong.
static int wrong(const void *y) {
    size_t count = (size_t)TW_N * TW_K * TW_Y_P * TW_Y_Q, step = count / 1000 + 1;
    int bad = 0;
    for (size_t i = 0; i < count; i += step) {
        int q = i % TW_Y_Q, p = i / TW_Y_Q % TW_Y_P, k = i / TW_Y_Q / TW_Y_P % TW_K, n = i / TW_Y_Q / TW_Y_P / TW_K;
        Expected want = expected(n, k, p, q);
        double got = load(y, place(TW_OUT_NHWC, n, k, p, q, TW_K, TW_Y_P, TW_Y_Q), TW_OUT_DTYPE);
        if (is_right(got, want)) continue;
        if (!bad++) fprintf(stderr, "y[n=%d k=%d p=%d q=%d] is %g, not %g\n", n, k, p, q, got, want.value);
    }
    return bad;
}
