// planar.cu on the host (async_host.h), with numbers, whole ones: each sum is right to the last bit, or wrong. Shared
// memory that nothing has come to, or to which a copy is under way, has no numbers: NaN (0xffff).
#include "async_host.h"

// ---- the dialect
typedef float acc_t;
typedef long offset_t;
#define PLANAR_ARRAY(name) unsigned char *name = memory + own_block() * ROOM
#define KERNEL(name) static void name
#define FOR_EACH(item, count) for (offset_t item = 0; item < (count); item++)
#define CHAIN()
#define STORERS (128 * TEAMS)
#define CLUSTER_BARRIER() (cluster_arrive(), cluster_wait())
#define CLUSTER_READ() cluster_arrive()
#define CLUSTER_LEAVE() cluster_wait()
static float larger(float a, float b) { return a > b || a != a ? a : b; }
static float bits_float(unsigned bits) {
    float v;
    return memcpy(&v, &bits, 4), v;
}
static unsigned short float_bfloat(float v) {
    unsigned bits;
    return memcpy(&bits, &v, 4), v != v ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
float half_float(unsigned short);  // nobody calls these
unsigned short float_half(float);
static unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const unsigned long both = (unsigned long)high << 32 | low;
    unsigned word = 0;
    for (int i = 0; i < 4; i++) word |= (both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return word;
}
template <class to_t, class from_t> static void store_run(int count, to_t *to, const from_t *from) {
    CHECK((size_t)to % (count * sizeof(to_t)) == 0, "a store that is not aligned");
    for (int i = 0; i < count; i++) to[i] = from[i];
}
#include "planar_tile.h"

// ---- memory, and what is kept of each thread
alignas(1024) static unsigned char memory[CLUSTER * ROOM];  // shared
static bool unseen[CLUSTER * ROOM];                         // what the copy engine does not see yet of it
static shared_t place_of(const void *at) { return (const unsigned char *)at - memory; }
struct Operands { acc_t *sums; const unsigned *words; };
struct Own {
    std::vector<Operands> operands;  // of each product so far
    bool ready;                      // none of their words was written since the fence
    std::vector<int> wrote;          // places of the tile, since the fence
};
static Own owned[CLUSTER * THREADS];
static Own &own() { return owned[me->block * THREADS + me->thread]; }
void spoil(shared_t to, int bytes) { memset(memory + to, 0xff, bytes); }
void prepare() {
    memset(memory, 0xff, sizeof memory), memset(unseen, 0, sizeof unseen);
    for (Own &one : owned) one.operands.clear(), one.wrote.clear(), one.ready = false;
}
struct Output {
    out_t bits;
    Output(out_t bits = 0) : bits(bits) {}
    Output &operator=(const Output &from) {
        bits = from.bits;
        const bool shared = (void *)this >= memory && (void *)this < memory + sizeof memory;
        if (shared) unseen[place_of(this)] = true, own().wrote.push_back(place_of(this));
        return *this;
    }
};
#define done_t Output
alignas(16) static in_t image[N * C * HW], filter[K * C], packed[K_TILES * STEPS * W_BYTES / 2];
alignas(16) static out_t bias[K], added[N * K * HW];
alignas(16) static done_t outputs[N * K * HW];

// ---- copies
template <class type, int count> static bool within(const void *from, int bytes, const type (&array)[count]) {
    return from >= array && (const char *)from + bytes <= (const char *)(array + count);
}
static bool is_whole(const void *there, shared_t here, int bytes) {
    return ((size_t)there | here | bytes) % 16 == 0 && bytes > 0;
}
static void copy_bulk(shared_t to, const void *from, int bytes, shared_t bar) {
    const bool known = within(from, bytes, image) || within(from, bytes, packed);
    CHECK(known && is_whole(from, to, bytes), "a copy of %d bytes to %d", bytes, place_of(to));
    copy(to, bytes, bar, [=] { memcpy(memory + to, from, bytes); });
}
static void wg_see_copies() {
    for (int at : own().wrote) unseen[at] = false;
    own().wrote.clear();
}
static void store_bulk(done_t *to, shared_t from, int bytes) {
    const bool known = within(to, bytes, outputs);
    CHECK(known && is_whole(to, from, bytes), "a store of %d bytes from %d", bytes, place_of(from));
    CHECK(!std::count(unseen + from, unseen + from + bytes, true), "what is stored is not seen by copies yet");
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
static void load_two(acc_t v[2], shared_t from) {
    CHECK(alive[block_of(from)], "block %d is gone", block_of(from));
    memcpy(v, memory + from, 8);
}

// ---- products (wgmma): 16 pixels of a warp, words of its lanes, times rows of the filter in shared memory
static void word_written(unsigned) { own().ready = false; }
static void wg_begin() { own().ready = true; }
static void wg_done(acc_t *) {}
#define wg_commit() (__syncwarp(), wg_commit())  // all lanes have brought their operands
static acc_t number_at(shared_t at) { return widened(*(in_t *)(memory + (at ^ (at >> 7 & 7) << 4))); }
static void multiply_warp(const Own *lanes, int number, shared_t rows) {
    acc_t x[16][16], w[16];
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 8; i++)
            x[lane / 4 + i / 2 % 2 * 8][lane % 4 * 2 + i / 4 * 8 + i % 2] =
                widened(lanes[lane].operands[number].words[i / 2] >> i % 2 * 16);
    for (int k = 0; k < KB; k++) {
        for (int i = 0; i < 16; i++) w[i] = number_at(rows + k * 128 + i * 2);
        for (int row = 0; row < 16; row++) {
            acc_t *sums = lanes[row % 8 * 4 + k % 8 / 2].operands[number].sums + k / 8 * 4 + row / 8 * 2 + k % 2;
            for (int i = 0; i < 16; i++) *sums += x[row][i] * w[i];
        }
    }
}
static void wg_multiply_words(acc_t *sums, const unsigned *words, unsigned long long rows) {
    CHECK(own().ready, "words are multiplied that were written behind the fence");
    CHECK(rows >> 14 == (1ull << 48 | 64ull << 18 | 1 << 2), "rows of another order");
    own().operands.push_back({sums, words});
    if (me->thread % 32) return;
    const Own *lanes = &own();
    const int place = (rows & 0x3fff) * 16, slot = place / W_BYTES, number = own().operands.size() - 1;
    const shared_t from = me->block * ROOM + place;
    product({slot * W_BYTES, W_BYTES}, {}, [=] { multiply_warp(lanes, number, from); });
}
