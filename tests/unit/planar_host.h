// planar.cu on the host (numbers_host.h), and what it has of its own: outputs go by way of a tile in shared memory.
#define TILE "planar_tile.h"
#define PIXELS_IN HW
#define PIXELS_OUT HW
#define TAPS 1
#define CHUNKS 8
#define PACKED_BYTES (K_TILES * STEPS * W_BYTES)
#include "numbers_host.h"
#if PRODUCTS == TF32
#include "mma_tf32.h"
#endif
#define STORERS (128 * TEAMS)

struct Output {
    out_t bits;
    Output(out_t bits = 0) : bits(bits) {}
    Output &operator=(const Output &from) {
        bits = from.bits;
        const bool shared = (void *)this >= memory && (void *)this < memory + sizeof memory;
        if (shared) mark_written(place_of(this), sizeof bits);
        return *this;
    }
};
struct Given {  // an Epilogue that stores these
    const out_t *bias, *z;
    Output *y;
    operator Epilogue() const { return {bias, z, (out_t *)y}; }
};
#define done_t Output
#define Epilogue Given
static void store_bulk(done_t *to, shared_t from, int bytes) {
    const bool known = within(to, bytes, outputs);
    CHECK(known && is_whole(to, from, bytes), "a store of %d bytes from %d", bytes, place_of(from));
    CHECK(is_seen(from, bytes), "what is stored is not seen by copies yet");
    Fiber *mine = me;
    mine->copies++;
    begin([=] {
        CHECK(alive[block_of(from)], "block %d is gone", block_of(from));
        return memcpy((void *)to, memory + from, bytes), mine->copies--, true;
    });
}
static void stores_read() {
    wait_until([] { return !me->copies; });
}
