// shifted.cu on the host (numbers_host.h).
#define TILE "shifted_tile.h"
#define PIXELS_IN (H * W)
#define PIXELS_OUT (P * Q)
#define PACKED_BYTES (K_TILES * STEPS * STEP_BYTES)
#define TAPS (R * S)
#include "numbers_host.h"
#if PRODUCTS == TF32
#include "mma_tf32.h"
#endif
