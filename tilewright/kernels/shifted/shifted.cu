// shifted: y[n,k,p,q] = epilogue(sum over c,r,s of x[n,c,p*u+r*d-pad,q*u+s*d-pad] * w[k,c,r,s]) of x and y in nchw, by
// the tensor cores and the copy engine of sm_90a, in f16, bf16 and tf32.
//
// Tensor cores want channels side by side, or pixels that begin at multiples of 16 bytes: nchw has the former nowhere,
// and a tap moves the latter by one. Here lanes read the pixels of each tap from planes as they are, 2 or 4 bytes at a
// time, and so put together the first factor in registers; only the filter is read by the tensor cores themselves.
// Nothing is turned or copied before.
//
//   a run of CHANNELS planes, in shared memory               a step: row r of the filter, over a run
//   plane 0   [rows of x under the tile's rows] PITCH        rows of a product: 64 pixels of y, as tap (r, s) sees
//   plane 1   [                               ] bytes            them, r * dilation rows and s * dilation columns on
//   ...                                                      columns: KB output channels
//
// A pixel may be TALL outputs of a column, one below the other (tall), each with sums of its own. A step is then all
// rows of the filter, and what a lane has read of a row of x goes to all outputs that see it.
//
// The tile is ROWS whole rows of y (rows), or IMAGES whole images (ni), or COLUMNS of a row (parts), of KB channels
// (bn). Where those do not fill the 64 pixels of each warpgroup, it may go on across the ends of rows and images until
// they are full (ACROSS, across). What lies outside of the image is no part of a plane: a lane knows which rows and
// columns of the filter see each of its pixels.
//
//   warpgroups 0 .. TEAMS - 1   multiply, 64 pixels each
//   last one, warp 0            sends filters, STAGES steps ahead (stages)
//             warps 1 .. 3      send planes, X_STAGES runs ahead (xs): one bulk copy each
//
// The sum may be split SC ways across a cluster (sc): each block then finishes some channels of the tile, whose sums it
// reads from the shared memory of all. Or sums go from registers to y (STAYS, stay), and blocks stay for more tiles,
// whose planes come meanwhile. Where sums need more registers than all threads can have, those who send hand theirs on
// (HANDS_ON).
// Example: n16c64h56w56k128r3s3p1u2 in f16, ROWS = 4, KB = 128: 7 x 16 blocks of 112 pixels by two teams; one run of 64
// planes, 9 rows of 56 pixels each, and 3 steps of 3 filters of 16 KB.

#include "products.h"
#include "shifted_tile.h"
#if PRODUCTS == TF32
#include "mma_tf32.h"
#endif
#include "aligned_array.h"
#include "shifted_store.h"
#ifdef __CUDACC__
#include "shifted_wgmma.h"
#else
#include "shifted_portable.h"
#endif

BOUNDED_KERNEL(shifted, THREADS, MIN_BLOCKS)
(const GLOBAL in_t *RESTRICT x, const GLOBAL unsigned char *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y) {
    ALIGNED_ARRAY(shared);
    CHAIN_WAIT();
    const Epilogue ep = {bias, z, y};
    make_tiles(shared, x, w, ep);
#if !STAYS
    const Block b = find_block(GROUP(0));
#if SC > 1
    CLUSTER_BARRIER();  // all shares are there
#endif
    store_tile(ep, (SHARED acc_t *)shared, &b);
#if SC > 1
    CLUSTER_READ();  // nobody leaves before its sums are read
    CLUSTER_LEAVE();
#endif
#endif
}
