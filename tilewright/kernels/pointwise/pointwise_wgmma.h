// The tensor cores of sm_90a, for the pointwise family: who sends (the producer), and who multiplies (the consumers).
//
//   barrier   number   a phase ends when                                      who waits for it
//   FULL      STAGES   a step's spans have come, and its filter               who multiplies
//   EMPTY     STAGES   each warp that multiplies them is done                 who sends, before it refills it
//   STAY      STEPS    where filters stay (KEEPS), that of a step has come    who multiplies
//
// Warpgroups that take tiles by turns (TURNS) begin to multiply one after the other: who waits for a phase of FULL must
// know that the one before it is over.
//
// wgmma takes A from registers here: 64 pixels, a warp's 16 of them its lanes'. With several sets of fragments (SETS) a
// lane reads while products of the others are under way. Numbers of tf32 are rounded by the copy engine.

#include "image_map.h"
#include "wgmma_words.h"

#define X_PARAM const __grid_constant__ ImageMap x_map
#define X_GIVEN &x_map
#define FULL(slot) (bars + 8 * (slot))
#define EMPTY(slot) (bars + 8 * (STAGES + (slot)))
#define STAY(step) (bars + 8 * (2 * STAGES + (step)))
#define TEAM_SYNC(team) asm volatile("bar.sync %0, 128;" ::"r"(1 + (team)) : "memory")
#define TURN_WAIT(team) asm volatile("bar.sync %0, 256;" ::"r"(1 + TEAMS + (team)) : "memory")
#define TURN_OVER(team) asm volatile("bar.arrive %0, 256;" ::"r"(1 + TEAMS + ((team) + 1) % TEAMS) : "memory")

static_assert(OUT_BYTES == 2 * PART * 64 * sizeof(kept_t), "tile.py: what goes to y has another size");

// The next buffer, and which phase of its barrier ends next; some steps further.
typedef struct {
    int slot, parity;
} Slot;
INLINE void go_on(Slot *at, int steps) {
    at->slot += steps % STAGES, at->parity ^= steps / STAGES % 2;
    if (at->slot >= STAGES) at->slot -= STAGES, at->parity ^= 1;
}

// Send a step's filter; `more`: bytes that are to arrive besides.
INLINE void send_filter(unsigned char *shared, const unsigned char *w, int step, int slot, shared_t bar, int more) {
    bar_expect(bar, W_BYTES + more);
    copy_bulk(place_of(shared) + slot * W_BYTES, w + W_OF(step), W_BYTES, bar);
}

// Send the steps of the block's tiles, by one thread.
INLINE void send(unsigned char *shared, const ImageMap *x, const unsigned char *w, shared_t bars) {
    Slot at = {0, 1};
    NO_UNROLL for (EACH_TILE(id)) {
        NO_UNROLL for (int step = 0; step < STEPS; step++) {
            const shared_t full = FULL(at.slot), spans = place_of(shared + X_FROM) + at.slot * X_BYTES;
            if (KEEPS && id == GROUP(0)) send_filter(shared, w, step, step, STAY(step), 0);
            bar_wait(EMPTY(at.slot), at.parity);
            if (KEEPS) bar_expect(full, X_BYTES);
            else send_filter(shared, w, step, at.slot, full, X_BYTES);
            UNROLL_BY(STRANDS > 1 ? 1 : SPANS) for (int i = 0; i < SPANS; i++) {
                const Origin origin = find_origin(id, i);
                UNROLL for (int strand = 0; strand < STRANDS; strand++) {
                    const int from = origin.start + strand * PLANE_IN - AHEAD_OF(strand) / (int)sizeof(in_t);
                    const shared_t box = spans + i * SPAN_BYTES + strand * BOX_BYTES;
                    span_copy(box, x, from, step * OF_STRAND, 0, origin.image, full);
                }
            }
            go_on(&at, 1);
        }
    }
}

// Where a lane reads: bytes from a team's spans to its first pixel, of product 0, in the first row of either half;
// of numbers of 2 bytes in its two rows of the first half, which those of the other follow 8 rows behind.
typedef struct {
    int from[2];
} Lane;
INLINE Lane find_lane(int warp, int lane) {
    const int byte = PIXEL_OF(warp, lane, 0) % SPAN_PIXELS * (int)sizeof(in_t);
    Lane me;
    UNROLL for (int i = 0; i < 2; i++) {
        const int row = ROW_OF(0, PAIRED ? 0 : i, lane % 4) + (PAIRED ? i : 0);
        me.from[i] = SPOT(row, byte);
    }
    return me;
}

