// nhwc: the input (nchw, or nhwc that is not aligned or has other channels than whole chunks) as the mma family
// reads it: [n][h][w][group][CC] chunks of 16 bytes, EACH channels each; channels past the last one are zeros.
//
// nchw: a thread writes a chunk of each of THREAD_PIXELS neighbours, whose numbers it loads as words of 4 bytes where x
// is aligned (PAIRED); of one pixel where planes do not begin at words, in twice as many blocks (4% of a small layer).
// Two neighbouring threads take neighbouring chunks, so that sectors of 32 bytes are written whole, the next two the
// next pixels. nhwc: a thread writes one chunk, neighbouring threads neighbouring ones.
// COPIED_AS (products.h; else it moves elements of DTYPE): what the chunks are made for.
// SPLIT: numbers are split in two: of each group of a pixel CC chunks of high parts, then CC of low ones. THREE: of
// tf32 (mma_tf32.h); HALVES: of f16, moved as the largest number asks for that the BLOCKS of largest.cu have found; how
// far is left in found[0], what speaks against it in found[1] (halves_guard.h).
// FOLD (fold.py, nchw): channel s * (C / FOLD) + c of column w is channel c of column w * FOLD + s of x.
// Example: 512 x 8 x 8 of f16: 2,048 threads read sixteen numbers each, of pixels 2i and 2i + 1.

#include "products.h"
#include "types.h"

#ifndef SPLIT
#define SPLIT 0
#endif
#ifndef FOLD
#define FOLD 1
#endif
#ifndef COPIED_AS
#define COPIED_AS PLAIN
#endif
#if COPIED_AS == PLAIN
typedef in_t x_t;
#define EACH (16 / (DTYPE == 4 ? 1 : 2))
#define BITS_OF(v) (v)
#elif COPIED_AS == TF32 || COPIED_AS == THREE
typedef unsigned x_t;
#define EACH 4
#define BITS_OF(v) (v)
#elif COPIED_AS == DOUBLE
typedef unsigned x_t;  // half a number
#define EACH 4
#define WORDS 2  // of a number
#define BITS_OF(v) (v)
#elif COPIED_AS == HALVES
typedef unsigned x_t;
#define EACH 8
#define BITS_OF(v) (v)
#else
#include "e4m3.h"
typedef unsigned char x_t;
#define EACH (COPIED_AS == E4M3 ? 16 : 8)
#define BITS_OF(v) (COPIED_AS == E4M3 ? (unsigned)(v) : (unsigned)half_of_e4m3(v))
#endif
#ifndef WORDS
#define WORDS 1
#endif
#if COPIED_AS == HALVES
#include "halves.h"
#include "halves_guard.h"
#define FOUND , GLOBAL int *RESTRICT found
#define LOW_OF(v) split_halves(v, shift)
#else
#include "mma_tf32.h"
#define FOUND
#define LOW_OF(v) tf32_of(split(v))
#endif
#define CHUNKS_OF_PIXEL (GROUPS_ * CC)
#define PLANE (H * W)
#define CHUNK_TILES CEIL_DIV(CHUNKS_OF_PIXEL, CHUNKS_WIDE)
#define PIXELS_WIDE (256 / CHUNKS_WIDE * THREAD_PIXELS)  // of a block, and CHUNKS_WIDE chunks of each
#define PAIRED (X_ALIGNED && FOLD == 1 && THREAD_PIXELS > 1 && PLANE % THREAD_PIXELS == 0)
#define C_OF_X (GROUPS_ * C / FOLD)

// Where channel `channel` of a pixel is in x.
INLINE offset_t number_at(int pixel, offset_t channel) {
    if (X_NHWC) return (offset_t)pixel * (GROUPS_ * C) + channel;
    const offset_t plane = pixel / PLANE * (offset_t)C_OF_X + channel % C_OF_X;
    return (plane * PLANE + pixel % PLANE) * FOLD + channel / C_OF_X;
}

