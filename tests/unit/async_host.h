// A cluster of sm_90a on the host, for the protocol of a kernel: who waits, arrives, copies and reads.
//
// Each thread is a fiber; where it waits, it hands on to another. Copies and products are under way for a while, which
// is long or short (Pace). Checked is that nobody waits for ever, that no phase of a barrier has more
// arrivals than it counts, that nothing is written while products read it, that copies know only barriers behind a
// fence, and that no block is gone that others need.
//
// A family's harness (hopper_host.h, and what is on top of numbers_host.h) has the rest of what a kernel calls, and
//
//   prepare      what shared memory has when a cluster begins
//   spoil        a place of it is written to: nobody knows what it has, until a copy has come
//   run_kernel   the kernel, called by a thread
//
// This header and async_host.cpp are compiled once for all programs of a test run.
#ifndef ASYNC_HOST
#define ASYNC_HOST
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>
using std::max;
using std::min;

#define CHECK(good, ...) \
    if (!(good)) (printf(__VA_ARGS__), give_up())
enum { ROOM = 1 << 18 };
typedef unsigned shared_t;  // block * ROOM + a place

// ---- the dialect
#define INLINE static inline
#define GLOBAL
#define SHARED
#define RESTRICT
#define UNROLL
#define NO_UNROLL
#define UNROLL_BY(count)
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define THREAD(d) own_thread()
#define GROUP(d) (first_block + own_block())
#define GROUPS(d) GRID
#define BOUNDED_KERNEL(name, threads, blocks) static void name
#define BARRIER() meet(0, THREADS, true)
#define __syncwarp() meet_warp()
#define __shfl_sync(lanes, v, lane) (v)

// ---- a cluster
struct Span { int from, bytes; };  // of shared memory
struct Product {
    Span reads[2];
    std::function<void()> work;  // none where there are no numbers
};
struct Fiber {
    int block, thread, arrived, waited, copies;  // the last: under way
    int registers;                               // 0: as it began
    bool done;
    double slow;
    std::vector<Product> open;                 // not committed
    std::vector<std::vector<Product>> groups;  // under way
    std::function<bool()> ready;               // whether it goes on; none: it does
    bool begun;
    jmp_buf at;                  // where it goes on; to switch by setcontext is a system call
    ucontext_t context;          // where it begins
    std::unique_ptr<char[]> stack;
};
// How often a copy comes, or a warp's products end, each time that all warps have had their turn; or AT_ONCE; or
// AT_LAST: a copy when nobody goes on without it, products when they are waited for. Whether who arrives at a barrier
// lingers there, and lets others go on first.
struct Pace {
    double copies, products;
    bool lingers;
};
static const double AT_ONCE = 2, AT_LAST = 0, OFTEN[] = {1, 0.3, 0.02};  // the last: how often a warp goes on
struct Shape { int blocks, threads, bars_from, shared_end; };
extern Fiber *me;
extern std::vector<Fiber> fibers;
extern std::mt19937 rng;
extern Pace pace;
extern std::vector<char> alive;  // blocks
extern int first_block;

void give_up();  // says who did
void prepare();
void spoil(shared_t to, int bytes);
void run_kernel();
void run_cluster(Shape of, int first);

inline int own_thread() { return me->thread; }  // kernels may have a `me` of their own
inline int own_block() { return me->block; }
inline int place_of(shared_t at) { return at % ROOM; }
inline int block_of(shared_t at) { return at / ROOM; }
inline shared_t of_block(shared_t at, int rank) { return rank * ROOM + place_of(at); }
void hand_on();
void wait_until(std::function<bool()> ready);

// ---- barriers
void bar_init(shared_t at, int count);
void bar_init_done();
void bar_wait(shared_t at, int parity);
#define bar_wait_cluster bar_wait
void bar_arrive(shared_t at);
inline void bar_arrive_at(shared_t at, int rank) { bar_arrive(of_block(at, rank)); }
void bar_expect(shared_t at, int bytes);
void bar_after_copies(shared_t at);
void meet(int number, int count, bool waits);  // of a block's named barriers
inline void meet_warp() { meet(100 + me->thread / 32, 32, true); }
void have_registers(int count, int began);  // hand some on, or wait until others have
void cluster_arrive();
void cluster_wait();

// ---- copies
void written(shared_t to, int bytes);
void begin(std::function<bool()> end);  // what says whether it has come
void copy(shared_t to, int bytes, shared_t bar, std::function<void()> come);

// ---- products: what a warp has begun is under way until it is waited for, by all of its lanes
void product(Span reads, Span more, std::function<void()> work);  // by one lane
void wg_commit();
void WG_WAIT(int pending);
#endif
