// Strassen's products: of two matrices cut up into 2x2 blocks seven products of sums of blocks, instead of eight.
//
//   A = (a0 a1; a2 a3), B = (b0 b1; b2 b3):  A B = (m0+m3-m4+m6  m2+m4; m1+m3  m0-m1+m2+m5) of
//
//   m0 (a0+a3)(b0+b3)   m1 (a2+a3)b0         m2 a0(b1-b3)         m3 a3(b2-b0)
//   m4 (a0+a1)b3        m5 (a2-a0)(b0+b1)    m6 (a1-a3)(b2+b3)
//
// Source: V. Strassen, "Gaussian Elimination is not Optimal", Numer. Math. 13, 1969. LEVELS 2: each product by seven
// again, of blocks of blocks: 49 for 64. Block 4 * outer + inner then, and product 7 * outer + inner.
// Example: part 9 of 49 (outer 1, inner 2) is of the blocks a0 of a2+a3, so of row 2, columns 0 and 2.

#define SEVEN 7
#define SIDE (1 << LEVELS)                   // blocks of a matrix along a side
#define MATRIX_PRODUCTS (LEVELS == 1 ? 7 : 49)
#define BELOW (LEVELS == 1 ? 1 : 4)          // blocks of a block

// With which sign a block, 0 to 3, is part of a factor of product m, and product m of a block of the answer.
INLINE int sign_in_a(int m, int block) {
    const int signs[7][4] = {{1, 0, 0, 1}, {0, 0, 1, 1}, {1, 0, 0, 0}, {0, 0, 0, 1},
                             {1, 1, 0, 0}, {-1, 0, 1, 0}, {0, 1, 0, -1}};
    return signs[m][block];
}
INLINE int sign_in_b(int m, int block) {
    const int signs[7][4] = {{1, 0, 0, 1}, {1, 0, 0, 0}, {0, 1, 0, -1}, {-1, 0, 1, 0},
                             {0, 0, 0, 1}, {1, 1, 0, 0}, {0, 0, 1, 1}};
    return signs[m][block];
}
INLINE int sign_of(int m, int block) {
    const int signs[7][4] = {{1, 0, 0, 1}, {0, 0, 1, -1}, {0, 1, 0, 1}, {1, 0, 1, 0},
                             {-1, 1, 0, 0}, {0, 0, 0, 1}, {1, 0, 0, 0}};
    return signs[m][block];
}

// Where block 4 * outer + inner lies: its row and its column of blocks.
INLINE int row_of(int block) { return LEVELS == 1 ? block / 2 : block / 8 * 2 + block % 4 / 2; }
INLINE int column_of(int block) { return LEVELS == 1 ? block % 2 : block / 4 % 2 * 2 + block % 2; }
