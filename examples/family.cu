// sketch: y[n,k,p,q] = epilogue(sum over c,r,s of x[n,c,p*u+r*d-pad,q*u+s*d-pad] * w[k,c,r,s]): to begin from
//
// x: nchw or nhwc (X_NHWC), in_t.  w: kcrs as given, in_t.  y, z: nchw or nhwc (Y_NHWC), out_t.  C, K: of one group.
//
//           WB pixels of a row          A block makes KB channels of WB neighbouring pixels, a thread one pixel of
//        +----------------------+       each: an input that it has loaded is multiplied TK times. Inputs in the
//   KB   | thread 0, 1, 2, ...  |       padding are zeros, and are multiplied too: a NaN in w shows there.
//        +----------------------+
//
// Example: 64 channels of 3x3, TK = 4, 32 threads: 576 turns, each of 1 + 4 loads for 4 products.

#define KB TK       // tile.h has the block's tile from these
#define HB 1
#define WB THREADS
#include "tile.h"

BOUNDED_KERNEL(sketch, THREADS, MIN_BLOCKS)
(const GLOBAL in_t *RESTRICT x, const GLOBAL in_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y) {
    const Epilogue ep = {bias, z, y};
    // block, thread: the first output of the tile, and the input under this thread's first tap
    const Place at = find_place(GROUP(0));
    const int q = THREAD(0), h0 = at.p0 * STR_H - PAD_T, w0 = (at.q0 + q) * STR_W - PAD_L;

    // registers
    acc_t sum[TK];
    UNROLL for (int k = 0; k < TK; k++) sum[k] = 0;

    // main loop
    NO_UNROLL for (int c = 0; c < C; c++)
        NO_UNROLL for (int r = 0; r < R; r++)
            NO_UNROLL for (int s = 0; s < S; s++) {
                const int h = h0 + r * DIL_H, v = w0 + s * DIL_W;
                acc_t one = 0;
                if ((unsigned)h < H && (unsigned)v < W) one = in_load(x + X_AT(at.n, at.group * C + c, h, v));
                UNROLL for (int k = 0; k < TK; k++) {
                    const int filter = at.group * K + (at.k0 + k < K ? at.k0 + k : K - 1);  // past K: another again
                    const acc_t tap = in_load(w + (((offset_t)filter * C + c) * R + r) * S + s);
                    sum[k] = mul_add(tap, one, sum[k]);
                }
            }

    // epilogue: what lies outside the image is not stored
    UNROLL for (int k = 0; k < TK; k++) finish(ep, at, k, 0, q, sum[k]);
}
