// nhwc: the input (nchw, or nhwc that is not aligned or has other channels than whole chunks) as the mma family
// reads it: [n][h][w][group][CC] chunks of 16 bytes, EACH channels each; channels past the last one are zeros.
//
// A thread writes one chunk. nchw: neighbouring threads take neighbouring pixels, 32 x 8 chunks a block, so that
// reads are whole lines and writes meet in the L2 cache. nhwc: neighbouring threads take neighbouring chunks.
// COPIED_AS (else it moves elements of DTYPE): 1, 2 f32   3 e4m3   4 e4m3, widened to f16.
// SPLIT: numbers are split in two (mma_tf32.h): of each group of a pixel CC chunks of high parts, then CC of low ones.
// Example: 512 x 7 x 7 of f16: 3,136 threads read eight numbers each.

#include "types.h"

#ifndef SPLIT
#define SPLIT 0
#endif
#if SPLIT
#include "mma_tf32.h"
#endif
#ifndef COPIED_AS
#define COPIED_AS 0
#endif
#if COPIED_AS == 0
typedef in_t x_t;
#define EACH (16 / (DTYPE == 4 ? 1 : 2))
#define BITS_OF(v) (v)
#elif COPIED_AS < 3
typedef unsigned x_t;
#define EACH 4
#define BITS_OF(v) (v)
#else
#include "e4m3.h"
typedef unsigned char x_t;
#define EACH (COPIED_AS == 3 ? 16 : 8)
#define BITS_OF(v) (COPIED_AS == 3 ? (unsigned)(v) : (unsigned)half_of_e4m3(v))
#endif
#define CHUNKS_OF_PIXEL (GROUPS_ * CC)
#define PLANE (H * W)
#define CHUNK_TILES ((CHUNKS_OF_PIXEL + 7) / 8)

BOUNDED_KERNEL(nhwc, 256, 1)(const GLOBAL x_t *RESTRICT x, GLOBAL unsigned *RESTRICT to) {
    int pixel, chunk;
    CHAIN();
#if X_NHWC
    offset_t item = (offset_t)GROUP(0) * 256 + THREAD(0);
    pixel = item / CHUNKS_OF_PIXEL, chunk = item % CHUNKS_OF_PIXEL;
#else
    pixel = GROUP(0) / CHUNK_TILES * 32 + THREAD(0) % 32, chunk = GROUP(0) % CHUNK_TILES * 8 + THREAD(0) / 32;
#endif
    if (pixel < N * PLANE && chunk < CHUNKS_OF_PIXEL) {
        unsigned words[4] = {0, 0, 0, 0};
        int c = chunk % CC * EACH;
        offset_t channel = chunk / CC * C + c;
        offset_t from = X_NHWC ? (offset_t)pixel * (GROUPS_ * C) + channel
                               : ((offset_t)(pixel / PLANE) * (GROUPS_ * C) + channel) * PLANE + pixel % PLANE;
        UNROLL for (int e = 0; e < EACH; e++) {
            unsigned bits = c + e < C ? BITS_OF(x[from + (offset_t)e * (X_NHWC ? 1 : PLANE)]) : 0;
            words[e * 4 / EACH] |= (EACH == 16 ? bits & 0xff : bits) << (e * (128 / EACH) % 32);
        }
        to += ((offset_t)pixel * ((1 + SPLIT) * CHUNKS_OF_PIXEL) + chunk + SPLIT * (chunk / CC * CC)) * 4;
#if SPLIT
        unsigned low[4];
        UNROLL for (int e = 0; e < 4; e++) low[e] = tf32_of(split(&words[e]));
        store4((GLOBAL float *)to + CC * 4, (const float *)low);
#endif
        store4((GLOBAL float *)to, (const float *)words);  // bits, not numbers
    }
}
