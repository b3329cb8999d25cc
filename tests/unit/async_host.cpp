#include "async_host.h"

enum { STACK = 1 << 16 };
struct Bar { int count, pending, bytes, phase; const Fiber *unseen; };  // the last: who began it, without a fence
Fiber *me;
std::vector<Fiber> fibers;
std::mt19937 rng;
Pace pace;
std::vector<char> alive;
int first_block;
static Shape shape;
static jmp_buf chooser;
static std::map<shared_t, Bar> bars;
static std::map<std::pair<int, int>, Bar> named;  // by block and number
static std::vector<std::function<bool()>> under_way;
static std::map<int, int> handed_on;   // registers that no thread has, by block
static std::map<int, size_t> arrived;  // how many threads at their cluster, by phase

void give_up() {
    printf(" (block %d, thread %d)\n", me->block, me->thread), fflush(stdout);
    _Exit(1);  // no destructors: they would free the stack of this fiber
}

// ---- fibers
void hand_on() {
    if (!_setjmp(me->at)) _longjmp(chooser, 1);
}
static void go_on_with(Fiber *fiber) {
    me = fiber;
    if (_setjmp(chooser)) return;
    if (fiber->begun) _longjmp(fiber->at, 1);
    fiber->begun = true;
    setcontext(&fiber->context);
}
void wait_until(std::function<bool()> ready) {
    if (!ready()) me->ready = ready, hand_on(), me->ready = nullptr;
}

// ---- barriers
static int number_of(shared_t bar) { return (place_of(bar) - shape.bars_from) / 8; }
static Bar &bar_at(shared_t at) {
    const auto found = bars.find(at);
    CHECK(found != bars.end(), "no barrier at %d yet", place_of(at));
    CHECK(alive[block_of(at)], "block %d is gone", block_of(at));
    return found->second;
}
static void turn(Bar &bar) {
    if (!bar.pending && !bar.bytes) bar.pending = bar.count, bar.phase++;
}
void bar_init(shared_t at, int count) {
    const bool inside = place_of(at) >= shape.bars_from && place_of(at) + 8 <= shape.shared_end;
    CHECK(inside && !bars.count(at), "a barrier at %d", place_of(at));
    bars[at] = Bar{count, count, 0, 0, me};
}
void bar_init_done() {
    for (auto &bar : bars)
        if (bar.second.unseen == me) bar.second.unseen = 0;
}
void bar_wait(shared_t at, int parity) {
    wait_until([=] { return bar_at(at).phase % 2 != parity; });
}
static void arrive(shared_t at) {
    Bar &bar = bar_at(at);
    CHECK(bar.pending > 0, "more arrivals at barrier %d than it counts", number_of(at));
    bar.pending--, turn(bar);
}
static void linger() {
    if (pace.lingers) hand_on();
}
void bar_arrive(shared_t at) { arrive(at), linger(); }
void bar_expect(shared_t at, int bytes) { bar_at(at).bytes += bytes, arrive(at); }
void bar_after_copies(shared_t at) {
    Fiber *mine = me;
    under_way.push_back([=] { return mine->copies ? false : (arrive(at), true); });
}
void meet(int number, int count, bool waits) {
    Bar &bar = named.try_emplace({me->block, number}, Bar{count, count, 0, 0, 0}).first->second;
    const int phase = bar.phase;
    bar.pending--, turn(bar);
    if (waits) wait_until([&bar, phase] { return bar.phase != phase; });
    else linger();
}
void have_registers(int count, int began) {
    if (!me->registers) me->registers = began;
    const int more = count - me->registers, block = me->block;
    wait_until([=] { return handed_on[block] >= more; });
    handed_on[block] -= more, me->registers = count;
    linger();
}
void cluster_arrive() {
    CHECK(me->arrived == me->waited, "arrives at its cluster twice");
    arrived[++me->arrived]++, linger();
}
void cluster_wait() {
    CHECK(me->waited < me->arrived, "waits for its cluster, and has not arrived");
    const int phase = ++me->waited;
    wait_until([=] { return arrived[phase] == fibers.size(); });
}

