// Runs the exported kernel through the CUDA driver API, checks some of its outputs, and times it.
//
//   nvcc -o example example.c -lcuda && ./example
//
// Everything it knows of the kernel is in layer.h; the cubins are looked for in the current folder.

#include <cuda.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer.h"

#define TRY(call) attempt(call, #call)

static void attempt(CUresult result, const char *what) {
    const char *name = "unknown";
    if (result == CUDA_SUCCESS) return;
    cuGetErrorName(result, &name);
    fprintf(stderr, "%s: %s\n", what, name);
    exit(1);
}

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

// ---------------------------------------------------------------------------- what y should be

static size_t place(int nhwc, int n, int c, int h, int w, int channels, int height, int width) {
    return nhwc ? (((size_t)n * height + h) * width + w) * channels + c
                : (((size_t)n * channels + c) * height + h) * width + w;
}

// act(alpha * conv + beta * z + bias)
static double value_at(int n, int k, int p, int q) {
    const int cg = TW_C / TW_GROUPS, group = k / (TW_K / TW_GROUPS);
    double sum = 0;
    for (int c = 0; c < cg; c++)
        for (int r = 0; r < TW_R; r++)
            for (int s = 0; s < TW_S; s++) {
                int h = p * TW_STRIDE_H - TW_PAD_TOP + r * TW_DILATION_H;
                int w = q * TW_STRIDE_W - TW_PAD_LEFT + s * TW_DILATION_W;
                if (h < 0 || h >= TW_H || w < 0 || w >= TW_W) continue;
                sum += number(place(TW_IN_NHWC, n, group * cg + c, h, w, TW_C, TW_H, TW_W)) *
                       number((((size_t)k * cg + c) * TW_R + r) * TW_S + s);
            }
    double v = TW_ALPHA * sum;
    if (TW_HAS_Z) v += TW_BETA * number(place(TW_OUT_NHWC, n, k, p, q, TW_K, TW_P, TW_Q));
    if (TW_HAS_BIAS) v += number(k);
    if (TW_ACT == 1) return v < 0 ? 0 : v;
    if (TW_ACT == 2) return v < 0 ? v * TW_LOW : v;
    if (TW_ACT == 3) return v / (1 + exp(-v));
    if (TW_ACT == 4) return v < TW_LOW ? TW_LOW : v > TW_HIGH ? TW_HIGH : v;
    return v;
}

static double pooled(int n, int k, int p, int q) {
    if (!TW_POOL) return value_at(n, k, p, q);
    double best = -INFINITY, sum = 0;
    for (int i = 0; i < TW_POOL_SIZE; i++)
        for (int j = 0; j < TW_POOL_SIZE; j++) {
            int h = p * TW_POOL_STRIDE - TW_POOL_PAD + i, w = q * TW_POOL_STRIDE - TW_POOL_PAD + j;
            if (h < 0 || h >= TW_P || w < 0 || w >= TW_Q) continue;
            double v = value_at(n, k, h, w);
            best = v > best ? v : best;
            sum += v;
        }
    return TW_POOL == 1 ? best : sum / (TW_POOL_SIZE * TW_POOL_SIZE);
}

// The sums of i8 may be requantised: rounded to the nearest even number.
static double expected(int n, int k, int p, int q) {
    double v = pooled(n, k, p, q);
#ifdef TW_SCALED
    v = rint(v * number(k));
    v = v < -128 ? -128 : v > 127 ? 127 : v;
#endif
    return v;
}

// Compare about a thousand outputs; return how many are wrong.
static int wrong(const void *y) {
    // What rounding to the dtype allows; a Winograd kernel is not exact on whole numbers either.
    const double allowed[] = {1e-12, 1e-4, 1e-2, 5e-2, 0, 0, 0};
    size_t count = (size_t)TW_N * TW_K * TW_Y_P * TW_Y_Q, step = count / 1000 + 1;
    int bad = 0;
    for (size_t i = 0; i < count; i += step) {
        int q = i % TW_Y_Q, p = i / TW_Y_Q % TW_Y_P, k = i / TW_Y_Q / TW_Y_P % TW_K, n = i / TW_Y_Q / TW_Y_P / TW_K;
        double want = expected(n, k, p, q);
        double got = load(y, place(TW_OUT_NHWC, n, k, p, q, TW_K, TW_Y_P, TW_Y_Q), TW_OUT_DTYPE);
        if (fabs(got - want) <= allowed[TW_OUT_DTYPE] * (1 + fabs(want))) continue;
        if (!bad++) fprintf(stderr, "y[n=%d k=%d p=%d q=%d] is %g, not %g\n", n, k, p, q, got, want);
    }
    return bad;
}

// ------------------------------------------------------------------------------------ running

static CUdeviceptr buffers[TW_BUFFERS];

// Two names are no kernels: zero is a memset, constant a copy to constant memory.
static int is(const tw_launch *launch, const char *name) { return !strcmp(launch->kernel, name); }

// A program is loaded once: its kernels read the constant memory of their own module.
static CUmodule module_of(const char *program) {
    static struct { const char *program; CUmodule module; } known[TW_PACK_LAUNCHES + TW_RUN_LAUNCHES];
    char file[256];
    int i = 0;
    while (known[i].program && strcmp(known[i].program, program)) i++;
    if (known[i].program) return known[i].module;
    snprintf(file, sizeof file, "%s.cubin", program);
    TRY(cuModuleLoad(&known[i].module, file));
    known[i].program = program;
    return known[i].module;
}