// Load the numbers of a chunk, zeros where there are none, of THREAD_PIXELS pixels from the first on.
INLINE void load_numbers(x_t numbers[THREAD_PIXELS][EACH], const GLOBAL x_t *x, int pixel, int chunk) {
    const int here = chunk < CHUNKS_OF_PIXEL, c = chunk % CC * (EACH / WORDS);
    const offset_t channel = chunk / CC * C + c;
    UNROLL for (int e = 0; e < EACH; e++) {
#if PAIRED
        const int keep = here && pixel < N * PLANE && c + e < C;
        const unsigned word = keep ? *(const GLOBAL unsigned *)(x + number_at(pixel, channel + e)) : 0;
        UNROLL for (int i = 0; i < THREAD_PIXELS; i++) numbers[i][e] = (x_t)(word >> (32 / THREAD_PIXELS * i));
#else
        UNROLL for (int i = 0; i < THREAD_PIXELS; i++)
            numbers[i][e] = here && pixel + i < N * PLANE && c + e / WORDS < C
                                ? x[number_at(pixel + i, channel + e / WORDS) * WORDS + e % WORDS]
                                : 0;
#endif
    }
}

BOUNDED_KERNEL(nhwc, 256, 1)(const GLOBAL x_t *RESTRICT x, GLOBAL unsigned *RESTRICT to FOUND) {
    int first, chunk;
    CHAIN_BEGIN();
    CHAIN_NEXT();
#if X_NHWC
    offset_t item = (offset_t)GROUP(0) * 256 + THREAD(0);
    first = item / CHUNKS_OF_PIXEL, chunk = item % CHUNKS_OF_PIXEL;
#else
    const int t = THREAD(0), warp = t / 32, pair = warp % (CHUNKS_WIDE / 2);
    const int neighbour = warp / (CHUNKS_WIDE / 2) * 16 + t % 32 / 2;
    first = GROUP(0) / CHUNK_TILES * PIXELS_WIDE + neighbour * THREAD_PIXELS;
    chunk = GROUP(0) % CHUNK_TILES * CHUNKS_WIDE + pair * 2 + t % 2;
#endif
    x_t many[THREAD_PIXELS][EACH];
    load_numbers(many, x, first, chunk);
    CHAIN_WAIT();
#if COPIED_AS == HALVES
    SHARED_FLAG(most);
    const int largest = largest_of_block(THREAD(0) < BLOCKS ? fresh_int(found + 2 + THREAD(0)) : 0, most);
    const int shift = shift_of(largest);
    if (GROUP(0) == 0 && THREAD(0) == 0) found[0] = shift;
    float misfits = 0;
    UNROLL for (int e = 0; e < EACH; e++) misfits += misfit(many[0][e], largest);
    add_misfits((GLOBAL acc_t *)found + 1, misfits, (offset_t)N * PLANE * (GROUPS_ * C));
#endif
    UNROLL for (int i = 0; i < THREAD_PIXELS; i++) {
        const int pixel = first + i;
        const x_t *numbers = many[i];
        if (pixel >= N * PLANE || chunk >= CHUNKS_OF_PIXEL) continue;
        unsigned words[4] = {0, 0, 0, 0}, low[4] = {0, 0, 0, 0};
        UNROLL for (int e = 0; e < EACH; e++) {
            unsigned bits = BITS_OF(numbers[e]);
            if (SPLIT) low[e * 4 / EACH] |= LOW_OF(&bits) << (e * (128 / EACH) % 32);
            words[e * 4 / EACH] |= (EACH == 16 ? bits & 0xff : bits) << (e * (128 / EACH) % 32);
        }
        const offset_t place = (offset_t)pixel * ((1 + SPLIT) * CHUNKS_OF_PIXEL) + chunk + SPLIT * (chunk / CC * CC);
        GLOBAL float *at = (GLOBAL float *)(to + place * 4);
        if (SPLIT) store4(at + CC * 4, (const float *)low);
        store4(at, (const float *)words);  // bits, not numbers
    }
}
