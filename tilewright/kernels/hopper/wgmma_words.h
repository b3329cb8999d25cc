// wgmma (wgmma.h) with A from registers: a warp has 16 of its 64 rows, and a lane four words of each product. Word
// 2 e + h is of row lane / 4 + 8 h, and the lane % 4th of half e of the row's 32 bytes.
//
//   wg_multiply_words   D += A B, of as many columns as the table has

#define SPAN 0
#include "wgmma.h"

// After the sums: the words of A, and the descriptor of B.
#define WG_A_4 "{%16, %17, %18, %19}, %20"
#define WG_A_8 "{%32, %33, %34, %35}, %36"
#define WG_A_12 "{%48, %49, %50, %51}, %52"
#define WG_A_16 "{%64, %65, %66, %67}, %68"
#define WG_A_24 "{%96, %97, %98, %99}, %100"
#define WG_A_32 "{%128, %129, %130, %131}, %132"
#if PRODUCTS == TF32
#define WG_AFTER ", 1, 1, 1;"
#else
#define WG_AFTER ", 1, 1, 1, 0;"
#endif

INLINE void wg_multiply_words(acc_t d[WG_WORDS], const unsigned a[4], unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n" WG_TEXT(WG_N) WG_KIND " {" TW_JOIN(WG_REGS_, WG_EIGHTHS) "}, "
                 TW_JOIN(WG_A_, WG_EIGHTHS) WG_AFTER
                 : TW_JOIN(WG_OUT_, WG_EIGHTHS) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
