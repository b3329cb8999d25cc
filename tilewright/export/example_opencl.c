// Builds the exported kernel with OpenCL, runs it, checks some of its outputs, and times it.
//
//   cc -o example example.c -lOpenCL -lm && ./example
//
// That needs the headers and the ICD loader of OpenCL: Debian's opencl-c-headers (CL/cl.h) and ocl-icd-opencl-dev.
// ./example 1 takes the second device that there is. Everything it knows of the kernel is in layer.h, of right
// answers in check.h; the sources are looked for in the current folder.

#define _POSIX_C_SOURCE 200809L  // setenv
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "check.h"
#include "layer.h"

static void attempt(cl_int status, const char *what) {
    if (status == CL_SUCCESS) return;
    fprintf(stderr, "%s: OpenCL's error %d\n", what, status);
    exit(1);
}

#define TRY(call) attempt(call, #call)

static void unreadable(const char *file) {
    perror(file);
    exit(1);
}

static cl_device_id device;
static cl_context context;
static cl_command_queue queue;
static cl_mem buffers[TW_BUFFERS];

static cl_device_id device_at(unsigned wanted) {
    cl_platform_id platforms[16];
    cl_device_id found[64];
    cl_uint count = 0, here;
    if (clGetPlatformIDs(16, platforms, &count) || !count) {
        fprintf(stderr, "no OpenCL platform: install a driver, or set OCL_ICD_VENDORS to the library of one (pyopencl's own: "
                        "pyopencl/.libs/libpocl-*.so)\n");
        exit(1);
    }
    for (cl_uint i = 0; i < count && i < 16; i++) {
        if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, 64, found, &here)) continue;
        if (wanted < here && wanted < 64) return found[wanted];
        wanted -= here;
    }
    fprintf(stderr, "there is no such OpenCL device\n");
    exit(1);
}

static cl_program built(const char *name) {
    char file[256], said[4096] = "";
    cl_int status;
    snprintf(file, sizeof file, "%s.cl", name);
    FILE *stream = fopen(file, "rb");
    if (!stream || fseek(stream, 0, SEEK_END)) unreadable(file);
    size_t size = ftell(stream);
    char *text = malloc(size);
    rewind(stream);
    if (fread(text, 1, size, stream) != size) unreadable(file);
    fclose(stream);
    cl_program program = clCreateProgramWithSource(context, 1, (const char **)&text, &size, &status);
    attempt(status, file);
    free(text);
    status = clBuildProgram(program, 1, &device, "-cl-std=CL1.2 -w", 0, 0);
    if (status) clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof said - 1, said, 0);
    attempt(status, status ? said : file);
    return program;
}

// The kernel of a launch with its arguments; none fills its one buffer with zeros.
static cl_kernel kernel_of(const tw_launch *launch) {
    cl_int status;
    if (!launch->program) return 0;
    cl_kernel kernel = clCreateKernel(built(launch->program), launch->kernel, &status);
    attempt(status, launch->kernel);
    for (int i = 0; i < launch->arguments; i++)
        TRY(clSetKernelArg(kernel, i, sizeof(cl_mem), &buffers[launch->argument[i]]));
    return kernel;
}

static void fill(int buffer, unsigned char byte) {
    TRY(clEnqueueFillBuffer(queue, buffers[buffer], &byte, 1, 0, TW_BYTES[buffer], 0, 0, 0));
}

static void enqueue(const tw_launch *launch, cl_kernel kernel) {
    size_t total[3], block[3];
    if (!kernel) {
        fill(launch->argument[0], 0);
        return;
    }
    for (int i = 0; i < 3; i++) total[i] = launch->grid[i] * (block[i] = launch->block[i]);
    TRY(clEnqueueNDRangeKernel(queue, kernel, 3, 0, total, block, 0, 0, 0));
}

static void upload(int buffer, const void *host) {
    TRY(clEnqueueWriteBuffer(queue, buffers[buffer], CL_TRUE, 0, TW_BYTES[buffer], host, 0, 0, 0));
}

static double now_us(void) {
    struct timespec time;
    timespec_get(&time, TIME_UTC);
    return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

int main(int count, char **words) {
    enum { RUNS = 20 };
#ifndef _WIN32
    setenv("POCL_WORK_GROUP_METHOD", "loops", 0);  // see layer.h
#endif
    cl_kernel kernels[TW_RUN_LAUNCHES];
    cl_int status;
    device = device_at(count > 1 ? atoi(words[1]) : 0);
    context = clCreateContext(0, 1, &device, 0, 0, &status);
    attempt(status, "clCreateContext");
    queue = clCreateCommandQueue(context, device, 0, &status);
    attempt(status, "clCreateCommandQueue");
    for (int i = 0; i < TW_BUFFERS; i++) {
        buffers[i] = clCreateBuffer(context, CL_MEM_READ_WRITE, TW_BYTES[i], 0, &status);
        attempt(status, "clCreateBuffer");
        fill(i, TW_ZEROED[i] ? 0 : 0xff);
    }
    give_inputs(upload);

    for (int i = 0; i < TW_PACK_LAUNCHES; i++) enqueue(&TW_PACK[i], kernel_of(&TW_PACK[i]));
    for (int i = 0; i < TW_RUN_LAUNCHES; i++) kernels[i] = kernel_of(&TW_RUN[i]);
    for (int i = 0; i < TW_RUN_LAUNCHES; i++) enqueue(&TW_RUN[i], kernels[i]);
    void *y = malloc(TW_BYTES[TW_BUF_Y]);
    TRY(clEnqueueReadBuffer(queue, buffers[TW_BUF_Y], CL_TRUE, 0, TW_BYTES[TW_BUF_Y], y, 0, 0, 0));
    int bad = wrong(y);

    double start = now_us();
    for (int run = 0; run < RUNS; run++)
        for (int i = 0; i < TW_RUN_LAUNCHES; i++) enqueue(&TW_RUN[i], kernels[i]);
    TRY(clFinish(queue));
    printf("%s: %s, %.2f us a run, warm\n", TW_PROBLEM, bad ? "WRONG" : "right", (now_us() - start) / RUNS);
    return bad != 0;
}
