// Runs the exported kernel through the CUDA driver API, checks some of its outputs, and times it.
//
//   nvcc -o example example.c -lcuda && ./example
//
// Everything it knows of the kernel is in layer.h, of right answers in check.h; the cubins are looked for in the current folder.

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "layer.h"

#define TRY(call) attempt(call, #call)

static void attempt(CUresult result, const char *what) {
    const char *name = "unknown";
    if (result == CUDA_SUCCESS) return;
    cuGetErrorName(result, &name);
    fprintf(stderr, "%s: %s\n", what, name);
    exit(1);
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

#ifdef TW_TENSOR_MAPS
static CUtensorMap encoded(const tw_tensor_map *image, CUdeviceptr address) {
    CUtensorMap map;
    if (image->box[0]) {
        TRY(cuTensorMapEncodeTiled(&map, image->type, 4, (void *)address, image->size, image->pitch, image->box,
                                   image->step, CU_TENSOR_MAP_INTERLEAVE_NONE, image->swizzle,
                                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
        return map;
    }
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
#ifdef TW_TENSOR_MAPS
    CUtensorMap map;
    if (launch->map) {
        map = encoded(launch->map, buffers[launch->argument[0]]);
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

static void upload(int buffer, const void *host) { TRY(cuMemcpyHtoD(buffers[buffer], host, TW_BYTES[buffer])); }

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
    give_inputs(upload);

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
