// The driver functions that the exported example calls, on host memory: launches are printed and compute
// nothing; what is copied back of the last buffer asked for comes from the file named by FAKE_Y.
// A tensor map is printed when it is encoded; so are the parameters of a launch that has one, as many as
// FAKE_PARAMETERS says. A module has constant memory of FAKE_CONSTANT bytes; once that was filled, its launches
// say so. As libcuda.so.1 it serves the launches of cuda.bindings (cuGetProcAddress), less the
// function that FAKE_MISSING names.

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUfunc_st { char name[120]; CUmodule module; };
struct CUmod_st { char file[64], *constant; int filled; };

static CUdeviceptr allocated[32];
static CUmodule loaded[8];
static int allocations, maps, modules;
static const cuuint64_t MAP_MARK = 0xf00dfacecafe0001u;  // how the fake's tensor maps begin; no address does

CUresult cuInit(unsigned flags) { return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int number) { return *device = number, CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice d) { return *context = 0, (CUresult)d; }
CUresult cuCtxSetCurrent(CUcontext context) { return context ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
CUresult cuCtxSynchronize(void) { return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult result, const char **name) { return *name = "FAKE", result; }

CUresult cuModuleLoad(CUmodule *module, const char *file) {
    FILE *cubin = fopen(file, "rb");
    if (!cubin) return CUDA_ERROR_FILE_NOT_FOUND;
    fclose(cubin);
    if (modules == 8) return CUDA_ERROR_OUT_OF_MEMORY;
    *module = loaded[modules++] = calloc(1, sizeof(struct CUmod_st));
    snprintf((*module)->file, sizeof (*module)->file, "%s", file);
    return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    *function = malloc(sizeof(struct CUfunc_st));
    (*function)->module = module;
    snprintf((*function)->name, sizeof (*function)->name, "%s %s", module->file, name);
    return CUDA_SUCCESS;
}
CUresult cuModuleGetGlobal(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
    const char *size = getenv("FAKE_CONSTANT");
    if (!size || strcmp(name, "constant_filter")) return CUDA_ERROR_NOT_FOUND;
    if (!module->constant) module->constant = malloc(atoi(size));
    return *address = (CUdeviceptr)module->constant, *bytes = atoi(size), CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute what, int value) {
    return f && what == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 ? CUDA_SUCCESS : 1;
}
CUresult cuKernelSetAttribute(CUfunction_attribute what, int value, CUkernel kernel, CUdevice device) {
    return device ? CUDA_ERROR_INVALID_DEVICE : cuFuncSetAttribute((CUfunction)kernel, what, value);
}

CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes) {
    if (allocations == 32) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = allocated[allocations++] = (CUdeviceptr)aligned_alloc(256, (bytes + 255) / 256 * 256);
    return CUDA_SUCCESS;
}
CUresult cuMemsetD8(CUdeviceptr at, unsigned char byte, size_t bytes) {
    return memset((void *)at, byte, bytes), CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char byte, size_t bytes, CUstream stream) {
    printf("zero %zu\n", bytes);
    return stream ? CUDA_ERROR_INVALID_VALUE : cuMemsetD8(at, byte, bytes);
}
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
    FILE *y = fopen(getenv("FAKE_Y"), "rb");
    if (!y || !from || fread(to, 1, bytes, y) != bytes) return CUDA_ERROR_INVALID_VALUE;
    fclose(y);
    return CUDA_SUCCESS;
}

static void print_address(CUdeviceptr address) {
    int i = 0;
    while (i < allocations && allocated[i] != address) i++;
    if (i < allocations) printf(" buffer%d", i);
    else printf(" %#llx", address);
}

CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
    printf("given");
    print_address(to);
    printf(" %zu\n", bytes);
    return memcpy((void *)to, from, bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    for (int i = 0; i < modules; i++) {
        if ((CUdeviceptr)loaded[i]->constant != to) continue;
        loaded[i]->filled = 1;
        printf("%s constant %zu of", loaded[i]->file, bytes);
        print_address(from);
        printf("\n");
    }
    return stream ? CUDA_ERROR_INVALID_VALUE : (memcpy((void *)to, (void *)from, bytes), CUDA_SUCCESS);
}

