// Whether numbers may be split in two of f16 (halves.h): what the split loses of them is told by their largest.
//
//   misfit        what a number counts against the split, by its bits and those of the largest: 0 if it is zero or at
//                 least 2^-28 of that, and keeps 22 bits; 1 if it is smaller; MANY if it would keep fewer than 11 bits,
//                 below 2^-39, or is not finite
//   unfit         whether that is too much of `count` numbers, in all
//   add_misfits   add it up in global memory, from any thread, until it is too much
//
// One number in 4096 may be smaller, and one more: of a million normal numbers one is in 1.5% of all tensors, and does
// no harm beside the others under the same filter. Channels or regions of another scale have many.

#define MANY 1e9f

INLINE float misfit(unsigned bits, int largest) {
    const float size = fabs(bits_float(bits)), most = bits_float(largest);
    if (size >= most * power(-28) || size == 0) return size < bits_float(0x7f800000u) ? 0 : MANY;
    return size >= most * power(-39) ? 1 : MANY;  // NaN is not
}

INLINE int unfit(float misfits, offset_t count) { return misfits > 1 + count / 4096; }

INLINE void add_misfits(GLOBAL acc_t *total, float misfits, offset_t count) {
    if (misfits > 0 && !unfit(load_fresh(total), count)) atomic_add(total, misfits);
}
