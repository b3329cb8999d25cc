// The dialect of Hopper's tensor cores and copy engine, beside dialect.h and tensor.h: where CUDA C++
// and OpenCL C differ.
//
//   shared_t TILE_ARRAY(name)   shared memory as bytes from a multiple of 1024 on; a place in it is an offset
//   piece_at                    where a product looks for 16 bytes of a tile: row `row`, piece `side` of those that
//                               begin at `start` (0 or 1: a product is 32 bytes deep); what a descriptor says (tile_at)
//   multiply                    sums += A B, or = where not `adds`: 64 x WG_N outputs of a warpgroup, 32 bytes of the
//                               sum deep; where A and B begin is counted in pieces
//   X_PARAM X_ADDRESS           the parameter that says where x is, and what it stands for: an address; where X_IS_MAP,
//                               on CUDA, that of its tensor map (kernels/tensor_map.py)
//   wg_begin wg_commit          around products that are under way together; multiply_done: all of these but the
//                               newest `pending` groups, and so what they have summed up in `part`
//   copy16                      16 bytes into shared memory, zeros unless `keep`; asynchronous, until COPIES_WAIT
//   load16                      16 bytes of global memory, zeros unless `keep`
//   read4                       four sums from shared memory
//
// A tile in shared memory is rows of CHUNKS pieces of 16 bytes, along the sum.  SWIZZLED 0: pieces apart, piece c of
// row i at c * NEXT + 16 i.  SWIZZLED 1: rows of 2, 4 or 8 pieces, side by side, swizzled (operand.h). Either way any
// row can be the first one of a tile.
//
// SPAN (x in nchw, as it is): a tile of x is spans of LINE pixels, channel by channel, LINE * 2 bytes each, swizzled
// like such rows; of each span the first SPAN pixels are used: all, or those that a warpgroup has (plane_at). Where
// planes begin anywhere (LEADS > 1) hopper_lead.h says which pixels a span has.
//
// On CUDA there are also the barriers of barriers.h, and
//   bulk_copy                   bytes from global memory, that arrive on a barrier; to all blocks of `mask`
//                               at the same place, for a cluster (COPIES > 1)
//   span_copy                   a span of CHUNKS * 8 channels from c on, pixels from (n, h, v) on, zeros outside of x
//   image_copy                  a patch from an image, that arrives on a barrier: pixels in raster order from (n, h, v)
//                               on, moved by a phase; a row of CHUNKS pieces for each, channels from c on
//   bulk_to_block               bytes from shared memory to that of block `rank`, that arrive on its barrier
//   send4                       four sums from registers to another block's shared memory, that arrive on its barrier
//   write_matrices              four matrices of 8 x 8 numbers of 2 bytes: lanes 8i to 8i + 7 say where rows of
//                               matrix i go; write_transposed: where its columns go
//   read_matrices read_transposed   the same, from there
//   prefetch                    have the L2 cache fetch a line
//   TEAMS_SYNC                  all that multiply wait for each other
//   MATES_SYNC (hopper_own.h)   so do those of the same pixels: barriers 3 to 2 + WN
//   COPIERS_SYNC (hopper_send.h)   and the three warps that copy: barrier 7
//   GROUP_ARRIVE GROUP_SYNC     what the warp that sends need not wait for, and the others do: barriers are there
//   CLUSTER_ARRIVE CLUSTER_WAIT the blocks of a cluster wait for each other
//
// Elsewhere a thread multiplies by itself what the tensor cores would give it, looking where they would look: slow,
// but the same sums of the same bytes.

#include "operand.h"
#include "products.h"
#include "types.h"

// What is multiplied, PRODUCTS:
//   TF32       both factors are rounded: the filter in packing, x on its way into shared memory (ROUNDED: in registers;
//              by the copy engine, where that copies)
//   THREE      both factors are split into two, on the same ways: PARTS tiles of each (for the copy engine by nhwc.cu,
//              which copies x before)
//   HALVES     both factors are split into two: the filter in packing, x by nhwc.cu
// Of high parts, and of f8, tensor cores add up PROMOTED products of 32 bytes; the rest is added in f32.
#if PRODUCTS == TF32 || PRODUCTS == THREE
#include "mma_tf32.h"
typedef unsigned x_t;  // by its bits
#define ROUNDED 1
#define PARTS (PRODUCTS == THREE ? 2 : 1)
#define BITS_OF(v) (PARTS == 1 ? tf32_of(v) : (v))
#else
#define ROUNDED 0
#define BITS_OF(v) (v)
#if PRODUCTS == E4M3
typedef unsigned char x_t;
#elif PRODUCTS == HALVES
typedef unsigned short x_t;
#else
typedef in_t x_t;
#endif
#endif
#if PRODUCTS == HALVES
#include "halves.h"
#define PARTS 2
#define X_MOVED x_moved  // how far nhwc.cu has moved x
#define X_MOVED_PARAM , const GLOBAL int *RESTRICT x_moved
#else
#define X_MOVED 0
#define X_MOVED_PARAM
#endif
#ifndef PARTS
#define PARTS 1  // tiles of each factor
#endif