// Mark a map, and print what maps of both modes are told; refuse what the driver would.
static int begin_map(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                     const cuuint64_t *size, const cuuint64_t *pitch) {
    if ((size_t)map % 64 || (size_t)address % 16 || rank != 4) return 0;
    memset(map, 0, sizeof *map);
    map->opaque[0] = MAP_MARK;
    map->opaque[15] = ++maps;
    printf("map %d of", maps);
    print_address((CUdeviceptr)address);
    printf(": type %d, size %lu %lu %lu %lu", type, size[0], size[1], size[2], size[3]);
    printf(", pitch %lu %lu %lu", pitch[0], pitch[1], pitch[2]);
    return 1;
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                 const cuuint64_t *size, const cuuint64_t *pitch, const int *lower,
                                 const int *upper, cuuint32_t channels, cuuint32_t pixels,
                                 const cuuint32_t *step, CUtensorMapInterleave interleave,
                                 CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                 CUtensorMapFloatOOBfill fill) {
    if (!begin_map(map, type, rank, address, size, pitch)) return CUDA_ERROR_INVALID_VALUE;
    printf(", box %d %d to %d %d", lower[0], lower[1], upper[0], upper[1]);
    printf(", step %u %u %u %u, copies %u %u", step[0], step[1], step[2], step[3], channels, pixels);
    printf(", modes %d %d %d %d\n", interleave, swizzle, promotion, fill);
    return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                const cuuint64_t *size, const cuuint64_t *pitch, const cuuint32_t *box,
                                const cuuint32_t *step, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
    if (!begin_map(map, type, rank, address, size, pitch)) return CUDA_ERROR_INVALID_VALUE;
    printf(", copies %u %u %u %u, step %u %u %u %u", box[0], box[1], box[2], box[3], step[0], step[1], step[2], step[3]);
    printf(", modes %d %d %d %d\n", interleave, swizzle, promotion, fill);
    return CUDA_SUCCESS;
}

// Print what a launch with a tensor map was given; one that is not aligned is refused.
static CUresult print_mapped(const CUlaunchConfig *c, void **arguments) {
    const cuuint64_t *map = arguments[0];
    const char *count = getenv("FAKE_PARAMETERS");
    if ((size_t)map % 64) return CUDA_ERROR_MISALIGNED_ADDRESS;
    printf("  map%lu", map[15]);
    for (int i = 1; count && i < atoi(count); i++) print_address(*(CUdeviceptr *)arguments[i]);
    printf(", grid %u %u %u", c->gridDimX, c->gridDimY, c->gridDimZ);
    printf(", block %u %u %u", c->blockDimX, c->blockDimY, c->blockDimZ);
    printf(", stream %zu\n", (size_t)c->hStream);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **arguments, void **extra) {
    unsigned cluster = 1, chained = 0;
    for (unsigned i = 0; i < c->numAttrs; i++) {
        if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) cluster = c->attrs[i].value.clusterDim.x;
        else chained = c->attrs[i].value.programmaticStreamSerializationAllowed;
    }
    printf("%s %u %u %u %u %u", f->name, c->gridDimX, c->blockDimX, c->sharedMemBytes, cluster, chained);
    printf("%s\n", f->module && f->module->filled ? " filled" : "");
    if (!arguments || extra) return CUDA_ERROR_INVALID_VALUE;
    return *(cuuint64_t *)arguments[0] == MAP_MARK ? print_mapped(c, arguments) : CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) { return *event = 0, (CUresult)flags; }
CUresult cuEventRecord(CUevent event, CUstream stream) { return event || stream ? 1 : CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent event) { return event ? 1 : CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) { return *ms = 0.2f, a == b ? CUDA_SUCCESS : 1; }

CUresult cuGetProcAddress(const char *name, void **found, int version, cuuint64_t flags,
                          CUdriverProcAddressQueryResult *how) {
    static const struct { const char *name; void *address; } known[] = {
        {"cuGetProcAddress", (void *)cuGetProcAddress}, {"cuDeviceGet", (void *)cuDeviceGet},
        {"cuKernelSetAttribute", (void *)cuKernelSetAttribute},
        {"cuLaunchKernelEx", (void *)cuLaunchKernelEx},
        {"cuTensorMapEncodeIm2col", (void *)cuTensorMapEncodeIm2col},
        {"cuTensorMapEncodeTiled", (void *)cuTensorMapEncodeTiled},
    };
    const char *missing = getenv("FAKE_MISSING");
    (void)version, (void)flags;
    *found = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i].name) && strcmp(name, missing ? missing : "")) *found = known[i].address;
    if (how) *how = *found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}
