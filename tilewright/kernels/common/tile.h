// Where a block works, and how one output is finished: shared by the families that tile K x P x Q.
//
// The grid is one row of blocks: C shares of a cluster fastest, then C shares of the grid, then
// tiles. Neighbouring blocks share the larger of filter and input, so that it is read once.
//
// needs, before it is included (in brackets: from the function of kernels/tile.py that gives them):
//   KB HB WB                    channels, rows and columns of a block's tile
//   SC SG COMBINE               shares of C across a cluster and across the grid (1 and 1), and how they meet (below)
//   STEPS CS                    steps of a share over C, channels of a step: for FIRST_CHANNEL alone
//   K_TILES P_TILES Q_TILES K_FASTEST    tiles of the image, and whether those over K come first [single_tile_defines]
//   C K H W GROUPS_ X_NHWC      x and the filter, of one group [layer_defines]; C_ALL where C counts no single channels
//   P Q YP YQ Y_NHWC Y_FLOATS Z_FLOATS   the images of the sums and of y [image_defines]
//   POOL POOL_SIZE POOL_STRIDE POOL_PAD  and the rest of epilogue.h [image_defines]
//   THREADS                     of a block: for ATOMIC alone
//   SUM_THREADS                 of a block of sum_shares: for TWO_PASS alone (kernels/split_k.py)

#define NONE 0
#define ATOMIC 1
#define TWO_PASS 2
#define LAST 3

#include "epilogue.h"

#define SPLITS (SC * SG)
// Where a share begins of so many steps; a product of both may be more than 32 bits have.
#define FIRST_OF_SHARE(share, steps) ((int)((offset_t)(share) * (steps) / SPLITS))
#ifndef WAITS_LATE  // a kernel may read its filter before the one that makes its other inputs is done
#define WAITS_LATE 0
#endif
#ifndef C_ALL  // channels of x
#define C_ALL (GROUPS_ * C)
#endif
#define POOL_HERE (POOL && EPILOGUE_HERE)
#define X_AT(n, c, h, w) (X_NHWC ? (((offset_t)(n) * H + (h)) * W + (w)) * C_ALL + (c) \
                                 : (((offset_t)(n) * C_ALL + (c)) * H + (h)) * W + (w))
// The sum, the residual z and partial sums have P x Q pixels; y has YP x YQ: fewer, where there is a pool.
#define IMAGE_AT(n, k, p, q, rows, columns)                                                 \
    (Y_NHWC ? (((offset_t)(n) * (rows) + (p)) * (columns) + (q)) * (GROUPS_ * K) + (k)      \
            : (((offset_t)(n) * (GROUPS_ * K) + (k)) * (rows) + (p)) * (columns) + (q))
#define Z_AT(n, k, p, q) IMAGE_AT(n, k, p, q, P, Q)
#define Y_AT(n, k, p, q) IMAGE_AT(n, k, p, q, YP, YQ)
// Where the partial sums of a block's share begin; it is added to the element that a sum is stored at (`to` of
// epilogue.h), never to y: that would take an addition of 64 bits for each store. OUT_AT: such an element.
#define SHARE_AT(at) (COMBINE == TWO_PASS ? (offset_t)(at).sg * Z_FLOATS : 0)
#define OUT_AT(at, k, p, q) (SHARE_AT(at) + Z_AT((at).n, k, p, q))

// A tile that pools begins where a window does, and the next one where this one's last window ends: rows that
// two windows share are summed by both.
#define WINDOWS(extent) (POOL_HERE ? ((extent) - POOL_SIZE) / POOL_STRIDE + 1 : (extent))
#define FORWARD(extent) (POOL_HERE ? WINDOWS(extent) * POOL_STRIDE : (extent))
#define TILE_START (POOL_HERE ? -POOL_PAD : 0)

// First channel of a block's share of C: of STEPS steps of CS channels each.
#define FIRST_CHANNEL(at) (((at).sg * SC + (at).sc) * STEPS * CS)

typedef struct {
    int n, group, k0, p0, q0;  // first output of the tile
    int tile, sc, sg;          // number of the tile, shares of C
} Place;

INLINE Place find_place(int id) {
    Place at;
#if COMBINE == TWO_PASS
    CHAIN_NEXT();
#endif
    if (WAITS_LATE) CHAIN_BEGIN();
    else CHAIN_WAIT();
    at.sc = id % SC;
    at.sg = id / SC % SG;
    at.tile = id / SPLITS;
    int rest = at.tile;
#if K_FASTEST
    at.k0 = rest % K_TILES * KB;
    rest /= K_TILES;
#endif
    at.q0 = rest % Q_TILES * FORWARD(WB) + TILE_START;
    rest /= Q_TILES;
    at.p0 = rest % P_TILES * FORWARD(HB) + TILE_START;
    rest /= P_TILES;
#if !K_FASTEST
    at.k0 = rest % K_TILES * KB;
    rest /= K_TILES;
#endif
    at.group = rest % GROUPS_;
    at.n = rest / GROUPS_;
    return at;
}

// Store the sum for channel k and pixel (p, q) of the tile, or hand the partial sum on.
INLINE void finish(Epilogue ep, Place at, int k, int p, int q, acc_t v) {
    k += at.k0, p += at.p0, q += at.q0;
    if (k >= K || p >= P || q >= Q) return;
    k += at.group * K;
    const offset_t to = OUT_AT(at, k, p, q);
#if COMBINE == ATOMIC
    atomic_add(ep.y + to, epilogue(v, ep, k, to));
#else
    finish_one(ep, k, to, v);
#endif
}

