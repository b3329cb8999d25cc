// planar: 1x1 convolutions of nchw, y[n,k,px] = epilogue(sum over c of x[n,c,px] * w[k,c]), of planes of any size, in
// f16, bf16 and tf32, by the tensor cores and the copy engine of sm_90a.
//
// A tensor map describes rows that begin at multiples of 16 bytes, and planes of 7x7 or 14x14 do not. But the planes of
// an image lie one behind the other, so 64 of them (32 of tf32) are one run of bytes, wherever each begins: one bulk
// copy brings them, and lanes find their pixels in it.
//
//   a step, in shared memory                                   a block's tile of outputs
//   image 0   [plane 0][plane 1] ... [plane 63]                IMAGES whole images (ni) x KB channels (bn), an image
//   image 1   [plane 0][plane 1] ... [plane 63]                of which is one run of bytes, too: one bulk copy
//   filter    KB rows of 64 or 32 channels, swizzled
//
// Pixels are the rows of a product and output channels its columns. A lane has two neighbouring pixels, words of which
// it reads from plane after plane, halves of which it puts together for a fragment (planar_wgmma.h); of tf32 each word
// is a pixel. In which order is up to the packed filter, which has its channels so that lanes read from different banks
// (planar_order.h).
//
//   warpgroups 0 .. TEAMS - 1   multiply, 64 pixels each: TEAMS * 32 pairs of them, images one behind the other
//   thread 0, or one of a       sends for planes and filters, STAGES steps ahead (stages)
//   warp more (SENDER, sender)
//
// With two sets of fragments (SETS, sets) a lane reads the next step while this one is multiplied. With one set, and
// with no warp that only sends, more teams or wider tiles have registers.
//
// The sum may be split SC ways across a cluster (sc): each block then finishes KB / SC channels of the tile, whose sums
// it reads from the shared memory of all. Or a block makes several tiles, one after the other (TURNS, turns): what is
// sent goes on from one to the next, which is multiplied while the outputs of the last one are copied to y.
// Example: n32c512h7w7k2048 in f16, IMAGES = 5, KB = 128: 25 pairs a plane, 125 of 128 of a block's 4 teams; 7 x 16
// blocks of 8 steps, each 5 runs of 6,272 bytes and 16 KB of the filter; 5 runs of 12,544 bytes go to y.

#include "products.h"
#include "planar_tile.h"
#if PRODUCTS == TF32
#include "mma_tf32.h"
#endif
#include "aligned_array.h"
#ifdef __CUDACC__
#define STORERS (128 * TEAMS)
#else
#define STORERS THREADS
#endif
#include "planar_store.h"
#ifdef __CUDACC__
#include "planar_wgmma.h"
#else
#include "planar_portable.h"
#endif

BOUNDED_KERNEL(planar, THREADS, MIN_BLOCKS)
(const GLOBAL in_t *RESTRICT x, const GLOBAL unsigned char *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y) {
    ALIGNED_ARRAY(shared);
    CHAIN_WAIT();
    const Epilogue ep = {bias, z, y};
    make_tiles(shared, x, w, ep);
#if SC > 1
    const Block b = find_block(GROUP(0));
    CLUSTER_BARRIER();  // all shares are there
    add_tiles(ep, shared, &b);
    CLUSTER_READ();  // nobody leaves before its sums are read
    CLUSTER_LEAVE();
#endif
}
