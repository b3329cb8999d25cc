// The driver functions that the exported example calls, on host memory: launches are printed and compute
// nothing; what is copied back of the last buffer asked for comes from the file named by FAKE_Y.

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct CUfunc_st { char name[128]; };

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
    return *module = (CUmodule)strdup(file), CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    *function = malloc(sizeof(struct CUfunc_st));
    snprintf((*function)->name, sizeof (*function)->name, "%s %s", (char *)module, name);
    return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction f, CUfunction_attribute what, int value) {
    return f && what == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES && value >= 0 ? CUDA_SUCCESS : 1;
}

CUresult cuMemAlloc(CUdeviceptr *address, size_t bytes) {
    return *address = (CUdeviceptr)aligned_alloc(256, (bytes + 255) / 256 * 256), CUDA_SUCCESS;
}
CUresult cuMemsetD8(CUdeviceptr at, unsigned char byte, size_t bytes) {
    return memset((void *)at, byte, bytes), CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr at, unsigned char byte, size_t bytes, CUstream stream) {
    printf("zero %zu\n", bytes);
    return stream ? CUDA_ERROR_INVALID_VALUE : cuMemsetD8(at, byte, bytes);
}
CUresult cuMemcpyHtoD(CUdeviceptr to, const void *from, size_t bytes) {
    return memcpy((void *)to, from, bytes), CUDA_SUCCESS;
}
CUresult cuMemcpyDtoH(void *to, CUdeviceptr from, size_t bytes) {
    FILE *y = fopen(getenv("FAKE_Y"), "rb");
    if (!y || !from || fread(to, 1, bytes, y) != bytes) return CUDA_ERROR_INVALID_VALUE;
    fclose(y);
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **arguments, void **extra) {
    unsigned cluster = 1, chained = 0;
    for (unsigned i = 0; i < c->numAttrs; i++) {
        if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) cluster = c->attrs[i].value.clusterDim.x;
        else chained = c->attrs[i].value.programmaticStreamSerializationAllowed;
    }
    printf("%s %u %u %u %u %u\n", f->name, c->gridDimX, c->blockDimX, c->sharedMemBytes, cluster, chained);
    return arguments && !extra ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuEventCreate(CUevent *event, unsigned flags) { return *event = 0, (CUresult)flags; }
CUresult cuEventRecord(CUevent event, CUstream stream) { return event || stream ? 1 : CUDA_SUCCESS; }
CUresult cuEventSynchronize(CUevent event) { return event ? 1 : CUDA_SUCCESS; }
CUresult cuEventElapsedTime(float *ms, CUevent a, CUevent b) { return *ms = 0.2f, a == b ? CUDA_SUCCESS : 1; }
