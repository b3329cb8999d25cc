// Where CUDA C++ and OpenCL C differ; for tensor cores also tensor.h and hopper.h, and a few kernels that ask for
// __CUDACC__. A kernel of a CUDA-core family uses only the neutral names below and compiles as either language.
//
//   KERNEL(name)            entry point; every parameter is GLOBAL type *RESTRICT
//   BOUNDED_KERNEL(name, threads, blocks)
//                           the same, always launched with that many threads a block; a unit must
//                           have registers for that many blocks at once
//   GROUP(d) THREAD(d)      block index and thread index within the block, d = 0, 1, 2
//   SHARED_BYTES            define before the include: bytes of shared memory of the block
//   acc_t                   what sums are made of, and the words that are multiplied: set by DTYPE, see types.h
//   mul_add(w, x, sum)      sum + w x, rounded once; for i8 four products of words of four (dot4)
//   vec                     VECTOR acc_t (1, 2, 4, 8, 16), one lane's share of output channels
//   load_run store_run      1, 2, 4, … neighbours in memory to a private array and back, aligned to them all
//   offset_t                int, or 64 bits wide when OFFSET64 is 1
//   float_bfloat            an f32 rounded to a bf16, by its bits
//   HOT                     a function for the hot part of a CPU kernel, see below; INLINE on a GPU
//   half_float float_half   an f16 by its bits, and back; bits_float, float_bits: the same for f32;
//                           bits_double: an f64 by its bits, as a signed number
//   BARRIER BARRIER_ALL     of the block: what its threads did to shared memory before is done; and to global memory
//   vec_sum_lanes           the sum over the lanes of a warp that are so far apart: CUDA alone has it
//   atomic_most             the largest of an int in shared memory and all threads' v; by whole warps
//   dot4 EXP                four products of i8, added to a sum; the exponential
//   CONSTANT_FILTER(count)  at file scope: room in constant memory for the packed filter w, which a launch named
//                           ``constant`` fills; FILTER[i] is its element, CONSTANT acc_t *w the parameter
//   CHAIN_NEXT CHAIN_WAIT   in a kernel of several launches: let the next one's blocks take their places
//                           early; wait until the one before is done (Launch.chained). CHAIN: both
//   ASYNC_* async_copy_*    global-to-shared copies of a word or four that do not pass through registers
//                           where the device can do that (sm_80 and later); plain copies elsewhere

#ifndef VECTOR
#define VECTOR 1
#endif

#ifndef DTYPE  // as in types.h; f32
#define DTYPE 1
#endif
#if DTYPE == 0
#define ACC double
#define ACC_BYTES 8
#else
#define ACC_BYTES 4
#if DTYPE == 4
#define ACC int
#else
#define ACC float
#endif
#endif
typedef ACC acc_t;

#define TW_JOIN2(a, b) a##b
#define TW_JOIN(a, b) TW_JOIN2(a, b)
#define PRAGMA(text) _Pragma(#text)
#define UNROLL_BY(count) PRAGMA(unroll count)

#ifdef __CUDACC__  // ------------------------------------------------------------- CUDA C++

#define KERNEL(name) extern "C" __global__ void name
#define BOUNDED_KERNEL(name, threads, blocks) \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name
#define GLOBAL
#define SHARED
#define RESTRICT __restrict__
#define INLINE static __device__ __forceinline__
#define HOT INLINE
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")
#define GROUP(d) ((d) == 0 ? blockIdx.x : (d) == 1 ? blockIdx.y : blockIdx.z)
#define THREAD(d) ((d) == 0 ? threadIdx.x : (d) == 1 ? threadIdx.y : threadIdx.z)
#define GROUPS(d) ((d) == 0 ? gridDim.x : (d) == 1 ? gridDim.y : gridDim.z)
#define BARRIER() __syncthreads()
#define BARRIER_ALL() __syncthreads()
// What a kernel declares beside it must not shift it: a copy of 16 bytes whose half of a sector of 32 bytes lands in
// another half of shared memory's fetches all of the sector, and the copy engine likes whole lines of 128 bytes.
#define SHARED_ARRAY(name) extern __shared__ __align__(128) acc_t name[]
#define CONSTANT const
#define CONSTANT_FILTER(count) extern "C" { __constant__ __align__(16) acc_t constant_filter[count]; }
#define FILTER constant_filter

