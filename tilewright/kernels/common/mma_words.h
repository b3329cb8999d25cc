// What mma.sync multiplies in kernels whose packers order the filter by words: words of IN_WORD numbers.
//
//   NUMBER_BYTES IN_WORD   a number of x and of the filter; numbers of a word of four bytes
//   BITS_OF(v)             a number as it is multiplied, by its bits: f32 comes here as tf32 alone

#include "mma_tf32.h"

#define NUMBER_BYTES (DTYPE == 4 ? 1 : DTYPE == 1 ? 4 : 2)
#define IN_WORD (4 / NUMBER_BYTES)
#if DTYPE == 1
#define BITS_OF(v) tf32_of(float_bits(v))
#elif DTYPE == 4
#define BITS_OF(v) (unsigned)(unsigned char)(v)
#else
#define BITS_OF(v) (unsigned)(v)
#endif
