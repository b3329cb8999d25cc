// 16 bytes of shared memory at once, for kernels of tensor cores: beside dialect.h, where CUDA C++ and OpenCL C differ.
//
//   shared_t   a place in shared memory, counted in bytes
//   copy16     16 bytes into shared memory from global memory (async, zeros unless `keep`), past the L1 cache
//   write16    16 bytes into shared memory, from four words
//   read4      four sums of 4 bytes from shared memory

#ifdef __CUDACC__  // ------------------------------------------------------------- CUDA C++

#include "barriers.h"
INLINE void copy16(shared_t to, const unsigned char *from, int keep) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(keep ? 16 : 0) : "memory");
}
INLINE void write16(shared_t to, const unsigned v[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}
INLINE void read4(acc_t v[4], shared_t from) {
    uint4 bits;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w) : "r"(from) : "memory");
    v[0] = *(acc_t *)&bits.x, v[1] = *(acc_t *)&bits.y, v[2] = *(acc_t *)&bits.z, v[3] = *(acc_t *)&bits.w;
}

#else  // -------------------------------------------------------------------------- OpenCL C

typedef __local uchar *shared_t;
INLINE void copy16(shared_t to, const __global uchar *from, int keep) {
    uint4 v = keep ? vload4(0, (const __global uint *)from) : (uint4)(0);
    vstore4(v, 0, (__local uint *)to);
}
#define write16(to, v) vstore4(vload4(0, v), 0, (__local uint *)(to))
#define read4(v, from) vstore4(vload4(0, (const __local acc_t *)(from)), 0, v)

#endif
