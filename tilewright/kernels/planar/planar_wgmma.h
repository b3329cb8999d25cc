// The tensor cores and the copy engine of sm_90a, for the planar family: who sends (the producer), and who multiplies
// (the consumers).
//
//   barrier   a phase ends when                               who waits for it
//   FULL      the bytes of a step have come                   who multiplies
//   EMPTY     each warp that multiplies is done with a step   who sends, before it refills it
//
// wgmma takes A from registers here: 64 pixels, a warp's 16 of them its lanes' pairs. Row g of its 16 is the first of
// pair g and row g + 8 the second, so that one word of a plane has numbers of both; words of two channels are turned
// into a word of each pixel. Of tf32, whose words are numbers, pixels follow each other as rows do, and are rounded as
// they are read.

#include "products.h"
#include "wgmma_words.h"

#define FULL(slot) (bars + 8 * (slot))
#define EMPTY(slot) (bars + 8 * (STAGES + (slot)))
#if SENDER
#define TEAMS_SYNC() asm volatile("bar.sync 1, %0;" ::"n"(128 * TEAMS) : "memory")
#else
#define TEAMS_SYNC() BARRIER()
#endif

// Send for step i, of the steps of all tiles of the block, as soon as its buffer is empty; by one thread. Returns
// whether there is such a step. `first`: the block's first tile.
INLINE int send(unsigned char *shared, const in_t *x, const unsigned char *w, const Block *first, shared_t bars,
                int i) {
    const int turn = TURNS > 1 ? i / STEPS : 0, id = GROUP(0) + turn * GROUPS(0);
    if (TURNS > 1 ? id >= TILES : i >= first->count) return 0;
    const Block b = TURNS > 1 ? find_block(id) : *first;
    const int slot = i % STAGES, step = b.first + i - turn * STEPS, bytes = CHANNELS_OF(step) * PLANE_BYTES;
    if (i >= STAGES) bar_wait(EMPTY(slot), i / STAGES - 1 & 1);
    bar_expect(FULL(slot), W_BYTES + b.images * bytes);
    copy_bulk(place_of(shared + slot * W_BYTES), w + W_OF(&b, step), W_BYTES, FULL(slot));
    NO_UNROLL for (int image = 0; image < b.images; image++)
        copy_bulk(place_of(shared + X_FROM + slot * X_BYTES + image * IMAGE_BYTES), x + X_OF(&b, image, step * OF_STEP),
                  bytes, FULL(slot));
    return 1;
}

// A word of channel c, from the one on that a lane begins with, `left` of which there are; zeros past the last.
INLINE unsigned word_of(const unsigned char *from, int c, int byte, int left) {
    const unsigned word = *(const unsigned *)(from + c * PLANE_BYTES + byte);
    return C % OF_STEP == 0 || c < left ? word : 0;
}

// The words of A of a step, from a lane's two pixels in the first channel that it reads on.
INLINE void read_planes(unsigned a[16], const unsigned char *first, const unsigned char *second, int left) {
    UNROLL for (int i = 0; i < 8; i++) {
#if !PAIRED
        const int c = CHANNEL_OF(0, i);
        a[2 * i] = tf32_of(word_of(first, c, 0, left)), a[2 * i + 1] = tf32_of(word_of(second, c, 0, left));
#else
        const int c = CHANNEL_OF(0, 2 * i), d = CHANNEL_OF(0, 2 * i + 1);
        const unsigned word = word_of(first, c, 0, left);
#if HW % 2 == 0
        const unsigned other = word_of(first, d, 0, left);
        a[2 * i] = __byte_perm(word, other, 0x5410), a[2 * i + 1] = __byte_perm(word, other, 0x7632);
#else  // channel d begins in the middle of a word
        a[2 * i] = __byte_perm(word, word_of(first, d, -2, left), 0x7610);
        a[2 * i + 1] = __byte_perm(word, word_of(first, d, 2, left), 0x5432);
#endif
#endif
    }
}

// What a warp that multiplies works with: buffers, barriers, the block's first tile, the steps of tiles before.
typedef struct {
    unsigned char *shared;
    const in_t *x;
    const unsigned char *w;
    const Block *first;
    shared_t bars;
    int from;
} Feed;

