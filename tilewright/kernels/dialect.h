// The one place where CUDA C++ and OpenCL C differ. A kernel of a CUDA-core family uses only the
// neutral names below and compiles as either language.
//
//   KERNEL(name)            entry point; every parameter is GLOBAL type *RESTRICT
//   GROUP(d) THREAD(d)      block index and thread index within the block, d = 0, 1, 2
//   SHARED_BYTES            define before the include: bytes of shared memory of the block
//   vec                     VECTOR floats (1, 2, 4, 8, 16), one lane's share of output channels
//   offset_t                int, or 64 bits wide when OFFSET64 is 1
//   ASYNC_*                 global-to-shared copies that do not pass through registers where the
//                           device can do that; plain copies elsewhere

#ifndef VECTOR
#define VECTOR 1
#endif

#ifdef __CUDACC__  // ------------------------------------------------------------- CUDA C++

#define KERNEL(name) extern "C" __global__ void LAUNCH_BOUNDS name
#ifdef MAX_THREADS
#define LAUNCH_BOUNDS __launch_bounds__(MAX_THREADS, MIN_BLOCKS)
#else
#define LAUNCH_BOUNDS
#endif
#define GLOBAL
#define SHARED
#define RESTRICT __restrict__
#define INLINE static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")
#define GROUP(d) ((d) == 0 ? blockIdx.x : (d) == 1 ? blockIdx.y : blockIdx.z)
#define THREAD(d) ((d) == 0 ? threadIdx.x : (d) == 1 ? threadIdx.y : threadIdx.z)
#define GROUPS(d) ((d) == 0 ? gridDim.x : (d) == 1 ? gridDim.y : gridDim.z)
#define BARRIER() __syncthreads()
#define SHARED_ARRAY(name) extern __shared__ __align__(16) float name[]

struct __align__(VECTOR * 4 > 16 ? 16 : VECTOR * 4) vec {
    float e[VECTOR];
};
INLINE void vec_zero(vec *a) {
    UNROLL for (int i = 0; i < VECTOR; i++) a->e[i] = 0.0f;
}
INLINE void vec_fma(vec *a, vec w, float x) {  // a += w * x, one rounding
    UNROLL for (int i = 0; i < VECTOR; i++) a->e[i] = fmaf(w.e[i], x, a->e[i]);
}
INLINE vec vec_load(const float *p) { return *(const vec *)p; }    // p aligned to the vector
INLINE void vec_store(float *p, vec v) { *(vec *)p = v; }          // p aligned to the vector
INLINE void vec_unpack(float *p, vec v) {                          // p: private array
    UNROLL for (int i = 0; i < VECTOR; i++) p[i] = v.e[i];
}
INLINE vec vec_pack(const float *p) {                              // p: private array
    vec v;
    UNROLL for (int i = 0; i < VECTOR; i++) v.e[i] = p[i];
    return v;
}
INLINE float atomic_add(float *p, float v) { return atomicAdd(p, v); }

// Copies of 4 or 16 bytes; where `keep` is 0 the destination is filled with zeros.
INLINE void async_copy4(float *to, const float *from, int keep) {
    unsigned shared_to = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_to), "l"(from),
                 "r"(keep ? 4 : 0));
}
INLINE void async_copy16(float *to, const float *from, int keep) {
    unsigned shared_to = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_to), "l"(from),
                 "r"(keep ? 16 : 0));
}
#define ASYNC_COMMIT() asm volatile("cp.async.commit_group;")
#define ASYNC_WAIT(pending) asm volatile("cp.async.wait_group %0;" ::"n"(pending))

#else  // -------------------------------------------------------------------------- OpenCL C

#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT ON
#ifdef MAX_THREADS
#define KERNEL(name) __kernel __attribute__((reqd_work_group_size(MAX_THREADS, 1, 1))) void name
#else
#define KERNEL(name) __kernel void name
#endif
#define GLOBAL __global
#define SHARED __local
#define RESTRICT restrict
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("nounroll")
#define GROUP(d) ((int)get_group_id(d))
#define THREAD(d) ((int)get_local_id(d))
#define GROUPS(d) ((int)get_num_groups(d))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define SHARED_ARRAY(name) __local float name[(SHARED_BYTES) / 4] __attribute__((aligned(64)))

#define TW_JOIN2(a, b) a##b
#define TW_JOIN(a, b) TW_JOIN2(a, b)
#if VECTOR == 1
typedef float vec;
#else
typedef TW_JOIN(float, VECTOR) vec;
#endif
INLINE void vec_zero(vec *a) { *a = (vec)(0.0f); }
INLINE void vec_fma(vec *a, vec w, float x) { *a += w * x; }  // contracts; fma() is a slow call
#if VECTOR == 1
#define vec_load(p) (*(p))
#define vec_store(p, v) (*(p) = (v))
#define vec_unpack(p, v) (*(p) = (v))
#define vec_pack(p) (*(p))
#else
#define vec_load(p) TW_JOIN(vload, VECTOR)(0, p)
#define vec_store(p, v) TW_JOIN(vstore, VECTOR)(v, 0, p)
#define vec_unpack(p, v) TW_JOIN(vstore, VECTOR)(v, 0, p)
#define vec_pack(p) TW_JOIN(vload, VECTOR)(0, p)
#endif
INLINE float atomic_add(volatile __global float *p, float v) {  // no float atomics: swap until it holds
    union { unsigned u; float f; } was, sum;
    do {
        was.f = *p;
        sum.f = was.f + v;
    } while (atomic_cmpxchg((volatile __global unsigned *)p, was.u, sum.u) != was.u);
    return was.f;
}
INLINE void async_copy4(__local float *to, const __global float *from, int keep) {
    *to = keep ? *from : 0.0f;
}
INLINE void async_copy16(__local float *to, const __global float *from, int keep) {
    vstore4(keep ? vload4(0, from) : (float4)(0.0f), 0, to);
}
#define ASYNC_COMMIT()
#define ASYNC_WAIT(pending)

#endif

#if defined(OFFSET64) && OFFSET64
typedef long offset_t;
#else
typedef int offset_t;
#endif