#define SPAN_PIECES (LINE * CHUNKS)  // of a span
// Where number `k` of the sum is, under pixel `px` of spans that begin at `start`.
INLINE int plane_at(int start, int px, int k) {
    return swizzled(start + px / LINE * (SPAN_PIECES * 16) + k * (LINE * 2) + px % LINE * 2, LINE / 8);
}

INLINE int piece_at(int start, int next, int row, int side) {
#if SWIZZLED
    return swizzled(start + side * 16 + row * (CHUNKS * 16), CHUNKS);
#else
    return start + side * next + row * 16;
#endif
}

#ifdef __CUDACC__  // ------------------------------------------------------------- CUDA C++

#include "barriers.h"
#include "ldmatrix.h"
#include "wgmma.h"

#define TILE_ARRAY(name)                                     \
    extern __shared__ __align__(1024) unsigned char name##_store[]; \
    const shared_t name = ((unsigned)__cvta_generic_to_shared(name##_store) + 1023) / 1024 * 1024

#if X_IS_MAP
#include "image_map.h"
#define X_PARAM const __grid_constant__ ImageMap x_map
#define X_ADDRESS ((const x_t *)&x_map)
#else
#define X_PARAM const x_t *RESTRICT x
#define X_ADDRESS x
#endif

// The descriptors of piece_at and plane_at.
INLINE unsigned long long tile_at(shared_t shared, int piece, int next) {
    const unsigned low = piece_of(shared) + ((SWIZZLED ? 1u : (unsigned)next >> 4) << 16) + (unsigned)piece;
    return descriptor(low, SWIZZLED ? CHUNKS : 1);
}
INLINE unsigned long long spans_at(shared_t shared, int piece) {
    return descriptor(piece_of(shared) + ((unsigned)SPAN_PIECES << 16) + (unsigned)piece, LINE / 8);
}
INLINE void multiply(acc_t sums[WG_WORDS], shared_t shared, int a, int a_next, int b, int b_next, int adds,
                     int thread) {
    wg_multiply_add(sums, tile_at(shared, a, a_next), SPAN ? spans_at(shared, b) : tile_at(shared, b, b_next), adds);
}
#define multiply_done(part, pending) \
    WG_WAIT(pending);                \
    wg_done(part)

INLINE void copy16(shared_t shared, int to, const unsigned char *from, int keep) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(shared + to), "l"(from), "r"(keep ? 16 : 0) : "memory");
}
#define COPIES_WAIT() asm volatile("cp.async.wait_all;" ::: "memory")  // this thread's
INLINE void load16(unsigned v[4], const unsigned char *from, int keep) {  // past the L1 cache: nobody reads it again
    const uint4 bits = keep ? __ldcg((const uint4 *)from) : make_uint4(0, 0, 0, 0);
    v[0] = bits.x, v[1] = bits.y, v[2] = bits.z, v[3] = bits.w;
}
INLINE int read_int(shared_t shared, int at) {
    int v;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(shared + at) : "memory");
    return v;
}
INLINE void read_two(int v[2], shared_t shared, int at) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "r"(shared + at) : "memory");
}
INLINE void write_int(shared_t shared, int at, int v) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(shared + at), "r"(v) : "memory");
}
INLINE void write16(shared_t shared, int at, const unsigned v[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
                 ::"r"(shared + at), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}
INLINE void write1(shared_t shared, int at, acc_t v) { write_int(shared, at, *(int *)&v); }
INLINE void write2(shared_t shared, int at, acc_t v, acc_t w) {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(shared + at), "r"(*(int *)&v), "r"(*(int *)&w) : "memory");
}
INLINE void read4(acc_t v[4], shared_t shared, int at) {
    uint4 bits;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(bits.x), "=r"(bits.y), "=r"(bits.z), "=r"(bits.w) : "r"(shared + at) : "memory");
    v[0] = *(acc_t *)&bits.x, v[1] = *(acc_t *)&bits.y, v[2] = *(acc_t *)&bits.z, v[3] = *(acc_t *)&bits.w;
}
INLINE acc_t read1(shared_t shared, int at) {
    int bits = read_int(shared, at);
    return *(acc_t *)&bits;
}

INLINE void bulk_copy(shared_t to, const void *from, int bytes, shared_t bar, unsigned mask) {
#if COPIES > 1
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1], %2, [%3], %4;"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(bar), "h"((unsigned short)mask) : "memory");
#else
    copy_bulk(to, from, bytes, bar);
