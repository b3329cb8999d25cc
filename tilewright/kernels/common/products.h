// What tensor cores multiply where DTYPE does not say it: PRODUCTS; and how a kernel before has copied (COPIED_AS) or
// packed (PACK_PRODUCTS) it. products.py has the same names.

#define PLAIN 0        // numbers of DTYPE
#define TF32 1         // f32 in memory, rounded to 11 bits
#define THREE 2        // f32 in memory; each number is the sum of two of tf32, and a product that of three (mma_tf32.h)
#define E4M3 3         // f8 in memory, sm_89 and later
#define E4M3_AS_F16 4  // f8 in memory, widened to f16 on its way
#define HALVES 5       // f32 in memory; each number is the sum of two of f16, moved by powers of two (halves.h)
#define DOUBLE 6       // f64
#ifndef PRODUCTS
#define PRODUCTS PLAIN
#endif
