// For kernels of tensor cores where they run without them, in OpenCL C:
//
//   number_at   a number of x or w in shared memory, as products have it (products.h): of tf32 rounded

INLINE acc_t number_at(const SHARED unsigned char *from) {
#if PRODUCTS == TF32
    return bits_float(tf32_of(*(const SHARED uint *)from));
#else
    return widened(*(const SHARED in_t *)from);
#endif
}