#endif
}
#define TEAMS_SYNC() asm volatile("bar.sync 1, %0;" ::"n"(128 * TEAMS) : "memory")
#define GROUP_ARRIVE() asm volatile("bar.arrive 2, %0;" ::"n"(WORKERS) : "memory")
#define GROUP_SYNC() asm volatile("bar.sync 2, %0;" ::"n"(WORKERS) : "memory")
INLINE void bulk_to_block(shared_t to, shared_t from, int bytes, shared_t bar, int rank) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(of_block(to, rank)), "r"(from), "r"(bytes), "r"(of_block(bar, rank)) : "memory");
}
INLINE void send4(shared_t to, const acc_t v[4], shared_t bar) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
                 ::"r"(to), "r"(*(int *)&v[0]), "r"(*(int *)&v[1]), "r"(*(int *)&v[2]), "r"(*(int *)&v[3]), "r"(bar)
                 : "memory");
}
INLINE void write_matrices(shared_t to, const unsigned v[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}
INLINE void write_transposed(shared_t to, const unsigned v[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}
INLINE void read_transposed(unsigned v[4], shared_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(from) : "memory");
}
INLINE void prefetch(const void *from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }
#if CLUSTER > 1  // relaxed: nothing but initialised barriers is handed over (release would wait for all of memory)
#define CLUSTER_ARRIVE() asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory")
#define CLUSTER_WAIT() asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory")
#else
#define CLUSTER_ARRIVE()
#define CLUSTER_WAIT()
#endif

#else  // -------------------------------------------------------------------------- OpenCL C

#define WG_WORDS (WG_N / 2)
typedef __local uchar *shared_t;
#define TILE_ARRAY(name) __local uchar name[SHARED_BYTES] __attribute__((aligned(1024)))
#define X_PARAM const __global x_t *restrict x
#define X_ADDRESS x

#if PRODUCTS == E4M3
#include "e4m3.h"
#endif
INLINE acc_t dot_word(uint a, uint b, acc_t sum) {
#if PRODUCTS == TF32 || PRODUCTS == THREE
    return sum + as_float(a & 0xffffe000u) * as_float(b & 0xffffe000u);
#elif PRODUCTS == E4M3
    for (int i = 0; i < 32; i += 8)
        sum += half_float(half_of_e4m3(a >> i & 0xff)) * half_float(half_of_e4m3(b >> i & 0xff));
    return sum;
#elif PRODUCTS == HALVES
    return sum + half_float(a & 0xffff) * half_float(b & 0xffff) + half_float(a >> 16) * half_float(b >> 16);
#elif DTYPE == 4
    return dot4((int)a, (int)b, sum);
#else
    return sum + widened(a & 0xffff) * widened(b & 0xffff) + widened(a >> 16) * widened(b >> 16);
#endif
}
INLINE void multiply(acc_t *sums, shared_t shared, int a, int a_next, int b, int b_next, int adds, int thread) {
    for (int e = 0; e < WG_WORDS; e++) {
        int row = thread / 32 * 16 + thread % 32 / 4 + e / 2 % 2 * 8, column = e / 4 * 8 + thread % 4 * 2 + e % 2;
        if (!adds) sums[e] = 0;
        for (int i = 0; i < 8; i++) {
            const uint x = *(__local uint *)(shared + piece_at(a * 16, a_next, row, i / 4) + i % 4 * 4);
#if SPAN
            const uint y = *(__local ushort *)(shared + plane_at(b * 16, column, 2 * i)) |
                           (uint)*(__local ushort *)(shared + plane_at(b * 16, column, 2 * i + 1)) << 16;
#else
            const uint y = *(__local uint *)(shared + piece_at(b * 16, b_next, column, i / 4) + i % 4 * 4);
#endif
            sums[e] = dot_word(x, y, sums[e]);
        }
    }
}
INLINE void copy16(shared_t shared, int to, const __global uchar *from, int keep) {
    uint4 v = keep ? vload4(0, (const __global uint *)from) : (uint4)(0);
    vstore4(v, 0, (__local uint *)(shared + to));
}
#define wg_begin()
#define wg_commit()
#define multiply_done(part, pending)
#define load16(v, from, keep) vstore4((keep) ? vload4(0, (const __global uint *)(from)) : (uint4)(0), 0, v)
#define read_int(shared, at) (*(__local int *)((shared) + (at)))
#define write_int(shared, at, v) (*(__local int *)((shared) + (at)) = (v))
#define read1(shared, at) (*(__local acc_t *)((shared) + (at)))
#define write1(shared, at, v) (*(__local acc_t *)((shared) + (at)) = (v))
#define write16(shared, at, v) vstore4(vload4(0, v), 0, (__local uint *)((shared) + (at)))
#define write2(shared, at, v, w) (write1(shared, at, v), write1(shared, (at) + 4, w))
#define read4(v, shared, at) vstore4(vload4(0, (__local acc_t *)((shared) + (at))), 0, v)

#endif
