// What the kernel of the stem family and its packer must agree on.
//
//   W_REGS_OF(nhwc)        a lane's registers of the filter, for a piece of channels and a step; y is nhwc or not
//   W_RUN_OF(registers)    how many of so many a lane loads at once
//   FAN_P FAN_R FAN_W      planes, rows and words of a run that the four lanes of a pixel take at once, a word each
//   taps_of                what word j of the lane `quarter` is, of `rows` rows and `quarters` words of a run

#include "alternated.h"
#include "mma_words.h"

#define W_REGS_OF(nhwc) ((nhwc) ? 2 : 4)
#define W_RUN_OF(registers) ((registers) % 4 ? 2 : 4)

typedef struct {
    int plane, row, word;  // of the filter's planes and rows, and of a run
} Taps;

INLINE Taps taps_of(int j, int quarter, int rows, int quarters) {
    Taps it;
    it.word = j % quarters * FAN_W + quarter % FAN_W;
    it.row = j / quarters % (rows / FAN_R) * FAN_R + quarter / FAN_W % FAN_R;
    it.plane = j / quarters / (rows / FAN_R) * FAN_P + quarter / (FAN_W * FAN_R);
    return it;
}
