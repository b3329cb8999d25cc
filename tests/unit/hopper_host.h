// hopper.cu on the host, for its protocol alone: who waits, arrives, copies and reads; there are no numbers.
//
// Each thread of a cluster is a fiber; where it waits, it hands on to another. Copies are under way for a while. Of
// shared memory it is known what every 16 bytes are a copy of: NOTHING while a copy is under way. Checked is that
// nobody waits for ever, that no phase of a barrier has more arrivals than it counts, that nothing is written while
// products read it, that products read what their step needs, and that no block is gone that others need.
#include "hopper_host_library.h"
using std::max;
using std::min;

#define CHECK(good, ...) \
    if (!(good)) (printf(__VA_ARGS__), printf(" (block %d, thread %d)\n", me->block, me->thread), exit(1))
enum { NOTHING = -1, ROOM = 1 << 18, STACK = 1 << 16 };

// ---- the dialect
#define INLINE static inline
#define GLOBAL
#define SHARED
#define RESTRICT
#define UNROLL
#define NO_UNROLL
#define THREAD(d) (me->thread)
#define GROUP(d) (first_block + me->block)
#define GROUPS(d) GRID
#define TILE_ARRAY(name) const shared_t name = me->block * ROOM
#define BOUNDED_KERNEL(name, threads, blocks) static void name
#define SHARED_FLAG(name) int *name = 0
#define CHAIN_NEXT()
#define CHAIN_WAIT()
#define X_PARAM const x_t *x
#define X_ADDRESS x
#define X_MOVED 0
#define X_MOVED_PARAM
#define X_IS_MAP MAPPED
#define WG_FORM(sum) "+m"(sum)
#define WG_WORDS (WG_N / 2)
#define SPAN_PIECES (LINE * CHUNKS)
#define SPLITS (SC * SG)
#define POOL_HERE 0
#define FORWARD(extent) (extent)
#define SHARE_AT(at) 0
#define ROUNDED (PRODUCTS == TF32 || PRODUCTS == THREE)
#define PARTS (PRODUCTS == THREE || PRODUCTS == HALVES ? 2 : 1)
#define BYTES (ROUNDED ? 4 : PRODUCTS == E4M3 || DTYPE == 4 ? 1 : 2)  // of a number of x
#define LAST 3
typedef unsigned shared_t;  // block * ROOM + a place
typedef long offset_t;
typedef float acc_t;
typedef unsigned char y_t, out_t;
typedef struct { unsigned char bytes[BYTES]; } x_t;
typedef struct { int group, tile, sc, sg; } Place;
#define epilogue(sum, bias, k, z, at) (sum)
#define y_of(sum) ((y_t)(sum))
#define store_run(...)
#define done_t y_t
#define DONE_OF(sum, k) y_of(sum)
#define SCALE_PARAMETER
#define SCALE_ARGUMENT
static void read_two(int v[2], shared_t, int) { v[0] = v[1] = -1; }
static void read4(acc_t v[4], shared_t, int) { v[0] = v[1] = v[2] = v[3] = 0; }
#define __shfl_sync(lanes, v, lane) (v)
static void image_soon(const void *) {}
static int read_int(shared_t, int) { return -1; }
static void write_int(shared_t, int, int) {}
static void write16(shared_t, int, const unsigned *) {}
static void wg_done(acc_t *) {}
static void write_transposed(shared_t, const unsigned *) {}
static int piece_at(int start, int, int, int) { return start; }

