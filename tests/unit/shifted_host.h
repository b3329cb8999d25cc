// shifted.cu on the host (numbers_host.h), and what it has of its own: planes of tf32 are rounded where they lie.
#define TILE "shifted_tile.h"
#define PIXELS_IN (H * W)
#define PIXELS_OUT (P * Q)
#define PACKED_BYTES (K_TILES * STEPS * S * W_BYTES)
#include "numbers_host.h"
#define SHIFTED_ARRAY(name) unsigned char *name = own_memory()

#if PRODUCTS == TF32
#include "mma_tf32.h"
static void load_four(unsigned v[4], shared_t from) { memcpy(v, memory + from, 16); }
static void store_four(shared_t to, const unsigned v[4]) { memcpy(memory + to, v, 16), mark_written(to, 16); }
#endif
