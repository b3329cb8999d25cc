// A block's shared memory, SHARED_BYTES of it, as bytes from a multiple of 1024 on: what tensor cores swizzle begins
// there.
//
//   ALIGNED_ARRAY(name)   declare it
//   place_of              an address in it, as barriers, copies and descriptors have it (CUDA; barriers.h)

#ifdef __CUDACC__
#include "barriers.h"
#define ALIGNED_ARRAY(name)                                             \
    extern __shared__ __align__(1024) unsigned char name##_store[];     \
    unsigned char *name = name##_store + (0u - place_of(name##_store)) % 1024
INLINE shared_t place_of(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
#else
#define ALIGNED_ARRAY(name) __local uchar name[SHARED_BYTES] __attribute__((aligned(1024)))
#endif
