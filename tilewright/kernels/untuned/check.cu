// check: y (out_t; i8 if Y_I8) against ref and size (f64) of the reference, each thread over its share of elements.
//
//   bound = limits[0] * size + limits[1] * |ref| + limits[2]          error = |y - ref|
//   limits[3]: where |ref| + bound reaches it, an infinity of ref's sign is no error
//
// Each thread leaves 8 figures, which the host puts together:
//   0 largest error / bound    1 the bound there           2 largest error     3 errors over bound
//   4 not equal to (out_t)ref  5 NaN where ref is a number 6 Inf where ref is a number
//   7 a number where ref is NaN or Inf; with ALIKE also NaN for Inf, Inf for NaN, and Inf of the other sign
// An element that was never written is still the NaN it was filled with: it counts under 5; an i32 is
// then -1, which is no answer either unless the answer is -1.

#include "loop.h"
#include "types.h"

#define LARGEST 1.7e308
#define FINITE(v) ((v) >= -LARGEST && (v) <= LARGEST)
#define SIZE_OF(v) ((v) < 0 ? -(v) : (v))
#define SAME_SIDE(a, b) (((a) > 0) == ((b) > 0) && ((a) < 0) == ((b) < 0))  // of 0, where a NaN is on neither
#if DTYPE == 4 && Y_I8
typedef signed char y_t;
#else
typedef out_t y_t;
#endif
#if DTYPE == 4
#define AS_STORED(v) (v)
#define LOADED(p) (*(p))
#else
#define LOADED(p) out_load(p)
#define AS_STORED(v) (double)widened(narrowed((acc_t)(v)))
#endif

KERNEL(check)(GLOBAL const y_t *RESTRICT y, GLOBAL const double *RESTRICT ref,
              GLOBAL const double *RESTRICT size, GLOBAL const double *RESTRICT limits,
              GLOBAL double *RESTRICT found) {
    double worst = 0, worst_bound = 0, largest = 0;
    double over = 0, unequal = 0, not_written = 0, infinite = 0, missed = 0;
    FOR_EACH(i, ELEMENTS) {
        double value = LOADED(y + i), want = ref[i];
        if (!FINITE(want)) {
            missed += FINITE(value) || (ALIKE && !SAME_SIDE(value, want));
            continue;
        }
        double bound = limits[0] * size[i] + limits[1] * SIZE_OF(want) + limits[2];
        unequal += value != AS_STORED(want);
        not_written += value != value;
        if (!FINITE(value)) {
            int right = SIZE_OF(want) + bound >= limits[3] && (value > 0) == (want > 0);
            infinite += value == value && !right;
            continue;
        }
        double error = SIZE_OF(value - want);
        over += error > bound;
        largest = error > largest ? error : largest;
        if (error >= worst * bound) {
            worst = error / bound;
            worst_bound = bound;
        }
    }
    GLOBAL double *mine = found + THREAD_ID * 8;
    mine[0] = worst, mine[1] = worst_bound, mine[2] = largest, mine[3] = over;
    mine[4] = unequal, mine[5] = not_written, mine[6] = infinite, mine[7] = missed;
}
