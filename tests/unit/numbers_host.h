// A kernel of sm_90a on the host (async_host.h) that multiplies words of registers by rows of shared memory, with
// numbers, whole ones: each sum is right to the last bit, or wrong. Shared memory that nothing has come to, or to which
// a copy is under way, has no numbers: NaN (0xffff).
//
// A family's harness (planar_host.h, shifted_host.h) has the rest of what its kernel calls. It includes this one, and
// defines
//
//   TILE                     the header that says where its blocks and lanes work
//   PIXELS_IN, PIXELS_OUT    of a plane of x, of y
//   TAPS, CHUNKS             of the filter; pieces of 16 bytes of its rows in shared memory
//   PACKED_BYTES             of the packed filter
#include "async_host.h"
#include <math.h>

// ---- the dialect
typedef float acc_t;
typedef long offset_t;
#define UNROLL_BY(count)
#define KERNEL(name) static void name
#define FOR_EACH(item, count) for (offset_t item = 0; item < (count); item++)
#define CHAIN_WAIT()
#define CLUSTER_BARRIER() (cluster_arrive(), cluster_wait())
#define CLUSTER_READ() cluster_arrive()
#define CLUSTER_LEAVE() cluster_wait()
#define FEWER_REGISTERS(count) have_registers(count, REGS_ALL)
#define MORE_REGISTERS(count) have_registers(count, REGS_ALL)
static float larger(float a, float b) { return a > b || a != a ? a : b; }
static float bits_float(unsigned bits) {
    float v;
    return memcpy(&v, &bits, 4), v;
}
static unsigned float_bits(float v) {
    unsigned bits;
    return memcpy(&bits, &v, 4), bits;
}
static unsigned short float_bfloat(float v) {
    const unsigned bits = float_bits(v);
    return v != v ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static float half_float(unsigned short half) {
    const float size = bits_float((half & 0x7fff) << 13) * 0x1p112f;
    return (half & 0x7c00) == 0x7c00 ? NAN : half >> 15 ? -size : size;
}
static unsigned short float_half(float v) {
    const unsigned bits = float_bits(fabsf(v) * 0x1p-112f);
    return v != v ? 0x7fff : (bits + 0xfff + (bits >> 13 & 1)) >> 13 | (v < 0) << 15;
}
static unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const unsigned long both = (unsigned long)high << 32 | low;
    unsigned word = 0;
    for (int i = 0; i < 4; i++) word |= (both >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return word;
}
struct uint2 { unsigned x, y; };
static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static unsigned __funnelshift_r(unsigned low, unsigned high, int bits) {
    return ((unsigned long)high << 32 | low) >> bits;
}
template <class to_t, class from_t> static void store_run(int count, to_t *to, const from_t *from) {
    CHECK((size_t)to % min(count * sizeof(to_t), (size_t)16) == 0, "a store that is not aligned");
    for (int i = 0; i < count; i++) to[i] = from[i];
}
template <class type> static void load_run(int count, type *to, const type *from) {
    CHECK((size_t)from % min(count * sizeof(type), (size_t)16) == 0, "a load that is not aligned");
    for (int i = 0; i < count; i++) to[i] = from[i];
}
#include "products.h"
#include TILE

static int __reduce_add_sync(unsigned, int v) {  // of a warp
    static int each[CLUSTER * THREADS];
    const int first = me->block * THREADS + me->thread / 32 * 32;
    int sum = 0;
    each[first + me->thread % 32] = v, meet_warp();
    for (int lane = 0; lane < 32; lane++) sum += each[first + lane];
    return meet_warp(), sum;
}

// ---- memory, and what is kept of each thread
alignas(1024) static unsigned char memory[CLUSTER * ROOM];  // shared
static bool unseen[CLUSTER * ROOM];                         // what the copy engine does not see yet of it
static shared_t place_of(const void *at) { return (const unsigned char *)at - memory; }
static unsigned char *own_memory() { return memory + own_block() * ROOM; }
#define ALIGNED_ARRAY(name) unsigned char *name = own_memory()
struct Operands { acc_t *sums; const unsigned *words; };
struct Own {
    std::vector<Operands> operands;       // of each product so far
    std::vector<const unsigned *> words;  // that were written since the last products
    bool ready;                           // none of them was written since the fence
    std::vector<Span> wrote;              // of shared memory, since the fence
};
static Own owned[CLUSTER * THREADS];
static Own &own() { return owned[me->block * THREADS + me->thread]; }
void spoil(shared_t to, int bytes) { memset(memory + to, 0xff, bytes); }
void prepare() {
    memset(memory, 0xff, sizeof memory), memset(unseen, 0, sizeof unseen);
    for (Own &one : owned) one = Own();
}
alignas(16) static in_t image[N * C * PIXELS_IN], filter[K * C * TAPS], packed[PACKED_BYTES / sizeof(in_t)];
alignas(16) static out_t bias[K], added[N * K * PIXELS_OUT], outputs[N * K * PIXELS_OUT];

// ---- copies
template <class type, int count> static bool within(const void *from, int bytes, const type (&array)[count]) {
    return from >= array && (const char *)from + bytes <= (const char *)(array + count);
}
static bool is_whole(const void *there, shared_t here, int bytes) {
    return ((size_t)there | here | bytes) % 16 == 0 && bytes > 0;
}
static bool is_seen(shared_t at, int bytes) { return !std::count(unseen + at, unseen + at + bytes, true); }
static void mark_written(shared_t at, int bytes) {  // by a thread itself
    std::fill_n(unseen + at, bytes, true), own().wrote.push_back({(int)at, bytes});
}
static void wg_see_copies() {
    for (Span one : own().wrote) std::fill_n(unseen + one.from, one.bytes, false);
    own().wrote.clear();
}
static void copy_bulk(shared_t to, const void *from, int bytes, shared_t bar) {
    const bool known = within(from, bytes, image) || within(from, bytes, packed);
    CHECK(known && is_whole(from, to, bytes), "a copy of %d bytes to %d", bytes, place_of(to));
    CHECK(is_seen(to, bytes), "a copy to what is not seen by copies yet");
    copy(to, bytes, bar, [=] { memcpy(memory + to, from, bytes); });
}
static void sum_of_blocks(acc_t sums[4], shared_t from, int blocks) {
    CHECK(from % 16 == 0, "four numbers at %d", place_of(from));
    std::fill_n(sums, 4, 0);
    for (int rank = 0; rank < blocks; rank++) {
        const shared_t there = of_block(from, rank);
        CHECK(alive[block_of(there)], "block %d is gone", block_of(there));
        for (int i = 0; i < 4; i++) sums[i] += ((acc_t *)(memory + there))[i];
    }
}

// ---- products (wgmma): 16 pixels of a warp, words of its lanes, times rows of the filter in shared memory
enum { DEPTH = 32 / sizeof(in_t), IN_WORD = 4 / sizeof(in_t) };  // numbers of a row of a product, of a word
static int swizzled(int at) { return at ^ (at >> 7 & (CHUNKS - 1)) << 4; }
static acc_t number_of(unsigned bits) {
    return sizeof(in_t) == 4 ? bits_float(bits & 0xffffe000) : widened(bits);  // of f32, what tf32 has of it
}
static acc_t number_at(shared_t at) {
    const unsigned char *from = memory + swizzled(at);
    return number_of(sizeof(in_t) == 4 ? *(unsigned *)from : *(unsigned short *)from);
}
static void word_written(const unsigned &word) { own().ready = false, own().words.push_back(&word); }
static void wg_begin() { own().ready = true; }
static void wg_done(acc_t *) {}
#define wg_commit() (own().words.clear(), __syncwarp(), wg_commit())  // all lanes have brought their operands
static void multiply_warp(const Own *lanes, int number, shared_t rows) {
    acc_t x[16][DEPTH], w[DEPTH];
    for (int lane = 0; lane < 32; lane++)
        for (int j = 0; j < 4; j++)
            for (int e = 0; e < IN_WORD; e++)
                x[lane / 4 + j % 2 * 8][(lane % 4 + j / 2 * 4) * IN_WORD + e] =
                    number_of(lanes[lane].operands[number].words[j] >> e * 16);
    for (int k = 0; k < KB; k++) {
        for (int i = 0; i < DEPTH; i++) w[i] = number_at(rows + k * CHUNKS * 16 + i * sizeof(in_t));
        for (int row = 0; row < 16; row++) {
            acc_t *sums = lanes[row % 8 * 4 + k % 8 / 2].operands[number].sums + k / 8 * 4 + row / 8 * 2 + k % 2;
            for (int i = 0; i < DEPTH; i++) *sums += x[row][i] * w[i];
        }
    }
}
static void wg_multiply_words(acc_t *sums, const unsigned *words, unsigned long long rows) {
    std::vector<const unsigned *> &known = own().words;
    for (int j = 0; j < 4; j++) {
        const auto found = std::find(known.begin(), known.end(), words + j);
        CHECK(found != known.end(), "words are multiplied that nothing keeps before the fence");
    }
    CHECK(own().ready, "words are multiplied that were written behind the fence");
    CHECK(rows >> 14 == ((CHUNKS == 8 ? 1ull : CHUNKS == 4 ? 2ull : 3ull) << 48 | 8ull * CHUNKS << 18 | 1 << 2), "rows of another order");
    own().operands.push_back({sums, words});
    if (me->thread % 32) return;
    const Own *lanes = &own();
    const int place = (rows & 0x3fff) * 16, slot = place / W_BYTES, number = own().operands.size() - 1;
    const shared_t from = me->block * ROOM + place;
    product({slot * W_BYTES, W_BYTES}, {}, [=] { multiply_warp(lanes, number, from); });
}
