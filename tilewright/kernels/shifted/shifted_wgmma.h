// The tensor cores and the copy engine of sm_90a, for the shifted family: who sends (the producers), and who
// multiplies (the consumers).
//
//   barrier   number     a phase ends when                                         who waits for it
//   W_FULL    STAGES     the filters of a step have come                           who multiplies
//   W_EMPTY   STAGES     each warp that multiplies is done with them               who sends, before it refills it
//   X_FULL    X_STAGES   the planes of a run have come, all SENDERS' parts         who multiplies
//   X_EMPTY   X_STAGES   each warp that multiplies has read them                   who sends, likewise
//
// wgmma takes A from registers here: 64 pixels, a warp's 16 of them its lanes'. A step is a row of the filter over a
// run of channels. Of a product's channels a lane reads what its two pixels have under all taps of the row, zeros where
// that is outside of the image; words of 2 bytes serve several taps. With two sets of fragments (SETS) a lane reads
// while products of the other set are under way. Numbers of tf32 are rounded as they are read.

#include "ring.h"
#include "wgmma_words.h"

#define W_FULL(slot) (bars + 8 * (slot))
#define W_EMPTY(slot) (bars + 8 * (STAGES + (slot)))
#define X_FULL(slot) (bars + 8 * (2 * STAGES + (slot)))
#define X_EMPTY(slot) (bars + 8 * (2 * STAGES + X_STAGES + (slot)))
#define SENDERS 3  // warps that send planes
#if ACROSS  // of each image another piece of a plane
#define PIECES IMAGES
#define EACH_IMAGE(image) UNROLL for (int image = 0; image < IMAGES; image++) if (image < images)
#else
#define PIECES 1
#define EACH_IMAGE(image) NO_UNROLL for (int image = 0; image < images; image++)
#endif
// If there is a buffer for each step, the filters come once for all of the block's tiles.
#define KEEPS (STAYS && STAGES >= STEPS)
#define ROWS_OF_STEP (TALL > 1 ? SEEN : 1)  // of the image, which a step reads one after the other
#define ALL_SYNC() asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory")  // met on two ways through the block

// Send the filters of the block's steps, by one thread.
INLINE void send_filters(unsigned char *shared, const unsigned char *w, shared_t bars) {
    int slot = 0, parity = 1;
    NO_UNROLL for (EACH_TILE(id)) {
        const Block b = find_block(id);
        NO_UNROLL for (int step = b.first; step < b.last; step++) {
            bar_wait(W_EMPTY(slot), parity);
            bar_expect(W_FULL(slot), STEP_BYTES);
            copy_bulk(place_of(shared + slot * STEP_BYTES), w + W_OF(&b, step), STEP_BYTES, W_FULL(slot));
            NEXT(slot, parity, STAGES);
        }
        if (KEEPS) return;
    }
}

// Send the planes of the block's runs, X_STAGES ahead, by a warp, number `sender` of SENDERS: a lane sends whole ones.
INLINE void send_planes(unsigned char *shared, const in_t *x, shared_t bars, int sender, int lane) {
    const int c = lane * SENDERS + sender;
    int slot = 0, parity = 1;
    NO_UNROLL for (EACH_TILE(id)) {
        const Block b = find_block(id);
        const shared_t to = place_of(shared + X_FROM) + c * PITCH;
        Piece pieces[PIECES];
        UNROLL for (int i = 0; i < PIECES; i++) pieces[i] = find_piece(&b, i, c);
        NO_UNROLL for (int run = RUN_OF_STEP(b.first); run <= RUN_OF_STEP(b.last - 1); run++) {
            const int images = c < CHANNELS_OF(run) ? b.images : 0;
            int numbers = 0;
            EACH_IMAGE(image) numbers += pieces[image % PIECES].count * pieces[image % PIECES].rows;
            const int all = __reduce_add_sync(0xffffffffu, numbers) * (int)sizeof(in_t);
            if (lane == 0) {
                bar_wait(X_EMPTY(slot), parity);
                bar_expect(X_FULL(slot), all);
            }
            __syncwarp();
            EACH_IMAGE(image) {
                const Piece piece = pieces[image % PIECES];
                const shared_t there = to + slot * X_BYTES + IMAGE_AT(&b, image) + piece.at * (int)sizeof(in_t);
                const in_t *from = x + RUN_OF(&b, image, run) + piece.low;
                NO_UNROLL for (int row = 0; row < (SPLIT ? piece.rows : 1); row++)
                    copy_bulk(there + row * (ROW_W * (int)sizeof(in_t)), from + row * W,
                              piece.count * (int)sizeof(in_t), X_FULL(slot));
            }
            __syncwarp();
            NEXT(slot, parity, X_STAGES);
        }
    }
}

