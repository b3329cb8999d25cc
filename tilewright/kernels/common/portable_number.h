// For kernels of tensor cores where they run without them, in OpenCL C:
//
//   number_at   a number of x or w in shared memory, as products have it (products.h): of tf32 rounded
//   filter_at   that of rows of `width` pieces (operand.h), the number-th of row `row`

#include "operand.h"

INLINE acc_t number_at(const SHARED unsigned char *from) {
#if PRODUCTS == TF32
    return bits_float(tf32_of(*(const SHARED uint *)from));
#else
    return widened(*(const SHARED in_t *)from);
#endif
}

INLINE acc_t filter_at(const SHARED unsigned char *rows, int width, int row, int number) {
    return number_at(rows + swizzled(row * (width * 16) + number * (int)sizeof(in_t), width));
}
