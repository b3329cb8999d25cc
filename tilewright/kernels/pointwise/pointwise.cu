// pointwise: 1x1 convolutions of nchw, y[n,k,px] = epilogue(sum over c of x[n,c,px] * w[k,c]), by the tensor cores of
// sm_90a, in f16, bf16 and tf32. Planes may begin anywhere (STRANDS, pointwise_tile.h); of layers with a stride thin.cu
// has made planes of the pixels that are read.
//
// A layer of 1x1 has few products for each byte of x, and few for each output: what comes in and what goes out take as
// long as what is multiplied, so the three go on side by side. A span is 128 bytes of a plane. Each plane is spans, the
// last of which may have fewer pixels, and the spans of all images are one row, of which a tile has SPANS:
//
//   [ span 0 of image 0 ][ span 1 ] ... [ last span of image 0 ][ span 0 of image 1 ] ...
//
//   warpgroups 0 .. TEAMS - 1   multiply 64 pixels each by KB output channels (teams, bn), and store their sums; of one
//                               tile, or each of every TEAMS-th by itself (TURNS)
//   a thread behind them        sends spans of CHANNELS planes (a step), STAGES steps ahead (stages), as boxes of a
//                               tensor map; and with them the step's filter, which comes once where it stays
//                               (KEEPS)
//
// Blocks stay for more tiles, of the same output channels.
//
// Lanes read their pixels from the planes in shared memory, and so put together the first factor in registers; only the
// filter is read by the tensor cores themselves.
// Example: n32c128h28w28k512 in tf32, TEAMS = 2 by turns, KB = 256: 25 spans of 32 pixels in an image, 400 tiles of two
// spans by 2 of channels, of which a block has 6 or 7; the filter, 4 steps of 32 KB, stays in shared memory.

#include "products.h"
#include "pointwise_tile.h"
#if PRODUCTS == TF32
#include "mma_tf32.h"
#endif
#include "aligned_array.h"
#include "pointwise_store.h"
#ifdef __CUDACC__
#include "pointwise_wgmma.h"
#else
#include "pointwise_portable.h"
#endif

BOUNDED_KERNEL(pointwise, THREADS, MIN_BLOCKS)
(X_PARAM, const GLOBAL unsigned char *RESTRICT w, const GLOBAL out_t *RESTRICT bias, const GLOBAL out_t *RESTRICT z,
 GLOBAL done_t *RESTRICT y) {
    ALIGNED_ARRAY(shared);
    CHAIN_WAIT();
    const Epilogue ep = {bias, z, y};
    make_tiles(shared, X_GIVEN, w, ep);
}