// ---- fibers
struct Reads { int w, x; };  // where a tile of filters and a patch begin
struct Fiber {
    int block, thread, arrived, waited, copies;  // the last: under way
    bool done;
    double slow;
    long step;                   // that it multiplies next
    long raw;                    // first channel of what it turns
    std::vector<Reads> open;     // of products that are not committed
    std::vector<std::vector<Reads>> groups;  // under way
    bool begun;
    jmp_buf at;                  // where it goes on; to switch by setcontext is a system call
    ucontext_t context;          // where it begins
    std::vector<char> stack;
};
struct Bar { int count, pending, bytes, phase; };
static Fiber *me;
static jmp_buf chooser;
static std::mt19937 rng;
static std::vector<Fiber> fibers;
static std::map<shared_t, Bar> bars;
static std::map<std::pair<int, int>, Bar> named;             // by block and number
static std::vector<std::function<bool()>> under_way;         // each says whether it has come
static std::vector<long> holds[CLUSTER];
static int alive[CLUSTER], first_block;
static long progress;
static const x_t *const IMAGE = 0;
static const unsigned char *const FILTERS = 0;

static void hand_on() {
    if (!_setjmp(me->at)) _longjmp(chooser, 1);
}
static void go_on_with(Fiber *fiber) {
    me = fiber;
    if (_setjmp(chooser)) return;
    if (fiber->begun) _longjmp(fiber->at, 1);
    fiber->begun = true;
    setcontext(&fiber->context);
}
template <class F> static void wait_until(F ready) {
    while (!ready()) hand_on();
    progress++;
}
static int place_of(shared_t at) { return at % ROOM; }
static int block_of(shared_t at) { return at / ROOM; }
static shared_t of_block(shared_t at, int rank) { return rank * ROOM + place_of(at); }

// ---- barriers
static Bar &bar_at(shared_t at) {
    CHECK(bars.count(at), "no barrier at %d yet", place_of(at));
    CHECK(alive[block_of(at)], "block %d is gone", block_of(at));
    return bars[at];
}
static void turn(Bar &bar) {
    progress++;
    if (!bar.pending && !bar.bytes) bar.pending = bar.count, bar.phase++;
}
static void bar_init(shared_t at, int count) {
    const bool inside = place_of(at) >= BARS_FROM && place_of(at) + 8 <= SHARED_END;
    CHECK(inside && !bars.count(at), "a barrier at %d", place_of(at));
    bars[at] = Bar{count, count, 0, 0};
}
static void bar_init_done() {}
static void bar_wait(shared_t at, int parity) {
    wait_until([=] { return bar_at(at).phase % 2 != parity; });
}
#define bar_wait_cluster bar_wait
static void bar_arrive(shared_t at) {
    Bar &bar = bar_at(at);
    CHECK(bar.pending > 0, "more arrivals at barrier %d than it counts", (place_of(at) - BARS_FROM) / 8);
    bar.pending--, turn(bar);
}
static void bar_arrive_at(shared_t at, int rank) { bar_arrive(of_block(at, rank)); }
static void bar_expect(shared_t at, int bytes) { bar_at(at).bytes += bytes, bar_arrive(at); }
static void bar_after_copies(shared_t at) {
    Fiber *mine = me;
    under_way.push_back([=] { return mine->copies ? false : (bar_arrive(at), true); });
}
static void meet(int number, int count, bool waits) {
    Bar &bar = named.try_emplace({me->block, number}, Bar{count, count, 0, 0}).first->second;
    const int phase = bar.phase;
    bar.pending--, turn(bar);
    if (waits) wait_until([&] { return bar.phase != phase; });
}
#define BARRIER() meet(0, THREADS, true)
#define TEAMS_SYNC() meet(1, 128 * TEAMS, true)
#define GROUP_ARRIVE() meet(2, THREADS, false)
#define GROUP_SYNC() meet(2, THREADS, true)
#define __syncwarp() meet(100 + me->thread / 32, 32, true)
static void cluster_arrive() {
    CHECK(me->arrived == me->waited, "arrives at its cluster twice");
    me->arrived++, progress++;
}
static void cluster_wait() {
    CHECK(me->waited < me->arrived, "waits for its cluster, and has not arrived");
    const int phase = ++me->waited;
    wait_until([=] { return std::all_of(fibers.begin(), fibers.end(), [=](Fiber &f) { return f.arrived >= phase; }); });
}
#define CLUSTER_ARRIVE() if (CLUSTER > 1) cluster_arrive()
#define CLUSTER_WAIT() if (CLUSTER > 1) cluster_wait()