// A word of shared memory, or zero.
INLINE unsigned word_at(const unsigned char *from, int sees) { return sees ? *(const unsigned *)from : 0; }

INLINE void two_words_at(unsigned words[2], const unsigned char *from, int sees) {
    const uint2 both = sees ? *(const uint2 *)from : make_uint2(0, 0);
    words[0] = both.x, words[1] = both.y;
}

// The words of A for product i of a step, row r of SEEN: word j of a tap is of pixel j % 2, and of half j / 2 of the
// channels. `run`: where the lane's first channel and row r are; `left`: channels from there on.
INLINE void read_taps(unsigned a[S][4], const unsigned char *run, const Lane *me, int r, int i, int left) {
#if PAIRED && !EVEN
    UNROLL for (int half = 0; half < 2; half++) {
        unsigned words[2][WORDS + 1];
        UNROLL for (int e = 0; e < 2; e++) {
            const int c = CHANNEL_OF(i, half) + e, moved = (TAP_BYTES(r, 0) + me->from[e]) & 3;
            const unsigned char *from = run + me->from[e] + c * PITCH - moved;
            UNROLL for (int k = 0; k <= WORDS; k++) words[e][k] = word_at(from + k * 4, C % CHANNELS == 0 || c < left);
            UNROLL for (int k = 0; k < WORDS; k++)
                words[e][k] = __funnelshift_r(words[e][k], words[e][k + 1], moved * 8);
        }
        UNROLL for (int s = 0; s < S; s++) UNROLL for (int h = 0; h < 2; h++) {
            const unsigned both = __byte_perm(words[0][HALF_OF(s, h) / 2], words[1][HALF_OF(s, h) / 2],
                                              HALF_OF(s, h) % 2 ? 0x7632 : 0x5410);
            a[s][half * 2 + h] = SEES(*me, h, r, s) ? both : 0;
        }
    }
#elif PAIRED
    UNROLL for (int half = 0; half < 2; half++) {
        unsigned words[2][WORDS];
        UNROLL for (int e = 0; e < 2; e++) UNROLL for (int k = 0; k < WORDS; k++) {
            const int c = CHANNEL_OF(i, half) + e;
            int sees = 0;
            UNROLL for (int at = 0; at < 2 * S; at++)
                if (HALF_OF(at / 2, at % 2) / 2 == k || (TWO(k) && HALF_OF(at / 2, at % 2) / 2 == k + 1))
                    sees = (int)(me->rows >> r & me->columns >> (16 * (at % 2) + at / 2) & 1);
            if (C % CHANNELS) sees = sees && c < left;
            const unsigned char *from = run + me->from[e] + c * PITCH + k * 4;
            if (TWO(k)) two_words_at(words[e] + k, from, sees);
            else if (!TWO(k - 1)) words[e][k] = word_at(from, sees);
        }
        UNROLL for (int s = 0; s < S; s++) UNROLL for (int h = 0; h < 2; h++)
            a[s][half * 2 + h] = __byte_perm(words[0][HALF_OF(s, h) / 2], words[1][HALF_OF(s, h) / 2],
                                             HALF_OF(s, h) % 2 ? 0x7632 : 0x5410);
    }
#else
    UNROLL for (int s = 0; s < S; s++) UNROLL for (int j = 0; j < 4; j++) {
        const int c = CHANNEL_OF(i, j / 2);
        const int sees = SEES(*me, j % 2, r, s) && (C % CHANNELS == 0 || c < left);
        a[s][j] = tf32_of(word_at(run + me->from[j % 2] + c * PITCH + TAP_BYTES(0, s), sees));
    }
#endif
}

// Multiply step (run, r) of the block's, whose filters are in buffer `slot` and planes at `run`; behind its first
// products all of the step before are done. Of TALL outputs it has all rows of the filter: what is read of a row of the
// image is multiplied by each row of the filter that has it under an output.
INLINE void multiply_step(acc_t sums[TALL * SUMS], unsigned a[SETS][S][4], unsigned char *shared,
                          const unsigned char *run, const Lane *me, shared_t bars, int r, int left, int slot,
                          int done) {
    const unsigned long long rows = descriptor(1u << 16 | piece_of(place_of(shared + slot * STEP_BYTES)), CHUNKS);
    UNROLL for (int i = 0; i < CHUNKS / 2; i++) UNROLL for (int row = 0; row < ROWS_OF_STEP; row++) {
        const int number = i * ROWS_OF_STEP + row, set = number % SETS;
        read_taps(a[set], run + TAP_BYTES(row, 0), me, r + row, i, left);
        UNROLL for (int j = 0; j < 4 * S; j++) asm volatile("" : "+r"(a[set][j / 4][j % 4]) :: "memory");
        wg_begin();
        UNROLL for (int m = 0; m < TALL; m++) {  // output m has row `tap` of the filter here, or none
            const int tap = row - m * STR_H;
            if (tap < 0 || tap >= OF_STEP) continue;
            UNROLL for (int s = 0; s < S; s++)
                wg_multiply_words(sums + m * SUMS, a[set][s], rows + (tap * S + s) * (W_BYTES / 16) + 2 * i);
        }
        wg_commit();
        WG_WAIT(SETS - 1);
        if (number == SETS - 1 && done >= 0 && THREAD(0) % 32 == 0) bar_arrive(W_EMPTY(done));
    }
}

