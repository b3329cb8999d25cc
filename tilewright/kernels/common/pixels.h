// Where an element of y, z or partial sums lies, for kernels whose tiles are of pixels in one row: those of all images.

INLINE offset_t pixel_at(int k, int px) {  // channel k (of all groups) of pixel px
    if (N == 1 && !Y_NHWC) return (offset_t)k * (P * Q) + px;
    return Y_NHWC ? (offset_t)px * (GROUPS_ * K) + k
                  : ((offset_t)(px / (P * Q)) * (GROUPS_ * K) + k) * (P * Q) + px % (P * Q);
}
