// The filter of a depthwise layer as the toeplitz family stages it, [K][R][PACK_TAPS] numbers: f16 or bf16, f16 of i8
// and e4m3, tf32 of f32.
//
//   PACK_FIRST  zeros before a row's taps      PACK_STEP  from one tap to the next, zeros between (dilation)
//   PACK_TAPS   numbers of a row, zeros to its end
//
// Example: 7x7, PACK_FIRST = 7, PACK_TAPS = 24: each row is 7 zeros, 7 taps, 10 zeros.

#include "loop.h"
#include "types.h"
#include "mma_tf32.h"

#if DTYPE == 1
#define STAGED(v) tf32_of(float_bits(v))
#define OF_WORD 1  // numbers
#elif DTYPE == 4 || DTYPE == 5
#define STAGED(v) float_half(widened(v))
#else
#define STAGED(v) (v)
#endif
#ifndef OF_WORD
#define OF_WORD 2
#endif
#define WORDS (PACK_TAPS / OF_WORD)  // of a row
#define PACKED ((offset_t)GROUP_COUNT * SIZE_R * WORDS)

KERNEL(pack)(GLOBAL const in_t *RESTRICT w, GLOBAL unsigned *RESTRICT packed) {
    FOR_EACH(item, PACKED) {
        const offset_t row = item / WORDS;
        unsigned word = 0;
        for (int j = 0; j < OF_WORD; j++) {
            const int i = (int)(item % WORDS) * OF_WORD + j - PACK_FIRST;
            if (i >= 0 && i % PACK_STEP == 0 && i / PACK_STEP < SIZE_S)
                word |= (unsigned)STAGED(w[row * SIZE_S + i / PACK_STEP]) << 16 * j;
        }
        packed[item] = word;
    }
}