INLINE void sum_up(acc_t sums[TALL * SUMS], unsigned char *shared, const Block *b, const Lane *me, shared_t bars,
                   Ring *at) {
    unsigned a[SETS][S][4];
    int r = b->first * OF_STEP % R, done = -1;
    UNROLL for (int i = 0; i < TALL * SUMS; i++) sums[i] = 0;
    NO_UNROLL for (int step = b->first; step < b->last; step++) {
        const int left = CHANNELS_OF(RUN_OF_STEP(step)) - me->t * LANE_CHANNELS, slot = KEEPS ? step : at->slot;
        const unsigned char *run = shared + X_FROM + at->x_slot * X_BYTES + me->t * (LANE_CHANNELS * PITCH);
        if (r == 0 || step == b->first) bar_wait(X_FULL(at->x_slot), at->x_parity);
        bar_wait(W_FULL(slot), at->parity);
        multiply_step(sums, a, shared, run + TAP_BYTES(r, 0), me, bars, r, left, slot, done);
        if (!KEEPS) {
            done = slot;
            NEXT(at->slot, at->parity, STAGES);
        }
        if ((r += OF_STEP) == R) {
            r = 0;
            __syncwarp();  // all lanes have read
            if (THREAD(0) % 32 == 0) bar_arrive(X_EMPTY(at->x_slot));
            NEXT(at->x_slot, at->x_parity, X_STAGES);
        }
    }
    WG_WAIT(0);
    UNROLL for (int m = 0; m < TALL; m++) wg_done(sums + m * SUMS);
    if (STAYS && !KEEPS && THREAD(0) % 32 == 0) bar_arrive(W_EMPTY(done));
}

// Make the block's tiles, from registers to y (STAYS), or fill the tile with the block's share.
INLINE void make_tiles(unsigned char *shared, const in_t *x, const unsigned char *w, Epilogue ep) {
    const shared_t bars = place_of(shared + BARS_FROM);
    const int warp = __shfl_sync(0xffffffffu, THREAD(0) / 32, 0), lane = THREAD(0) % 32;
    if (THREAD(0) == 0) {
        UNROLL for (int i = 0; i < STAGES; i++) bar_init(W_FULL(i), 1), bar_init(W_EMPTY(i), 4 * TEAMS);
        UNROLL for (int i = 0; i < X_STAGES; i++) bar_init(X_FULL(i), SENDERS), bar_init(X_EMPTY(i), 4 * TEAMS);
        bar_init_done();
    }
    BARRIER();
    if (warp < 4 * TEAMS) {
#if HANDS_ON
        MORE_REGISTERS(REGS_SUMMING);
#endif
        Ring at = {0, 0, 0, 0};
        NO_UNROLL for (EACH_TILE(id)) {
            const Block b = find_block(id);
            const Lane me = find_lane(&b, warp, lane);
            acc_t sums[TALL * SUMS];
            sum_up(sums, shared, &b, &me, bars, &at);
#if STAYS
            store_sums(ep, sums, &b, warp, lane);
#else
            ALL_SYNC();  // nobody reads buffers any more
            keep_sums((acc_t *)shared, sums, warp, lane);
#endif
        }
#if HANDS_ON && !STAYS
        FEWER_REGISTERS(REGS_ALL);
#endif
    } else {
#if HANDS_ON
        FEWER_REGISTERS(REGS_SENDING);
#endif
        if (warp > 4 * TEAMS) send_planes(shared, x, bars, warp - 4 * TEAMS - 1, lane);
        else if (lane == 0) send_filters(shared, w, bars);
#if !STAYS
        __syncwarp();
        ALL_SYNC();
#if HANDS_ON
        MORE_REGISTERS(REGS_ALL);  // not before: they would take those that others wait for
#endif
#endif
    }
    if (!STAYS) BARRIER();
}