// Step i of the block's is done; if no warp does only that, send for the one that takes its buffer.
INLINE void release(const Feed *f, int i) {
    const shared_t bars = f->bars;
    if (THREAD(0) % 32 == 0) bar_arrive(EMPTY(i % STAGES));
#if !SENDER
    if (THREAD(0) == 0) send(f->shared, f->x, f->w, f->first, bars, i + STAGES);
    __syncwarp();
#endif
}

// Multiply step i of the tile, and release the last that is done.
INLINE void multiply_step(acc_t sums[SUMS], unsigned a[16], const Feed *f, const Block *b, Lane me, int i) {
    unsigned char *shared = f->shared;
    const shared_t bars = f->bars;
    const int turn = (f->from + i) / STAGES, slot = (f->from + i) % STAGES;
    const unsigned char *planes = shared + X_FROM + slot * X_BYTES + me.t * (APART * PLANE_BYTES), *from[2];
    UNROLL for (int h = 0; h < 2; h++)
        from[h] = planes + (me.there[h] ? me.image[h] * IMAGE_BYTES + me.pixel[h] * (int)sizeof(in_t) : 0);
    const unsigned long long rows = descriptor(1u << 16 | piece_of(place_of(shared + slot * W_BYTES)), 8);
    bar_wait(FULL(slot), turn & 1);
    read_planes(a, from[0], from[1], CHANNELS_OF(b->first + i) - me.t * APART);
    UNROLL for (int j = 0; j < 16; j++) asm volatile("" : "+r"(a[j]) :: "memory");  // before the products
    wg_begin();
    UNROLL for (int s = 0; s < 4; s++) wg_multiply_words(sums, a + 4 * s, rows + 2 * s);
    wg_commit();
    WG_WAIT(SETS - 1);
    if (i >= SETS - 1) release(f, f->from + i - (SETS - 1));
}

INLINE void sum_up(acc_t sums[SUMS], const Feed *f, const Block *b, Lane me) {
    unsigned a[SETS][16];  // of two, products of one are under way while the other is read
    UNROLL for (int i = 0; i < SUMS; i++) sums[i] = 0;
    int i = 0;  // an odd step comes first: behind the others products would be serialised (C7513)
    if (b->count % SETS) multiply_step(sums, a[SETS - 1], f, b, me, i++);
    NO_UNROLL for (; i < b->count; i += SETS)
        UNROLL for (int j = 0; j < SETS; j++) multiply_step(sums, a[j], f, b, me, i + j);
    WG_WAIT(0);
    wg_done(sums);
    if (TURNS > 1 && SETS > 1) release(f, f->from + b->count - 1);
}

// Make the block's tiles, or fill that of its share; a warp that only sends (SENDER) does so ahead, and is done.
INLINE void make_tiles(unsigned char *shared, const in_t *x, const unsigned char *w, Epilogue ep) {
    const shared_t bars = place_of(shared + BARS_FROM);
    const int warp = __shfl_sync(0xffffffffu, THREAD(0) / 32, 0);
    const Block first = find_block(GROUP(0));
    if (THREAD(0) == 0) {
        UNROLL for (int i = 0; i < STAGES; i++) bar_init(FULL(i), 1), bar_init(EMPTY(i), 4 * TEAMS);
        bar_init_done();
        if (!SENDER)
            NO_UNROLL for (int i = 0; i < STAGES; i++) send(shared, x, w, &first, bars, i);
    }
    BARRIER();
    if (SENDER && warp == 4 * TEAMS) {
        int more = THREAD(0) % 32 == 0;
        NO_UNROLL for (int i = 0; more; i++) more = send(shared, x, w, &first, bars, i);
        __syncwarp();
        return;
    }
    Feed feed = {shared, x, w, &first, bars, 0};
    NO_UNROLL for (int id = GROUP(0); TURNS == 1 ? feed.from == 0 : id < TILES; id += GROUPS(0), feed.from += STEPS) {
        const Block b = find_block(id);
        const Lane me = find_lane(&b, warp, THREAD(0) % 32);
        acc_t sums[SUMS];
        sum_up(sums, &feed, &b, me);
        if (TURNS > 1) TILE_READ();
        TEAMS_SYNC();  // nobody reads buffers any more, or the tile before
        keep_sums(shared + TILE_FROM, sums, &b, me, ep);
#if SC == 1
        if (Y_ALIGNED) wg_see_copies();  // the tile, seen by the copy engine
        TEAMS_SYNC();
        store_tile(ep.y, shared + TILE_FROM, &b);
#endif
    }
    if (SC == 1) TILE_READ();
}
