// Blocks that go from item to item, and their threads from unit to unit, for small and winograd_rows. bands.py has the
// same sizes. What stands still between items, the filter in shared memory, is brought there once.
//
//   item   BAND output rows of IMAGES images, one of ITEMS; under it there are XH rows of x
//   unit   TH rows and TK channels (VK vectors) at one place of a row: an item has IMAGES x P_PARTS x places x K_GROUPS
//
// w: packed for KP channels, zero padded.

#define KB 1  // the tile, as tile.h has it: it has no part in who computes what
#define HB 1
#define WB 1
#define VK (TK / VECTOR)
#define KP (K_GROUPS * TK)
#define P_PARTS CEIL_DIV(BAND, TH)
#define ITEMS (CEIL_DIV(N, IMAGES) * BANDS)
#define XH ((P_PARTS * TH - 1) * STR_H + (R - 1) * DIL_H + 1)

#include "tile.h"