// ---- copies
static void check_apart(const Fiber &reader, const std::vector<Product> &products, int start, int stop) {
    for (const Product &product : products)
        for (Span read : product.reads)
            CHECK(stop <= read.from || read.from + read.bytes <= start, "place %d is written while thread %d reads it",
                  start, reader.thread);
}
void written(shared_t to, int bytes) {
    const int start = place_of(to), stop = start + bytes;
    CHECK(alive[block_of(to)] && stop <= shape.shared_end, "a copy to %d of block %d", start, block_of(to));
    for (const Fiber &f : fibers) {
        if (f.block != block_of(to)) continue;
        check_apart(f, f.open, start, stop);
        for (auto &group : f.groups) check_apart(f, group, start, stop);
    }
    spoil(to, bytes);
}
void begin(std::function<bool()> end) {
    if (pace.copies == AT_ONCE) end();
    else under_way.push_back(end);
}
void copy(shared_t to, int bytes, shared_t bar, std::function<void()> come) {
    CHECK(!bar_at(bar).unseen, "barrier %d is not seen by copies yet", number_of(bar));
    written(to, bytes);
    begin([=] { return come(), bar_at(bar).bytes -= bytes, turn(bar_at(bar)), true; });
}

// ---- products
void product(Span reads, Span more, std::function<void()> work) { me->open.push_back({{reads, more}, work}); }
static void end_oldest(Fiber &f) {
    for (Product &product : f.groups.front())
        if (product.work) product.work();
    f.groups.erase(f.groups.begin());
}
void wg_commit() {
    me->groups.push_back(me->open), me->open.clear();
    if (pace.products == AT_ONCE) end_oldest(*me);
}
void WG_WAIT(int pending) {
    while ((int)me->groups.size() > pending) end_oldest(*me);
    meet_warp();
}

// ---- the run of a cluster
static void run_thread() {
    run_kernel();
    me->done = true;
    const auto gone = [](Fiber &f) { return f.done || f.block != me->block; };
    if (std::all_of(fibers.begin(), fibers.end(), gone)) alive[me->block] = 0;
    hand_on();
}
static bool happens(double often) { return std::uniform_real_distribution<double>()(rng) < often; }
static bool goes_on(Fiber &fiber) {
    me = &fiber;
    return !fiber.done && (!fiber.ready || fiber.ready());
}
static void end_some(bool all_wait) {
    if (pace.copies == AT_LAST && all_wait) {
        const auto one = under_way.begin() + rng() % under_way.size();
        if ((*one)()) under_way.erase(one);
    }
    for (size_t i = 0; i < under_way.size(); i++)
        if (happens(pace.copies) && under_way[i]()) under_way.erase(under_way.begin() + i--);
    for (Fiber &f : fibers)
        if (pace.products != AT_LAST && f.groups.size() && happens(pace.products)) end_oldest(f);
}
void run_cluster(Shape of, int first) {
    bars.clear(), named.clear(), under_way.clear(), arrived.clear(), handed_on.clear();
    shape = of, first_block = first, alive.assign(of.blocks, 1);
    fibers = std::vector<Fiber>(of.blocks * of.threads);
    for (size_t i = 0; i < fibers.size(); i++) {
        Fiber &f = fibers[i];
        f.block = i / of.threads, f.thread = i % of.threads, f.stack.reset(new char[STACK]);
        f.slow = i % 32 ? fibers[i - 1].slow : OFTEN[rng() % 3];
        getcontext(&f.context);
        f.context.uc_stack.ss_sp = f.stack.get(), f.context.uc_stack.ss_size = STACK;
        makecontext(&f.context, run_thread, 0);
    }
    prepare();
    for (;;) {
        for (size_t first = 0; first < fibers.size(); first += 32) {
            if (!happens(fibers[first].slow)) continue;
            for (size_t i = first; i < first + 32; i++)
                if (goes_on(fibers[i])) go_on_with(&fibers[i]);
        }
        if (std::none_of(alive.begin(), alive.end(), [](char block) { return block; })) break;
        const bool all_wait = std::none_of(fibers.begin(), fibers.end(), goes_on);
        CHECK(!all_wait || under_way.size(), "all wait");
        end_some(all_wait);
    }
    CHECK(under_way.empty(), "a copy comes when all are gone");
}
