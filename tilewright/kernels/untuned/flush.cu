// flush: reads a clean buffer of several times the last cache, so that nothing else is left in it.
// It does not write: dirty lines would take bandwidth from the kernel that is timed next.
// The same kernel measures read bandwidth.  BUFFER_FLOATS: a multiple of VECTOR.

#include "loop.h"

KERNEL(flush)(GLOBAL const float *RESTRICT buffer, GLOBAL float *RESTRICT sink) {
    float parts[VECTOR], sum = 0.0f;
    vec total;
    vec_zero(&total);
    FOR_EACH(i, BUFFER_FLOATS / VECTOR) vec_fma(&total, vec_load(buffer + i * VECTOR), 1.0f);
    vec_unpack(parts, total);
    for (int i = 0; i < VECTOR; i++) sum += parts[i];
    if (sum == 1.25f) sink[0] = sum;  // never so for a buffer of zeros: it keeps the reads alive
}

// empty: what a launch alone costs.
KERNEL(empty)(GLOBAL float *RESTRICT sink) {}
