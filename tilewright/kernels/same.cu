// same: counts the 32-bit words in which two buffers differ; each thread leaves its own count.
// Words, not numbers: a NaN equals itself and -0 differs from 0. Example: two runs of one kernel.

#include "loop.h"

KERNEL(same)(GLOBAL const unsigned *RESTRICT a, GLOBAL const unsigned *RESTRICT b,
             GLOBAL unsigned *RESTRICT found) {
    unsigned count = 0;
    FOR_EACH(i, ELEMENTS) count += a[i] != b[i];
    found[THREAD_ID] = count;
}
