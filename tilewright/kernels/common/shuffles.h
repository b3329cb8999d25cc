// Lanes of two vectors (lanes.h) in another order.
//
//   LOW HIGH     lanes of both by turns, of their lower or of their upper halves
//   EVEN ODD     every other lane of the first, then of the second
//   turn_lanes   lane j of vector i becomes lane i of vector j, by perfect shuffles

#if VECTOR == 16
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31)
#elif VECTOR == 8
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)
#else
#define LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define EVEN(a, b) __builtin_shufflevector(a, b, 0, 2, 4, 6)
#define ODD(a, b) __builtin_shufflevector(a, b, 1, 3, 5, 7)
#endif

#if VECTOR == 8  // the same by what AVX has instructions for: lanes stay in their half, then halves change places
INLINE void turn_lanes(wide v[8]) {
    wide pairs[8], fours[8];
    UNROLL for (int j = 0; j < 8; j += 2) {
        pairs[j] = __builtin_shufflevector(v[j], v[j + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        pairs[j + 1] = __builtin_shufflevector(v[j], v[j + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    UNROLL for (int j = 0; j < 8; j += 4)
        UNROLL for (int i = 0; i < 2; i++) {
            wide a = pairs[j + i], b = pairs[j + i + 2];
            fours[j + 2 * i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13);
            fours[j + 2 * i + 1] = __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
        }
    UNROLL for (int j = 0; j < 4; j++) {
        v[j] = __builtin_shufflevector(fours[j], fours[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        v[j + 4] = __builtin_shufflevector(fours[j], fours[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}
#else
INLINE void turn_lanes(wide v[VECTOR]) {
    UNROLL for (int size = 1; size < VECTOR; size *= 2) {
        wide next[VECTOR];
        UNROLL for (int j = 0; j < VECTOR / 2; j++) {
            next[2 * j] = LOW(v[j], v[j + VECTOR / 2]);
            next[2 * j + 1] = HIGH(v[j], v[j + VECTOR / 2]);
        }
        UNROLL for (int j = 0; j < VECTOR; j++) v[j] = next[j];
    }
}
#endif
