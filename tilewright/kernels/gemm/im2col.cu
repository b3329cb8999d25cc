// im2col: the input under each output, as a column of a matrix, for the matrix product that follows (gemm.cu).
//
//   columns[g][c * R * S + r * S + s][px] = x[n, g * CG + c, p * u + r * d - pad, q * v + s * d - pad], or 0
//
// px counts the outputs (n, p, q) of all images; rows are PITCH floats, a multiple of 4. x: nchw or nhwc.
//
//        a thread writes 4 pixels of R * S          TURNED (nhwc, more than a few channels): a block turns
//        / PARTS rows for CHANNELS channels,        32 channels x 32 pixels of one tap in shared memory: read
//        neighbours along the pixels                along the channels, written along the pixels
//
// Knobs: those of the product. TURNED, CHANNELS and PARTS follow from the layer (im2col.py).
// Example: n1c64h56w56r3s3p1: 576 rows of 3,136 floats, 7.2 MB: 9 times the input. n1c3h224w224r16s16u16, patches:
// 49 quads of pixels of 3 channels are 147 threads; with a tap each (PARTS = 256) 37,632.

#include "sizes.h"

#define RS (SIZE_R * SIZE_S)
#define PIXELS ((offset_t)SIZE_N * SIZE_P * SIZE_Q)
#define QUADS (PITCH / 4)
#define PX_TILES ((PITCH + 31) / 32)

// The input element of channel c under pixel px of tap (r, s).
INLINE float input_at(const GLOBAL float *x, offset_t px, int c, int r, int s) {
    int h = (int)(px / SIZE_Q % SIZE_P) * STRIDE_H + r * DILATION_H - PAD_TOP;
    int w = (int)(px % SIZE_Q) * STRIDE_W + s * DILATION_W - PAD_LEFT;
    offset_t n = px / (SIZE_P * SIZE_Q);
    if (px >= PIXELS || (unsigned)h >= SIZE_H || (unsigned)w >= SIZE_W) return 0.0f;
    return x[X_AT(n, c, h, w)];
}

BOUNDED_KERNEL(im2col, THREADS, 1)(const GLOBAL float *RESTRICT x, GLOBAL float *RESTRICT columns) {
    CHAIN_WAIT();
    CHAIN_NEXT();
#if TURNED
    SHARED_ARRAY(turned);  // [channel][33]
    const int across = THREAD(0) % 32, down = THREAD(0) / 32, rs = GROUP(0) / PX_TILES % RS;
    const offset_t px0 = (offset_t)(GROUP(0) % PX_TILES) * 32;
    const int c0 = GROUP(0) / (PX_TILES * RS) * 32;
    const int c = c0 + across;
    UNROLL for (int i = down; i < 32; i += THREADS / 32)
        turned[across * 33 + i] = c < SIZE_C ? input_at(x, px0 + i, c, rs / SIZE_S, rs % SIZE_S) : 0.0f;
    BARRIER();
    UNROLL for (int i = down; i < 32; i += THREADS / 32)
        if (c0 + i < SIZE_C && px0 + across < PITCH)
            columns[((offset_t)(c0 + i) * RS + rs) * PITCH + px0 + across] = turned[i * 33 + across];
#else
    const offset_t item = (offset_t)GROUP(0) * THREADS + THREAD(0), px = item % QUADS * 4;
    const int part = item / QUADS % PARTS, c0 = (int)(item / QUADS / PARTS) * CHANNELS;
    for (int c = c0; c < c0 + CHANNELS && c < SIZE_C; c++)
        for (int tap = part * (RS / PARTS); tap < (part + 1) * (RS / PARTS); tap++) {
            float quad[4];
            UNROLL for (int i = 0; i < 4; i++) quad[i] = input_at(x, px + i, c, tap / SIZE_S, tap % SIZE_S);
            store4(columns + ((offset_t)c * RS + tap) * PITCH + px, quad);
        }
#endif
}
