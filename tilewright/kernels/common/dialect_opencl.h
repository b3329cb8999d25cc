// The dialect in OpenCL C: the names of dialect.h.

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
#define larger(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define SILU(v) ((v) / (1 + exp(-(v))))
#if !defined(CLUSTER) || CLUSTER == 1  // there are no clusters of more
#define cluster_load(p, rank) (*(p))
#endif
#define CLUSTER_BARRIER() BARRIER()
#define CLUSTER_READ()
#define CLUSTER_LEAVE()
#define load_fresh(p) (*(volatile const __global acc_t *)(p))
#define load_fresh_run(count, to, from) \
    for (int i_ = 0; i_ < (count); i_++) (to)[i_] = load_fresh((from) + i_)
#define load_made(p) (*(p))
#define load_made_run load_run
#define atomic_most(p, v) atomic_max(p, v)
#define atomic_count(p) atomic_inc((volatile __global unsigned *)(p))
#define vec_add_fresh(a, p)                                                                      \
    {                                                                                            \
        acc_t fresh[VECTOR];                                                                     \
        load_fresh_run(VECTOR, fresh, p);                                                        \
        *(a) += vec_pack(fresh);                                                                 \
    }
#if defined(__x86_64__) || defined(__aarch64__)  // a CPU: what the compiler has, since PoCL's mem_fence is empty
#define FENCE() __atomic_thread_fence(__ATOMIC_ACQ_REL)
#else
#define FENCE() mem_fence(CLK_GLOBAL_MEM_FENCE)
#endif
#define FENCE_ALL()
#define FENCE_EACH() FENCE()
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