// ---- copies
static void written(shared_t to, int bytes) {
    const int start = place_of(to), stop = start + bytes;
    CHECK(alive[block_of(to)] && stop <= SHARED_END, "a copy to %d of block %d", start, block_of(to));
    for (Fiber &f : fibers) {
        std::vector<Reads> reads = f.open;
        for (auto &group : f.groups) reads.insert(reads.end(), group.begin(), group.end());
        for (Reads r : reads) {
            const bool apart = (stop <= r.w || r.w + W_BYTES <= start) && (stop <= r.x || r.x + X_BYTES <= start);
            CHECK(f.block != block_of(to) || apart, "place %d is written while thread %d reads it", start, f.thread);
        }
    }
    std::fill_n(&holds[block_of(to)][start / 16], bytes / 16, NOTHING);
}
static void copy(shared_t to, int bytes, shared_t bar, std::function<long(int)> what) {
    written(to, bytes);
    under_way.push_back([=] {
        for (int i = 0; i < bytes; i += 16) holds[block_of(to)][(place_of(to) + i) / 16] = what(i);
        bar_at(bar).bytes -= bytes, turn(bar_at(bar));
        return true;
    });
}
static long where(long c, long v, long h, long n) { return ((c * 1009 + v + 99) * 1009 + h + 99) * 1009 + n; }
static void bulk_copy(shared_t to, const unsigned char *from, int bytes, shared_t bar, unsigned mask) {
    for (int rank = 0; rank < CLUSTER; rank++)
        if (COPIES > 1 ? mask >> rank & 1 : rank == me->block)
            copy(of_block(to, rank), bytes, of_block(bar, rank), [=](int i) { return (from - FILTERS + i) / W_BYTES; });
}
static void image_copy(shared_t to, const void *, int c, int v, int h, int n, int more_v, int more_h, shared_t bar) {
    copy(to, LINE * CHUNKS * 16, bar, [=](int) { return where(c, v + more_v, h + more_h, n); });
}
static void span_copy(shared_t to, const void *, int v, int c, int h, int n, shared_t bar) {
    copy(to, SPAN ? SPAN_PIECES * 16 : CHUNKS * 1024, bar, [=](int) { return where(c, v, h, n); });  // or a segment
}
static void bulk_to_block(shared_t to, shared_t, int bytes, shared_t bar, int rank) {
    const int from = me->block;
    copy(of_block(to, rank), bytes, of_block(bar, rank), [=](int) {
        CHECK(alive[from], "block %d is gone", from);
        return 0;
    });
}
static void send4(shared_t to, const acc_t *, shared_t bar) { copy(to, 16, bar, [](int) { return 0; }); }
static void wg_see_copies() {}
static void read_matrices(unsigned *, shared_t from) {
    if (me->thread % 32 == 0 && rng() % 4 == 0) hand_on();
    const long what = holds[block_of(from)][place_of(from) / 16], channel = what / (1009 * 1009 * 1009);  // of where()
    CHECK(what != NOTHING && channel == me->raw, "place %d has not what is to be turned", place_of(from));
}

// ---- products: what a warp has begun is under way until it is waited for, by all of its lanes
static void wg_begin() {}
static void wg_commit() { me->groups.push_back(me->open), me->open.clear(); }
static void WG_WAIT(int pending) {
    while ((int)me->groups.size() > pending) me->groups.erase(me->groups.begin());
    __syncwarp();
}
#define multiply_done(part, pending) WG_WAIT(pending)
#define multiply(sums, shared, a, a_next, b, b_next, adds, thread) reads_of(a, b)
static void reads_of(int a, int b) {
    const int w = a * 16 / W_BYTES * W_BYTES, x = X_FROM + (b * 16 - X_FROM) / X_BYTES * X_BYTES;
    if (me->thread % 32 == 0) me->open.push_back(Reads{w, x});
}