// Shares that are added up by atomics are added to zeros. The first block of a tile puts them there once its first
// copies are under way (zero_tile) and says so, and no block of the tile adds before it knows (zeros_awaited, then a
// barrier): no launch is needed before this one. An assumption: blocks start in the order of their numbers, so who is
// waited for has started. GPUs so far do that, and serial split-K of other libraries rests on it, but CUDA does not
// promise it. Who may not assume it asks for deterministic kernels, which do not add so. A block that draws a ticket
// instead waits for an atomic first: 0 to 5% more time (R9 nhwc 10.08 and 10.56 us). In OpenCL a memset goes before.
#if COMBINE == ATOMIC && defined(__CUDACC__)
#define ZEROES_TILE(at) ((at).sg == 0 && (at).sc == 0)
INLINE void zeros_written(GLOBAL unsigned *arrived, Place at) {
    BARRIER();
    if (THREAD(0)) return;
    FENCE_ALL();
    atomic_turn(&arrived[at.tile], SPLITS);
}
INLINE void zeros_awaited(GLOBAL unsigned *arrived, Place at) {
    if (THREAD(0)) return;
    while (load_acquire(&arrived[at.tile]) == 0) {}
    atomic_turn(&arrived[at.tile], SPLITS);  // once all have been here it is 0: ready for the next run
}
// Put zeros where the shares of a tile of HB x WB pixels will be added.
INLINE void zero_tile(GLOBAL done_t *y, GLOBAL unsigned *arrived, Place at) {
    if (!ZEROES_TILE(at)) return;
    for (int e = THREAD(0); e < KB * HB * WB; e += THREADS) {
        int k = at.k0 + (Y_NHWC ? e % KB : e / (HB * WB)), i = Y_NHWC ? e / KB : e % (HB * WB);
        int p = at.p0 + i / WB, q = at.q0 + i % WB;
        if (k < K && p < P && q < Q) y[Z_AT(at.n, at.group * K + k, p, q)] = 0;
    }
    zeros_written(arrived, at);
}
#else
#define ZEROES_TILE(at) 0
#define zeros_written(arrived, at)
#define zeros_awaited(arrived, at)
#define zero_tile(y, arrived, at)
#endif

// Count this block in; the last of the blocks that share a tile learns that it is the last, and sees what the others
// wrote before. A fence of CUDA is of the whole device, and of all that is known to have happened before it: behind a
// barrier one thread's is the block's (each thread's took a launch 0.1 to 1 us more). A mem_fence of OpenCL orders one
// work-item's memory (OpenCL 2.0 has fences of the device, but nobody must offer them), so on a CPU the fence is the
// compiler's own, and rule last_order leaves GPUs out (Device.orders_blocks).
INLINE int arrive_last(GLOBAL unsigned *arrived, Place at, int blocks, SHARED int *is_last) {
    FENCE_EACH();
    BARRIER_ALL();
    if (THREAD(0) == 0) {
        GLOBAL unsigned *count = &arrived[at.tile * SC + at.sc];
        FENCE_ALL();
        *is_last = (int)atomic_count(count) == blocks - 1;
        if (*is_last) {
            *count = 0;  // ready for the next run
            FENCE_ALL();
        }
    }
    BARRIER();
    FENCE_EACH();
    return *is_last;
}

#if COMBINE == TWO_PASS
// The sum over all shares at one element, finished.
INLINE acc_t summed(const GLOBAL acc_t *partial, Epilogue ep, int k, offset_t to) {
    acc_t sum = 0;
    UNROLL for (int g = 0; g < SG; g++) sum += load_made(partial + (offset_t)g * Z_FLOATS + to);
    return before_pool(sum, ep, k, to);
}

BOUNDED_KERNEL(sum_shares, SUM_THREADS, 1)
(const GLOBAL acc_t *RESTRICT partial, const GLOBAL out_t *RESTRICT bias, const GLOBAL out_t *RESTRICT z,
 GLOBAL final_t *RESTRICT y SCALE_PARAMETER) {
    offset_t i = (offset_t)GROUP(0) * SUM_THREADS + THREAD(0);
    CHAIN_WAIT();
    if (i >= Y_FLOATS) return;
    const Epilogue ep = {bias, z, 0 SCALE_ARGUMENT};
#if POOL
    offset_t pixel = Y_NHWC ? i / (GROUPS_ * K) : i, image = pixel / (YP * YQ);
    int k = Y_NHWC ? i % (GROUPS_ * K) : image % (GROUPS_ * K), n = Y_NHWC ? image : image / (GROUPS_ * K);
    int p0 = pixel / YQ % YP * POOL_STRIDE - POOL_PAD, q0 = pixel % YQ * POOL_STRIDE - POOL_PAD;
    acc_t pooled = POOL_NOTHING;
    for (int p = p0; p < p0 + POOL_SIZE; p++)
        for (int q = q0; q < q0 + POOL_SIZE; q++) {
            if ((unsigned)p >= P || (unsigned)q >= Q) continue;
            pool_take(&pooled, summed(partial, ep, k, Z_AT(n, k, p, q)));
        }
    y[i] = final_of(pool_mean(pooled), ep, k);
#else
    int k = Y_NHWC ? i % (GROUPS_ * K) : i / (P * Q) % (GROUPS_ * K);
    y[i] = final_of(summed(partial, ep, k, i), ep, k);
#endif
}
#endif