INLINE int dot4(int a, int b, int sum) {  // sum + a . b, four i8 each
    asm("dp4a.s32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
    return sum;
}
INLINE acc_t mul_add(acc_t w, acc_t x, acc_t sum) {
#if DTYPE == 4
    return dot4(w, x, sum);
#else
    return fma(w, x, sum);
#endif
}

template <int count, class type> struct __align__(sizeof(type) * count > 16 ? 16 : sizeof(type) * count) Run {
    type e[count];
};
template <int count, class type> INLINE void load_run_of(type *to, const type *from) {
    Run<count, type> v = *(const Run<count, type> *)from;
    UNROLL for (int i = 0; i < count; i++) to[i] = v.e[i];
}
template <int count, class type> INLINE void store_run_of(type *to, const type *from) {
    Run<count, type> v;
    UNROLL for (int i = 0; i < count; i++) v.e[i] = from[i];
    *(Run<count, type> *)to = v;
}
INLINE void load4(float *to, const float *from) {  // the compiler orders these better than those of a Run
    float4 v = *(const float4 *)from;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
}
INLINE void store4(float *to, const float *from) { *(float4 *)to = make_float4(from[0], from[1], from[2], from[3]); }
template <class type> INLINE void load4(type *to, const type *from) { load_run_of<4>(to, from); }
template <class type> INLINE void store4(type *to, const type *from) { store_run_of<4>(to, from); }
#define load_run(count, to, from) load_run_of<count>(to, from)
#define store_run(count, to, from) store_run_of<count>(to, from)

typedef Run<VECTOR, acc_t> vec;
INLINE void vec_zero(vec *a) {
    UNROLL for (int i = 0; i < VECTOR; i++) a->e[i] = 0;
}
INLINE void vec_fma(vec *a, vec w, acc_t x) {  // a += w * x, one rounding
    UNROLL for (int i = 0; i < VECTOR; i++) a->e[i] = mul_add(w.e[i], x, a->e[i]);
}
INLINE void vec_mul_add(vec *a, vec w, vec x) {
    UNROLL for (int i = 0; i < VECTOR; i++) a->e[i] = mul_add(w.e[i], x.e[i], a->e[i]);
}
INLINE void vec_fma_turn(int turn, vec *a, vec w, acc_t x) {  // every other turn backwards: the
    UNROLL for (int i = 0; i < VECTOR; i++) {                 // element at the turn stays in the
        const int j = turn & 1 ? VECTOR - 1 - i : i;          // operand cache (1% on an H100)
        a->e[j] = mul_add(w.e[j], x, a->e[j]);
    }
}
INLINE vec vec_load(const acc_t *p) { return *(const vec *)p; }    // p aligned to the vector
INLINE void vec_store(acc_t *p, vec v) { *(vec *)p = v; }          // p aligned to the vector
INLINE void vec_unpack(acc_t *p, vec v) {                          // p: private array
    UNROLL for (int i = 0; i < VECTOR; i++) p[i] = v.e[i];
}
INLINE vec vec_pack(const acc_t *p) {                              // p: private array
    vec v;
    UNROLL for (int i = 0; i < VECTOR; i++) v.e[i] = p[i];
    return v;
}
INLINE vec vec_load_shared(const acc_t *p) { return *(const vec *)p; }
INLINE void load_once16(unsigned *to, const void *from) {          // 16 bytes that are read only once
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "l"(from));
}
INLINE void vec_sum_lanes(vec *a, int distance) {  // sum over the lanes `distance` apart
    UNROLL for (int i = 0; i < VECTOR; i++)
        for (int d = distance; d < 32; d *= 2) a->e[i] += __shfl_xor_sync(0xffffffffu, a->e[i], d);
}
INLINE acc_t atomic_add(acc_t *p, acc_t v) { return atomicAdd(p, v); }
INLINE float bits_float(unsigned bits) { return __uint_as_float(bits); }
INLINE unsigned float_bits(float v) { return __float_as_uint(v); }
#define bits_double(bits) __longlong_as_double(bits)
INLINE float half_float(unsigned short half) {  // f16, by its bits
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(half));
    return v;
}
INLINE unsigned short float_half(float v) {
    unsigned short half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(v));
    return half;
}
#define EXP(v) exp(v)  // that of f32 for an f32
INLINE unsigned atomic_count(unsigned *p) { return atomicAdd(p, 1u); }
INLINE void atomic_most(int *p, int v) {
#if __CUDA_ARCH__ >= 800
    v = __reduce_max_sync(0xffffffffu, v);
    if (threadIdx.x % 32) return;
#endif
    atomicMax(p, v);
}
INLINE acc_t load_fresh(const acc_t *p) { return __ldcg(p); }      // what another block has written
template <int count, class type> INLINE void load_fresh_run_of(type *to, const type *from) {
    Run<count, type> v;
    if (sizeof(v) % 16 == 0)
        UNROLL for (int i = 0; i < (int)sizeof(v) / 16; i++) ((int4 *)&v)[i] = __ldcg((const int4 *)from + i);
    else if (sizeof(v) == 8) *(int2 *)&v = __ldcg((const int2 *)from);
    else UNROLL for (int i = 0; i < count; i++) v.e[i] = __ldcg(from + i);
    UNROLL for (int i = 0; i < count; i++) to[i] = v.e[i];
}
#define load_fresh_run(count, to, from) load_fresh_run_of<count>(to, from)
INLINE void atomic_turn(unsigned *p, unsigned most) {              // one more; behind `most` comes 0
    asm volatile("red.relaxed.gpu.global.inc.u32 [%0], %1;" ::"l"(p), "r"(most) : "memory");
}
INLINE unsigned load_acquire(const unsigned *p) {                  // and all that it wrote before
    unsigned v;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
INLINE void vec_add_fresh(vec *a, const acc_t *p) {
    acc_t more[VECTOR];
    load_fresh_run(VECTOR, more, p);
    UNROLL for (int i = 0; i < VECTOR; i++) a->e[i] += more[i];
}
#define FENCE() __threadfence()
#if __CUDA_ARCH__ >= 800
#define FLOAT_BFLOAT
INLINE unsigned short float_bfloat(float v) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(v));
    return bits;
}
#endif
#if __CUDA_ARCH__ >= 900
#define CHAIN_NEXT() asm volatile("griddepcontrol.launch_dependents;" ::: "memory")
#define CHAIN_WAIT() asm volatile("griddepcontrol.wait;" ::: "memory")
#else
#define CHAIN_NEXT()
#define CHAIN_WAIT()
#endif
#define SHARED_FLAG(name) __shared__ int name##_store; int *name = &name##_store

