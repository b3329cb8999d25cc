// Where CUDA C++ and OpenCL C differ; for tensor cores also tensor.h and hopper.h, and a few kernels that ask for
// __CUDACC__. A kernel of a CUDA-core family uses only the neutral names below and compiles as either language.
//
//   KERNEL(name)            entry point; every parameter is GLOBAL type *RESTRICT, or CONSTANT
//   BOUNDED_KERNEL(name, threads, blocks)
//                           the same, always launched with that many threads a block; a unit must
//                           have registers for that many blocks at once
//   GROUP(d) THREAD(d)      block index and thread index within the block, d = 0, 1, 2; GROUPS(d): blocks of the launch
//   SHARED_ARRAY(name)      at the top of a kernel: the block's shared memory, SHARED_BYTES of it (a define), of acc_t
//   SHARED_FLAG(name)       likewise: a pointer to one int of it
//   GLOBAL SHARED CONSTANT  where a pointer points; without one of them to a thread's own variables
//   UNROLL NO_UNROLL UNROLL_BY(count)   before a loop
//   CEIL_DIV(a, b)          a / b, rounded up
//   acc_t                   what sums are made of, and the words that are multiplied: set by DTYPE, see types.h
//   mul_add(w, x, sum)      sum + w x, rounded once; for i8 four products of words of four (dot4)
//   vec                     VECTOR acc_t (1, 2, 4, 8, 16), one lane's share of output channels
//   vec_load vec_store      from and to memory that is aligned to it (vec_load_shared: SHARED)
//   vec_pack vec_unpack     from a private array, and to one
//   vec_zero vec_fma vec_mul_add   0; += a vector times a number, or a vector; vec_fma_turn: there and back by turns
//   load_run store_run      1, 2, 4, … neighbours in memory to a private array and back, aligned to them all; load4
//                           store4: four of them; load_once16: 16 bytes that nobody reads again
//   offset_t                int, or 64 bits wide when OFFSET64 is 1
//   float_bfloat            an f32 rounded to a bf16, by its bits
//   INLINE                  a function. HOT: one for the hot part of a CPU kernel (dialect_opencl.h)
//   half_float float_half   an f16 by its bits, and back; bits_float, float_bits: the same for f32;
//                           bits_double: an f64 by its bits, as a signed number
//   BARRIER BARRIER_ALL     of the block: what its threads did to shared memory before is done; and to global memory
//   vec_sum_lanes           the sum over the lanes of a warp that are so far apart: CUDA alone has it
//   atomic_add atomic_count to a number in memory, or one more to a counter: returns what was there
//   atomic_most             the largest of an int in shared memory and all threads' v; by whole warps
//   dot4 SILU               four products of i8, added to a sum; v / (1 + exp(-v))
//   larger                  of two numbers, where a NaN is the largest
//   CONSTANT_FILTER(count)  at file scope: room in constant memory for the packed filter w, which a launch named
//                           ``constant`` fills; FILTER[i] is its element, CONSTANT acc_t *w the parameter
//   load_fresh load_made    what another block of this launch has written, or a launch before it that may still have
//                           been running when this one began (CHAIN_NEXT); load_fresh_run, load_made_run: neighbours
//   FENCE_EACH FENCE_ALL    a fence by each thread before a barrier, or behind it by one thread for all of the block:
//                           the language has one of them (tile.h, arrive_last)
//   cluster_load CLUSTER_BARRIER   from another block's shared memory; a barrier of all blocks of the cluster
//   CLUSTER_READ CLUSTER_LEAVE   this thread has read what it needs of other blocks' shared memory; wait for all others
//   CHAIN_WAIT              wait until the launch before this one is done: it may still run when this one begins
//                           (Launch.chained). First in every kernel, for another plan may have made what it reads;
//                           x, bias and z may then be read as data that never change: no line of them was, before
//   CHAIN_BEGIN             the same where FOLLOWS is not set: a kernel behind another one of its plan reads what was
//                           there before the plan, and has its own CHAIN_WAIT before it reads what that one makes
//   CHAIN_NEXT              let the blocks of the plan's next launch take their places; never in its last one, since
//                           blocks of another plan would take those of this one's waves
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
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

#ifdef __CUDACC__
#include "dialect_cuda.h"
#else
#include "dialect_opencl.h"
#endif

#ifndef FLOAT_BFLOAT
INLINE unsigned short float_bfloat(float v) {
    unsigned bits = float_bits(v);
    return v != v ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
#endif

#if defined(FOLLOWS) && FOLLOWS  // another launch of the plan comes before it
#define CHAIN_BEGIN()
#else
#define CHAIN_BEGIN() CHAIN_WAIT()
#endif

#if defined(OFFSET64) && OFFSET64
typedef long offset_t;
#else
typedef int offset_t;
#endif