// The words of A for product i of a step: word j is of pixel j % 2, and of half j / 2 of the channels. Two pixels of a
// row are a word, or begin in the middle of one.
INLINE void read_pixels(unsigned a[4], const unsigned char *spans, Lane me, int i) {
    UNROLL for (int half = 0; half < 2; half++) {
#if PAIRED
        const int row = ROW_OF(i, half, 0), there = row * ROW_BYTES + AHEAD(row) / 4 * 4, apart = AHEAD(row) % 4 / 2;
        const unsigned *one = (const unsigned *)(spans + me.from[0] + there);
        const unsigned *next = (const unsigned *)(spans + me.from[1] + there);
        a[half * 2] = __byte_perm(one[0], next[0], apart ? 0x7632 : 0x5410);
        a[half * 2 + 1] = __byte_perm(one[apart], next[apart], apart ? 0x5410 : 0x7632);
#else
        const int row = ROW_OF(i, 0, 0), there = row * ROW_BYTES + AHEAD(row);
        UNROLL for (int h = 0; h < 2; h++)
            a[half * 2 + h] = *(const unsigned *)(spans + me.from[half] + there + h * SPAN_BYTES);
#endif
    }
}

// By a warp whose lanes have met since they read: they do so at each product.
INLINE void release(shared_t bars, int slot) {
    if (THREAD(0) % 32 == 0) bar_arrive(EMPTY(slot));
}

// Multiply a tile. Behind the first products of a step all of the step before are done.
INLINE void sum_up(acc_t sums[SUMS], unsigned char *shared, int team, Lane me, shared_t bars, Slot *place) {
    unsigned a[SETS][4];
    Slot at = *place;
    int done = -1;
    UNROLL for (int i = 0; i < SUMS; i++) sums[i] = 0;
    NO_UNROLL for (int step = 0; step < STEPS; step++) {
        const unsigned char *spans = shared + X_FROM + at.slot * X_BYTES + SPANS_OF(team) * SPAN_BYTES;
        const int from = (KEEPS ? step : at.slot) * W_BYTES;
        const unsigned long long rows = descriptor(1u << 16 | piece_of(place_of(shared + from)), CHUNKS);
        bar_wait(FULL(at.slot), at.parity);
        if (KEEPS) bar_wait(STAY(step), 0);
        UNROLL for (int i = 0; i < CHUNKS / 2; i++) {
            const int set = i % SETS;
            read_pixels(a[set], spans, me, i);
            UNROLL for (int j = 0; j < 4; j++) asm volatile("" : "+r"(a[set][j]) :: "memory");
            wg_begin();
            wg_multiply_words(sums, a[set], rows + 2 * i);
            wg_commit();
            WG_WAIT(SETS - 1);
            if (!KEEPS && i == SETS - 1 && done >= 0) release(bars, done);
        }
        if (KEEPS) release(bars, at.slot);
        done = at.slot;
        go_on(&at, 1);
    }
    if (TURNS) TURN_OVER(team);
    WG_WAIT(0);
    wg_done(sums);
    if (!KEEPS) release(bars, done);
    *place = at;
}

// Make the block's tiles.
INLINE void make_tiles(unsigned char *shared, const ImageMap *x, const unsigned char *w, Epilogue ep) {
    const shared_t bars = place_of(shared + BARS_FROM);
    const int warp = __shfl_sync(0xffffffffu, THREAD(0) / 32, 0), lane = THREAD(0) % 32, team = warp / 4;
    if (THREAD(0) == 0) {
        image_soon(x);
        UNROLL for (int i = 0; i < STAGES; i++) bar_init(FULL(i), 1), bar_init(EMPTY(i), TURNS ? 4 : 4 * TEAMS);
        NO_UNROLL for (int i = 0; KEEPS && i < STEPS; i++) bar_init(STAY(i), 1);
        bar_init_done();
    }
    BARRIER();
    if (team == TEAMS) {
#if HANDS_ON
        FEWER_REGISTERS(REGS_SENDING);
#endif
        if (THREAD(0) == 128 * TEAMS) send(shared, x, w, bars);
        return;
    }
#if HANDS_ON
    MORE_REGISTERS(REGS_SUMMING);
#endif
    const Lane me = find_lane(warp % 4, lane);
    Slot at = {0, 0};
    int turn = 0;
    if (TURNS) go_on(&at, team * STEPS);
    NO_UNROLL for (EACH_OF_TEAM(id, team)) {
        acc_t sums[SUMS];
        if (TURNS && id != GROUP(0)) TURN_WAIT(team);
        sum_up(sums, shared, team, me, bars, &at);
        const Out out = find_out(id, team, THREAD(0) % 128);
        UNROLL for (int part = 0; part < PARTS; part++, turn++) {
            kept_t *kept = KEPT(shared, team, turn);
            keep_part(kept, sums + part * (PART / 2), ep, part, warp % 4, lane);
            TEAM_SYNC(team);
            store_part(ep, kept, part, out, THREAD(0) % 128);
        }
        if (TURNS) go_on(&at, (TEAMS - 1) * STEPS);
    }
}