#if defined(CLUSTER) && CLUSTER > 1
INLINE acc_t cluster_load(const acc_t *p, int rank) {  // p: this block's address of it
    unsigned here = (unsigned)__cvta_generic_to_shared(p), there;
    acc_t v;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
#if DTYPE == 0
    asm volatile("ld.shared::cluster.f64 %0, [%1];" : "=d"(v) : "r"(there));
#elif DTYPE == 4
    asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(v) : "r"(there));
#else
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(there));
#endif
    return v;
}
#define CLUSTER_BARRIER()                                  \
    asm volatile("barrier.cluster.arrive.release.aligned;\n" \
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory")
#else
INLINE acc_t cluster_load(const acc_t *p, int rank) { return *p; }
#define CLUSTER_BARRIER() BARRIER()
#endif

// Copies of one word, or of two or four that are aligned to them all; where `keep` is 0, zeros are put there.
#if __CUDA_ARCH__ >= 800
INLINE void async_copy1(acc_t *to, const acc_t *from, int keep) {
    unsigned shared_to = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_to), "l"(from), "n"(ACC_BYTES),
                 "r"(keep ? ACC_BYTES : 0));
}
INLINE void async_copy2(acc_t *to, const acc_t *from, int keep) {
    unsigned shared_to = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_to), "l"(from), "n"(2 * ACC_BYTES),
                 "r"(keep ? 2 * ACC_BYTES : 0));
}
INLINE void async_copy4(acc_t *to, const acc_t *from, int keep) {
    unsigned shared_to = (unsigned)__cvta_generic_to_shared(to);
    UNROLL for (int i = 0; i < 4 * ACC_BYTES; i += 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_to + i),
                     "l"((const char *)from + i), "r"(keep ? 16 : 0));
}
#define ASYNC_COMMIT() asm volatile("cp.async.commit_group;")
#define ASYNC_WAIT(pending) asm volatile("cp.async.wait_group %0;" ::"n"(pending))
#else  // through registers: done when the thread goes on, and seen by others behind the barrier that follows a wait
template <int count> INLINE void copy_now(acc_t *to, const acc_t *from, int keep) {
    Run<count, acc_t> v = {};
    if (keep) v = *(const Run<count, acc_t> *)from;
    *(Run<count, acc_t> *)to = v;
}
INLINE void async_copy1(acc_t *to, const acc_t *from, int keep) { copy_now<1>(to, from, keep); }
INLINE void async_copy2(acc_t *to, const acc_t *from, int keep) { copy_now<2>(to, from, keep); }
INLINE void async_copy4(acc_t *to, const acc_t *from, int keep) { copy_now<4>(to, from, keep); }
#define ASYNC_COMMIT()
#define ASYNC_WAIT(pending)
#endif