static CUfunction function(const tw_launch *launch) {
    CUfunction found;
    if (is(launch, "zero") || is(launch, "constant")) return 0;
    TRY(cuModuleGetFunction(&found, module_of(launch->program), launch->kernel));
    TRY(cuFuncSetAttribute(found, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, launch->shared_bytes));
    return found;
}

#ifdef TW_IMAGES
static CUtensorMap encoded(const tw_image *image, CUdeviceptr address) {
    CUtensorMap map;
    TRY(cuTensorMapEncodeIm2col(&map, image->type, 4, (void *)address, image->size, image->pitch, image->lower,
                                image->upper, image->channels, image->pixels, image->step,
                                CU_TENSOR_MAP_INTERLEAVE_NONE, image->swizzle,
                                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    return map;
}
#endif

static void enqueue(const tw_launch *launch, CUfunction kernel) {
    void *arguments[16];
    for (int i = 0; i < launch->arguments; i++) arguments[i] = &buffers[launch->argument[i]];
    if (is(launch, "zero")) {
        TRY(cuMemsetD8Async(buffers[launch->argument[0]], 0, TW_BYTES[launch->argument[0]], 0));
        return;
    }
    if (is(launch, "constant")) {
        CUdeviceptr filter;
        size_t bytes;
        TRY(cuModuleGetGlobal(&filter, &bytes, module_of(launch->program), "constant_filter"));
        TRY(cuMemcpyDtoDAsync(filter, buffers[launch->argument[0]], bytes, 0));
        return;
    }
#ifdef TW_IMAGES
    CUtensorMap map;
    if (launch->image) {
        map = encoded(launch->image, buffers[launch->argument[0]]);
        arguments[0] = &map;
    }
#endif
    CUlaunchAttribute attributes[2];
    CUlaunchConfig config = {
        .gridDimX = launch->grid[0], .gridDimY = launch->grid[1], .gridDimZ = launch->grid[2],
        .blockDimX = launch->block[0], .blockDimY = launch->block[1], .blockDimZ = launch->block[2],
        .sharedMemBytes = launch->shared_bytes, .attrs = attributes,
    };
    if (launch->cluster > 1) {
        CUlaunchAttribute *one = &attributes[config.numAttrs++];
        one->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
        one->value.clusterDim.x = launch->cluster;
        one->value.clusterDim.y = one->value.clusterDim.z = 1;
    }
    if (launch->chained) {
        CUlaunchAttribute *one = &attributes[config.numAttrs++];
        one->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        one->value.programmaticStreamSerializationAllowed = 1;
    }
    TRY(cuLaunchKernelEx(&config, kernel, arguments, 0));
}

static void give(int buffer, int dtype) {
    void *host = malloc(TW_BYTES[buffer]);
    size_t count = TW_BYTES[buffer] / ELEMENT_BYTES[dtype];
    for (size_t i = 0; i < count; i++) store(host, i, dtype, number(i));
    TRY(cuMemcpyHtoD(buffers[buffer], host, TW_BYTES[buffer]));
    free(host);
}

int main(void) {
    enum { RUNS = 20 };
    CUdevice device;
    CUcontext context;
    CUfunction kernels[TW_RUN_LAUNCHES];
    CUevent start, end;
    float ms;
    TRY(cuInit(0));
    TRY(cuDeviceGet(&device, 0));
    TRY(cuDevicePrimaryCtxRetain(&context, device));
    TRY(cuCtxSetCurrent(context));
    for (int i = 0; i < TW_BUFFERS; i++) {
        TRY(cuMemAlloc(&buffers[i], TW_BYTES[i]));
        TRY(cuMemsetD8(buffers[i], TW_ZEROED[i] ? 0 : 0xff, TW_BYTES[i]));
    }
    give(TW_BUF_X, TW_DTYPE);
    give(TW_BUF_W, TW_DTYPE);
    give(TW_BUF_BIAS, TW_ADDED_DTYPE);
    give(TW_BUF_Z, TW_ADDED_DTYPE);
#ifdef TW_SCALED
    give(TW_BUF_SCALE, F32);
#endif

    for (int i = 0; i < TW_PACK_LAUNCHES; i++) enqueue(&TW_PACK[i], function(&TW_PACK[i]));
    for (int i = 0; i < TW_RUN_LAUNCHES; i++) kernels[i] = function(&TW_RUN[i]);
    for (int i = 0; i < TW_RUN_LAUNCHES; i++) enqueue(&TW_RUN[i], kernels[i]);
    void *y = malloc(TW_BYTES[TW_BUF_Y]);
    TRY(cuCtxSynchronize());
    TRY(cuMemcpyDtoH(y, buffers[TW_BUF_Y], TW_BYTES[TW_BUF_Y]));
    int bad = wrong(y);

    TRY(cuEventCreate(&start, 0));
    TRY(cuEventCreate(&end, 0));
    TRY(cuEventRecord(start, 0));
    for (int run = 0; run < RUNS; run++)
        for (int i = 0; i < TW_RUN_LAUNCHES; i++) enqueue(&TW_RUN[i], kernels[i]);
    TRY(cuEventRecord(end, 0));
    TRY(cuEventSynchronize(end));
    TRY(cuEventElapsedTime(&ms, start, end));
    printf("%s: %s, %.2f us a run, warm\n", TW_PROBLEM, bad ? "WRONG" : "right", 1000 * ms / RUNS);
    return bad != 0;
}
