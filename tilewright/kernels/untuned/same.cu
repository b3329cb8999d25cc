// same: counts the words of WORD_BYTES (1, 2 or 4) in which two buffers differ; each thread leaves its count.
// Words, not numbers: a NaN equals itself and -0 differs from 0. Example: two runs of one kernel.

#include "loop.h"

#if WORD_BYTES == 1
typedef unsigned char word_t;
#elif WORD_BYTES == 2
typedef unsigned short word_t;
#else
typedef unsigned word_t;
#endif

KERNEL(same)(GLOBAL const word_t *RESTRICT a, GLOBAL const word_t *RESTRICT b, GLOBAL unsigned *RESTRICT found) {
    unsigned count = 0;
    FOR_EACH(i, ELEMENTS) count += a[i] != b[i];
    found[THREAD_ID] = count;
}