#else  // -------------------------------------------------------------------------- OpenCL C

#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT ON
#define KERNEL(name) __kernel void name
#define BOUNDED_KERNEL(name, threads, blocks) \
    __kernel __attribute__((reqd_work_group_size(threads, 1, 1))) void name
#define GLOBAL __global
#define SHARED __local
#define RESTRICT restrict
#define INLINE static inline __attribute__((always_inline))
// PoCL compiles for AVX2 on some AVX-512 CPUs: the hot code asks for what the host has. Not static: else LLVM
// puts the kernel's local array in place of the argument, which PoCL cannot follow (it crashes). What it calls
// takes and returns no vectors but by their address: others have no registers for those of 64 bytes.
#if defined(AVX512) && AVX512 && defined(__x86_64__)
#if DOT_BYTES
#define CORE target("avx512f,avx512vl,avx512bw,avx512dq,avx512vnni")
#else
#define CORE target("avx512f,avx512vl,avx512bw,avx512dq")
#endif
#define HOT __attribute__((noinline, CORE))
#define HOT_INLINE static inline __attribute__((always_inline, CORE))
#else
#define HOT __attribute__((noinline))
#define HOT_INLINE INLINE
#endif
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("nounroll")
#define GROUP(d) ((int)get_group_id(d))
#define THREAD(d) ((int)get_local_id(d))
#define GROUPS(d) ((int)get_num_groups(d))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define BARRIER_ALL() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define SHARED_ARRAY(name) __local acc_t name[(SHARED_BYTES) / ACC_BYTES] __attribute__((aligned(64)))
#define CONSTANT __constant
#define CONSTANT_FILTER(count)
#define FILTER w

#if VECTOR == 1
typedef acc_t vec;
#else
typedef TW_JOIN(ACC, VECTOR) vec;
#endif
// Macros: for scalars and vectors. dot4: four i8 in each int.
#define PRODUCT4(a, b, byte) (((a) << (24 - 8 * byte) >> 24) * ((b) << (24 - 8 * byte) >> 24))
#define dot4(a, b, sum) ((sum) + PRODUCT4(a, b, 0) + PRODUCT4(a, b, 1) + PRODUCT4(a, b, 2) + PRODUCT4(a, b, 3))
#if DTYPE == 4
#define mul_add(w, x, sum) dot4(w, x, sum)
#else
#define mul_add(w, x, sum) ((w) * (x) + (sum))  // contracts; fma() is a slow call
#endif
INLINE void vec_zero(vec *a) { *a = (vec)(0); }
INLINE void vec_fma(vec *a, vec w, acc_t x) { *a = mul_add(w, x, *a); }
INLINE void vec_mul_add(vec *a, vec w, vec x) { *a = mul_add(w, x, *a); }
#define vec_fma_turn(turn, a, w, x) vec_fma(a, w, x)
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
#if DTYPE != 4  // no atomics of floats: swap until it holds
#if DTYPE == 0
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#define SWAP atom_cmpxchg
typedef ulong bits_t;
#else
#define SWAP atomic_cmpxchg
typedef uint bits_t;
#endif
INLINE acc_t atomic_add(volatile __global acc_t *p, acc_t v) {
    union { bits_t bits; acc_t v; } was, sum;
    bits_t found = *(volatile __global bits_t *)p;  // a guess: what is swapped says what was there
    do {
        was.bits = found;
        sum.v = was.v + v;
        found = SWAP((volatile __global bits_t *)p, was.bits, sum.bits);
    } while (found != was.bits);
    return was.v;
}
#endif
#define bits_float(bits) as_float((uint)(bits))
#define float_bits(v) as_uint(v)
#define bits_double(bits) as_double((long)(bits))
#ifdef __F16C__  // an x86 with instructions for it: of many elements at once
INLINE float half_float(ushort bits) { return __builtin_load_halff((const half *)&bits); }
INLINE ushort float_half(float v) {
    ushort bits;
    __builtin_store_halff(v, (half *)&bits);
    return bits;
}
#else  // by hand: vload_half is a call for each element in PoCL
INLINE float half_float(ushort half_bits) {
    uint bits = (half_bits & 0x7fffu) << 13, exponent = bits & 0x0f800000u;
    bits += 112u << 23;                              // the bias of f32 in place of that of f16
    if (exponent == 0x0f800000u) bits += 112u << 23; // infinity, NaN
    float v = exponent ? as_float(bits) : as_float(bits + (1u << 23)) - as_float(113u << 23);
    return as_float(as_uint(v) | (uint)(half_bits & 0x8000u) << 16);
}
INLINE ushort float_half(float v) {
    uint bits = as_uint(v), sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0x7e00u | sign;                                     // NaN
    if (size >= 0x477ff000u) return 0x7c00u | sign;                                    // 65520 and more
    if (size < 0x38800000u) return sign | (as_uint(as_float(size) + 0.5f) - 0x3f000000u);  // denormals
    return sign | (size + 0xfffu + (size >> 13 & 1u) - 0x38000000u) >> 13;
}
#endif
#define EXP(v) exp(v)
#if !defined(CLUSTER) || CLUSTER == 1  // there are no clusters of more
#define cluster_load(p, rank) (*(p))
#endif
#define CLUSTER_BARRIER() BARRIER()
#define load_fresh(p) (*(volatile const __global acc_t *)(p))
#define load_fresh_run(count, to, from) \
    for (int i_ = 0; i_ < (count); i_++) (to)[i_] = load_fresh((from) + i_)
