// hopper.cu on the host (async_host.h), for its protocol alone: there are no numbers. Of shared memory it is known what
// every 16 bytes are a copy of: NOTHING while a copy is under way. Products check that they read what their step needs.
#include "async_host.h"

enum { NOTHING = -1 };
static std::vector<long> holds[CLUSTER];
struct Own {
    long step;  // that a thread multiplies next
    long raw;   // first channel of what it turns
};
static std::vector<Own> owned;
static Own &own() { return owned[me - fibers.data()]; }
void prepare() {
    for (auto &one : holds) one.assign(SHARED_END / 16 + 1, NOTHING);
    owned.assign(fibers.size(), Own());
    pace.copies = OFTEN[rng() % 3], pace.products = AT_LAST;
}
void spoil(shared_t to, int bytes) { std::fill_n(&holds[block_of(to)][place_of(to) / 16], bytes / 16, NOTHING); }

// ---- the dialect
#define TILE_ARRAY(name) const shared_t name = own_block() * ROOM
#define SHARED_FLAG(name) int *name = 0
#define CHAIN_NEXT()
#define CHAIN_WAIT()
#define CHAIN_BEGIN()
#define X_PARAM const x_t *x
#define X_ADDRESS x
#define X_MOVED 0
#define X_MOVED_PARAM
#define X_IS_MAP MAPPED
#define WG_FORM(sum) "+m"(sum)
#define WG_WORDS (WG_N / 2)
#define SPAN_PIECES (LINE * CHUNKS)
#define SPLITS (SC * SG)
#define FIRST_OF_SHARE(share, steps) ((share) * (steps) / SPLITS)
#define POOL_HERE 0
#define FORWARD(extent) (extent)
#define SHARE_AT(at) 0
#define ROUNDED (PRODUCTS == TF32 || PRODUCTS == THREE)
#define PARTS (PRODUCTS == THREE || PRODUCTS == HALVES ? 2 : 1)
#define BYTES (ROUNDED ? 4 : PRODUCTS == E4M3 || DTYPE == 4 ? 1 : 2)  // of a number of x
#define LAST 3
typedef long offset_t;
typedef float acc_t;
typedef unsigned char out_t, done_t;
typedef struct { unsigned char bytes[BYTES]; } x_t;
typedef struct { int group, tile, sc, sg; } Place;
typedef struct { const out_t *bias, *z; done_t *y; } Epilogue;
#define epilogue(sum, ep, k, to) (sum)
#define narrowed(sum) ((out_t)(sum))
#define store_run(...)
#define done_of(sum, ep, k) narrowed(sum)
#define SCALE_PARAMETER
#define SCALE_ARGUMENT
static void read_two(int v[2], shared_t, int) { v[0] = v[1] = -1; }
static void read4(acc_t v[4], shared_t, int) { v[0] = v[1] = v[2] = v[3] = 0; }
static void image_soon(const void *) {}
static int read_int(shared_t, int) { return -1; }
static void write_int(shared_t, int, int) {}
static void write16(shared_t, int, const unsigned *) {}
static void wg_done(acc_t *) {}
static void write_transposed(shared_t, const unsigned *) {}
static int piece_at(int start, int, int, int) { return start; }
static const x_t *const IMAGE = 0;
static const unsigned char *const FILTERS = 0;

// ---- barriers
#define TEAMS_SYNC() meet(1, 128 * TEAMS, true)
#define GROUP_ARRIVE() meet(2, WORKERS, false)
#define GROUP_SYNC() meet(2, WORKERS, true)
#define CLUSTER_ARRIVE() if (CLUSTER > 1) cluster_arrive()
#define CLUSTER_WAIT() if (CLUSTER > 1) cluster_wait()

// ---- copies
static void copy_of(shared_t to, int bytes, shared_t bar, std::function<long(int)> what) {
    copy(to, bytes, bar, [=] {
        for (int i = 0; i < bytes; i += 16) holds[block_of(to)][(place_of(to) + i) / 16] = what(i);
    });
}
static long where(long c, long v, long h, long n) { return ((c * 1009 + v + 99) * 1009 + h + 99) * 1009 + n; }
static void bulk_copy(shared_t to, const unsigned char *from, int bytes, shared_t bar, unsigned mask) {
    const auto row = [=](int i) { return (from - FILTERS + i) / W_BYTES; };
    for (int rank = 0; rank < CLUSTER; rank++)
        if (COPIES > 1 ? mask >> rank & 1 : rank == me->block)
            copy_of(of_block(to, rank), bytes, of_block(bar, rank), row);
}
static void image_copy(shared_t to, const void *, int c, int v, int h, int n, int more_v, int more_h, shared_t bar) {
    copy_of(to, LINE * CHUNKS * 16, bar, [=](int) { return where(c, v + more_v, h + more_h, n); });
}
static void span_copy(shared_t to, const void *, int v, int c, int h, int n, shared_t bar) {
    copy_of(to, SPAN ? SPAN_PIECES * 16 : CHUNKS * 1024, bar, [=](int) { return where(c, v, h, n); });  // or a segment
}
static void bulk_to_block(shared_t to, shared_t, int bytes, shared_t bar, int rank) {
    const int from = me->block;
    copy_of(of_block(to, rank), bytes, of_block(bar, rank), [=](int) {
        CHECK(alive[from], "block %d is gone", from);
        return 0;
    });
}
static void send4(shared_t to, const acc_t *, shared_t bar) { copy_of(to, 16, bar, [](int) { return 0; }); }
static void wg_see_copies() {}
static void read_matrices(unsigned *, shared_t from) {
    if (me->thread % 32 == 0 && rng() % 4 == 0) hand_on();
    const long what = holds[block_of(from)][place_of(from) / 16], channel = what / (1009 * 1009 * 1009);  // of where()
    CHECK(what != NOTHING && channel == own().raw, "place %d has not what is to be turned", place_of(from));
}

// ---- products
static void wg_begin() {}
#define multiply_done(part, pending) WG_WAIT(pending)
#define multiply(sums, shared, a, a_next, b, b_next, adds, thread) reads_of(a, b)
static void reads_of(int a, int b) {
    const int w = a * 16 / W_BYTES * W_BYTES, x = X_FROM + (b * 16 - X_FROM) / X_BYTES * X_BYTES;
    if (me->thread % 32 == 0) product({w, W_BYTES}, {x, X_BYTES}, 0);
}
