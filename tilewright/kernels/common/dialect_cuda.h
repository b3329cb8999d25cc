// The dialect in CUDA C++: the names of dialect.h.

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
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
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
template <class type> INLINE type larger(type a, type b) { return a > b || a != a ? a : b; }  // a NaN is the largest
#if __CUDA_ARCH__ >= 800
INLINE float larger(float a, float b) {
    float v;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(a), "f"(b));
    return v;
}
#endif
// v / (1 + exp(-v)). A division of f32 is some 20 instructions, one after the other and with a branch; by the
// reciprocal it is off by 3 units of rounding more at most, where the reciprocal is no denormal (v > -87). What becomes
// an f16 or a bf16 has the exponential of the hardware, too, and is 0 there.
INLINE double silu(double v) { return v / (1 + exp(-v)); }
INLINE float silu(float v) {
    float power, reciprocal;
#if DTYPE == 2 || DTYPE == 3 || DTYPE == 5
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(v * -1.44269504f));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(1 + power));
#else
    power = expf(-v);
    asm("rcp.approx.f32 %0, %1;" : "=f"(reciprocal) : "f"(1 + power));
#endif
    return v * reciprocal;
}
#define SILU(v) silu(v)
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
#define load_made load_fresh  // a plain load may be one of data that never change (ld.global.nc)
#define load_made_run load_fresh_run
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
#define FENCE_ALL() __threadfence()
#define FENCE_EACH()
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
// The fence waits for loads that are on their way: who has arrived may be gone, and its shared memory with it. A
// release would wait for stores to y, too (3 to 8% of a launch).
#define CLUSTER_READ()                          \
    asm volatile("fence.acq_rel.cta;\n"         \
                 "barrier.cluster.arrive.relaxed.aligned;" ::: "memory")
#define CLUSTER_LEAVE() asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory")
#else
INLINE acc_t cluster_load(const acc_t *p, int rank) { return *p; }
#define CLUSTER_BARRIER() BARRIER()
#define CLUSTER_READ()
#define CLUSTER_LEAVE()
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