#define atomic_most(p, v) atomic_max(p, v)
#define atomic_count(p) atomic_inc((volatile __global unsigned *)(p))
#define vec_add_fresh(a, p)                                                                      \
    {                                                                                            \
        acc_t fresh[VECTOR];                                                                     \
        load_fresh_run(VECTOR, fresh, p);                                                        \
        *(a) += vec_pack(fresh);                                                                 \
    }
#define FENCE() mem_fence(CLK_GLOBAL_MEM_FENCE)
#define CHAIN_NEXT()
#define CHAIN_WAIT()
#define SHARED_FLAG(name) __local int name##_store; __local int *name = &name##_store
#if VECTOR == 1
#define vec_load_shared(p) (*(p))
#else
#define vec_load_shared(p) TW_JOIN(vload, VECTOR)(0, p)
#endif
#define copy_run1(to, from) (*(to) = *(from))  // macros: for memory of any kind
#define copy_run2(to, from) vstore2(vload2(0, from), 0, to)
#define copy_run4(to, from) vstore4(vload4(0, from), 0, to)
#define copy_run8(to, from) vstore8(vload8(0, from), 0, to)
#define copy_run16(to, from) vstore16(vload16(0, from), 0, to)
#define load_run(count, to, from) TW_JOIN(copy_run, count)(to, from)
#define store_run(count, to, from) TW_JOIN(copy_run, count)(to, from)
#define load4(to, from) copy_run4(to, from)
#define store4(to, from) copy_run4(to, from)
#define load_once16(to, from) vstore4(vload4(0, (const __global uint *)(from)), 0, to)
INLINE void async_copy1(__local acc_t *to, const __global acc_t *from, int keep) {
    *to = keep ? *from : 0;
}
INLINE void async_copy2(__local acc_t *to, const __global acc_t *from, int keep) {
    vstore2(keep ? vload2(0, from) : (TW_JOIN(ACC, 2))(0), 0, to);
}
INLINE void async_copy4(__local acc_t *to, const __global acc_t *from, int keep) {
    vstore4(keep ? vload4(0, from) : (TW_JOIN(ACC, 4))(0), 0, to);
}
#define ASYNC_COMMIT()
#define ASYNC_WAIT(pending)

#endif

#ifndef FLOAT_BFLOAT
INLINE unsigned short float_bfloat(float v) {
    unsigned bits = float_bits(v);
    return v != v ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
#endif

#define CHAIN() CHAIN_NEXT(); CHAIN_WAIT()

#if defined(OFFSET64) && OFFSET64
typedef long offset_t;
#else
typedef int offset_t;
#endif
