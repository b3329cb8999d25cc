// adapted: what is done before and behind a kernel of another dtype, for f8 and for requantised i8.
//
//   widen    e4m3 to f16, element by element: every e4m3 is an f16
//   requant  y[i] = clamp(round(scale[k] * (f32) sums[i]), -128, 127), k the channel of element i
//
// e4m3: a sign, 4 bits of exponent, 3 of fraction; 0x7f and 0xff are NaN, there is no infinity. Its bits, moved
// up by 7, are those of an f16 whose exponent is 8 too small. Example: 0x38 is 1.0, 0x7e is 448.

#include "loop.h"
#include "requant.h"
#include "e4m3.h"

#if REQUANT  // ELEMENTS of y
KERNEL(requant)(GLOBAL const int *RESTRICT sums, GLOBAL const float *RESTRICT scale, GLOBAL signed char *RESTRICT y) {
    FOR_EACH(i, ELEMENTS) {
        int k = Y_NHWC ? i % CHANNELS : i / PIXELS % CHANNELS;
        y[i] = requantised(sums[i], scale[k]);
    }
}
#else  // ELEMENTS of x, W_ELEMENTS of w
KERNEL(widen)(GLOBAL const unsigned char *RESTRICT x, GLOBAL unsigned short *RESTRICT wide_x,
              GLOBAL const unsigned char *RESTRICT w, GLOBAL unsigned short *RESTRICT wide_w) {
    FOR_EACH(i, ELEMENTS) wide_x[i] = half_of_e4m3(x[i]);
    FOR_EACH(j, W_ELEMENTS) wide_w[j] = half_of_e4m3(w[j]);
}
#endif
