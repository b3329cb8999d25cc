// Sums that go to y without a tile of them in shared memory (FINISH, finish.py): no barrier of all threads,
// and little code, which costs 4 to 5 cycles an instruction where it runs once.
//
// OWN: sums are whole, and those store them who have them (STORES, finish.py).
//   STORE_WORDS    4 bytes an output, from registers: an instruction stores 16 channels (64 bytes) of 4 pixels
//   STORE_ROWS     1 or 2 bytes: warps of the same pixels hand them to each other by way of shared memory, OWN_ROWS
//                  pixels at a time: a row there is a pixel with all channels of the tile. They store whole rows, 16
//                  bytes a thread: 64 bytes or more lie side by side in y (a warp alone has 16 channels, a quarter of
//                  a cache line at most).
//   STORE_PLANES   2 bytes in nchw, a warp by itself: it has 16 channels, OWN_ROWS pixels of which it puts in rows of
//                  shared memory at a time, and stores 8 pixels a thread: 128 bytes of a channel lie side by side
// MET: they are shares of a cluster, and each block finishes some of its pixels: a thread sends what it has of two
// neighbouring pixels and two channels (16 bytes), from its registers to that block's shared memory, where
// [share][pair of pixels][pair of channels] wait until all have come. Then a thread adds up one such four of all
// shares. All else goes by way of the tile of sums (hopper_store.h).
//
// A residual z comes the way that y goes: 16 bytes a thread into the same rows, from where the threads that have the
// sums take it; of 4 bytes an output, to registers. Rows of pixels have it copied while products are under way
// (bring_rows); else it is asked for before them (ask_for_residual), so that it comes from the L2 cache.
//
// A thread has sums of two rows of the product, 8 apart. Where PAIRED the filter is packed so that these are two
// neighbouring channels (PAIR, swizzle.h).

#define IS_CHANNEL(k) (K % KB == 0 || (k) < K)

#if FINISH == OWN
#if TIGHT
#define STORE_LOOP NO_UNROLL  // unrolled it takes registers, which sums have here
#else
#define STORE_LOOP UNROLL
#endif

#define MATES (128 * WM)  // threads that have the same pixels, those of `mates`; `mate` is a thread's number among them

typedef struct {
    const GLOBAL out_t *z;  // where y is, in the residual
    acc_t bias[2];          // of the two channels that a thread has sums of
} Added;

#if OUT_BYTES == 2
// Add to a thread's part of four matrices, as round_sums has them, what four words have of the residual.
INLINE void add_words(acc_t sums[WG_WORDS], const unsigned words[4], int px, const Added *added) {
    UNROLL for (int m = 0; m < 4; m++)
        if (px / 2 + m * 2 < WG_WORDS) UNROLL for (int e = 0; e < 2; e++) {
            const int at = px / 2 + m * 2 + e;
            sums[at] = before_pool_of(sums[at], added->bias[m % 2], out_widened((out_t)(words[m] >> e * 16)));
        }
}
// Round a thread's part of four matrices of 8 x 8: channels 0 to 7 and 8 to 15 of the warp, from pixel `px` on; then
// the same of the next 8 pixels.
INLINE void round_sums(unsigned words[4], const acc_t sums[WG_WORDS], int px) {
    UNROLL for (int m = 0; m < 4; m++) {
        const int at = min(px / 2 + m * 2, WG_WORDS - 2);  // the last 8 pixels may be all
        words[m] = (unsigned)narrowed(sums[at]) | (unsigned)narrowed(sums[at + 1]) << 16;
    }
}
#elif OUT_BYTES == 1
// A thread's part of four matrices of 8 pixels from `px` on, whose numbers are two channels each.
INLINE void join_bytes(unsigned words[4], const acc_t sums[WG_WORDS], int px) {
    UNROLL for (int m = 0; m < 4; m++) {
        const int at = min(px / 2 + m * 4, WG_WORDS - 4);
        words[m] = 0;
        UNROLL for (int i = 0; i < 4; i++) words[m] |= ((unsigned)sums[at + i / 2 + i % 2 * 2] & 0xff) << i * 8;
    }
}
#endif

#if STORES == STORE_WORDS
// Store the sums of a thread from registers, channels from `k` on; y is where channel k of pixel 0 goes. A warp of a
// block that stays has a table of its own: one for all would have to be waited for.
INLINE void store_words(GLOBAL done_t *y, shared_t shared, const Block *b, const acc_t sums[WG_WORDS], int k,
                        int px_team, int warp, int lane, const Added *added) {
    const int outs = STAYS ? OWN_FROM + warp * (WG_N * 4) : OUTS_FROM + px_team * 4;
    if (STAYS) {
        __syncwarp();
        NO_UNROLL for (int px = lane; px < WG_N; px += 32)
            write_int(shared, outs + px * 4, find_output(b->px0, px_team + px));
        __syncwarp();
    }
    UNROLL for (int i = 0; i < WG_WORDS; i += 4) {
        int pixels[2];
        read_two(pixels, shared, outs + (i * 2 + lane % 4 * 2) * 4);
        UNROLL for (int e = 0; e < 2; e++) {
            acc_t pair[2] = {sums[i + e], sums[i + 2 + e]};
            if (pixels[e] >= 0 && IS_CHANNEL(k)) {
                const offset_t to = (offset_t)pixels[e] * (GROUPS_ * K);
#if ADDS
                out_t more[2];
                load_run(2, more, added->z + to);
                UNROLL for (int h = 0; h < 2; h++)
                    pair[h] = before_pool_of(pair[h], added->bias[h], out_widened(more[h]));
#endif
                store_run(2, (GLOBAL acc_t *)(y + to), pair);
            }
        }
    }
}

#elif STORES == STORE_ROWS
#define MATES_SYNC(mates) asm volatile("bar.sync %0, %1;" ::"r"(3 + (mates)), "n"(MATES) : "memory")
#define ROW_PIECES (KB * OUT_BYTES / 16)  // of a row

#define OF_LANE(lane) \
    (OUT_BYTES == 2 ? ((lane) / 16 * 8 + (lane) % 8) * OWN_PITCH + (lane) / 8 % 2 * 16 : (lane) * OWN_PITCH)

// Write sums to rows of shared memory, of pixels `from` to `to`; `row` is where the first one has the warp's channels.
INLINE void write_rows(shared_t row, const acc_t sums[WG_WORDS], int from, int to, int lane) {
    row += OF_LANE(lane);
    UNROLL for (int px = from; px < to; px += 32 / OUT_BYTES) {
        unsigned words[4];
#if OUT_BYTES == 2
        round_sums(words, sums, px);
#else
        join_bytes(words, sums, px);
#endif
        write_transposed(row + (px - from) * OWN_PITCH, words);
    }
}

#if ADDS
// Add the residual that is there.
INLINE void add_rows(acc_t sums[WG_WORDS], shared_t row, int from, int to, int lane, const Added *added) {
    row += OF_LANE(lane);
    UNROLL for (int px = from; px < to; px += 16) {
        unsigned words[4];
        read_transposed(words, row + (px - from) * OWN_PITCH);
        add_words(sums, words, px, added);
    }
}
#endif

// Piece i that a thread brings of the residual, and stores of y: 16 bytes of pixel `out` from channel k of the tile on.
#define PIECE_OF_ROWS(i)                                                             \
    const int item = mate + (i) * MATES, at = min(item / ROW_PIECES, count - 1);     \
    const int k = item % ROW_PIECES * (16 / OUT_BYTES);                              \
    const int out = output_of(shared, b, mates * WG_N + from + at)
#define IS_PIECE (item < count * ROW_PIECES && out >= 0 && IS_CHANNEL(b->channels + k))

#if ADDS
// Have rows of the residual copied while products are under way; z is where the tile's first channel of pixel 0 is.
INLINE void bring_rows(const GLOBAL out_t *z, shared_t shared, const Block *b, int mates, int mate) {
    const int from = 0, count = WG_N;
    if (STAYS) MATES_SYNC(mates);  // nobody reads rows any more
    NO_UNROLL for (int i = 0; i < CEIL_DIV(count * ROW_PIECES, MATES); i++) {
        PIECE_OF_ROWS(i);
        if (item < count * ROW_PIECES)
            copy16(shared, OWN_FROM + (mates * OWN_ROWS + at) * OWN_PITCH + item % ROW_PIECES * 16,
                   (const GLOBAL unsigned char *)(z + (offset_t)max(out, 0) * (GROUPS_ * K) + k), IS_PIECE);
    }
}
#endif

// Store sums by way of rows of shared memory; y is where the tile's first channel of pixel 0 goes, and `k_warp` the
// first channel in the tile that the warp has. Rows have the residual before (bring_rows).
INLINE void store_rows(GLOBAL done_t *y, shared_t shared, const Block *b, acc_t sums[WG_WORDS], int k_warp,
                       int mates, int mate, const Added *added) {
    const int rows = (STAYS || ADDS ? OWN_FROM : 0) + mates * (OWN_ROWS * OWN_PITCH);
    UNROLL for (int from = 0; from < WG_N; from += OWN_ROWS) {
        const int count = min(WG_N - from, OWN_ROWS);
#if ADDS
        COPIES_WAIT();
        MATES_SYNC(mates);  // all of the residual is there
        add_rows(sums, shared + rows + k_warp * OUT_BYTES, from, from + count, mate % 32, added);
#else
        if (STAYS) MATES_SYNC(mates);  // nobody reads rows any more
#endif
        write_rows(shared + rows + k_warp * OUT_BYTES, sums, from, from + count, mate % 32);
        MATES_SYNC(mates);
        STORE_LOOP for (int i = 0; i < CEIL_DIV(count * ROW_PIECES, MATES); i++) {
            PIECE_OF_ROWS(i);
            acc_t four[4];
            read4(four, shared, rows + at * OWN_PITCH + item % ROW_PIECES * 16);
            if (IS_PIECE)
                store_run(4, (GLOBAL acc_t *)(y + (offset_t)out * (GROUPS_ * K) + k), four);  // bits
        }
    }
}

#else
// Piece i that a thread brings of the residual, and stores of y: 8 pixels from pixel `out` on, of channel k + row.
#define PIECE_OF_PLANES(i)                                                                                        \
    const int item = min(lane + (i) * 32, 16 * pieces - 1), row = item / pieces, at = item % pieces * 8;          \
    const int px = px_team + from + at, out = output_of(shared, b, px)
#define IS_PIECE (lane + i * 32 < 16 * pieces && out >= 0 && IS_CHANNEL(k + row))

// Store sums as outputs of 2 bytes of nchw, of which 8 pixels lie side by side; `k` is the warp's first channel in the
// group, `px_team` its first pixel in the tile, and `warp` its number.
INLINE void store_planes(GLOBAL done_t *y, shared_t shared, const Block *b, acc_t sums[WG_WORDS], int k,
                         int px_team, int warp, int lane, const Added *added) {
    const shared_t rows = shared + (STAYS ? OWN_FROM : 0) + warp * (16 * OWN_PITCH);
    const shared_t write = rows + lane % 16 * OWN_PITCH + lane / 16 * 16;
    UNROLL for (int from = 0; from < WG_N; from += OWN_ROWS) {
        const int count = min(WG_N - from, OWN_ROWS), pieces = count / 8;
        __syncwarp();  // nobody reads rows any more
#if ADDS
        STORE_LOOP for (int i = 0; i < (16 * pieces + 31) / 32; i++) {
            PIECE_OF_PLANES(i);
            unsigned four[4];
            if (IS_PIECE) {
                const GLOBAL out_t *z = added->z + element_of(b->at.group * K + k + row, out);
                load_run(4, four, (const GLOBAL unsigned *)z);
                write16(shared, rows - shared + row * OWN_PITCH + at * 2, four);
            }
        }
        __syncwarp();
#endif
        UNROLL for (int px = from; px < from + count; px += 16) {
            unsigned words[4];
#if ADDS
            read_matrices(words, write + (px - from) * 2);
            add_words(sums, words, px, added);
#endif
            round_sums(words, sums, px);
            write_matrices(write + (px - from) * 2, words);
        }
        __syncwarp();
        STORE_LOOP for (int i = 0; i < (16 * pieces + 31) / 32; i++) {
            PIECE_OF_PLANES(i);
            acc_t four[4];
            read4(four, shared, rows - shared + row * OWN_PITCH + at * 2);
            if (IS_PIECE)
                store_run(4, (GLOBAL acc_t *)(y + element_of(b->at.group * K + k + row, out)), four);  // bits
        }
    }
}
#endif

// Finish and store the sums of a thread (wgmma.h: which they are).
INLINE void store_own(Epilogue ep, shared_t shared, const Block *b, acc_t sums[WG_WORDS], int team, int thread) {
    const int lane = thread % 32, warp = thread / 32, k_warp = team % WM * 64 + warp * 16;
    const int k_sum = k_warp + FIRST_OF(lane);
    const int k_tile = b->at.group * K + b->channels, first = Y_NHWC ? k_tile + (STORES == STORE_WORDS ? k_sum : 0) : 0;
    Added added = {ep.z + first, {0, 0}};
    GLOBAL done_t *y = ep.y + (SHARE_AT(b->at) + first);
    asm volatile("" : "+l"(y));  // worked out once
#if ADDS
    UNROLL for (int i = 0; i < 2; i++)
        if (BIAS) added.bias[i] = out_load(ep.bias + k_tile + min(k_sum + i * SECOND, K - 1 - b->channels));
#else
    UNROLL for (int i = 0; i < WG_WORDS; i++) {
        const int k = k_tile + min(k_sum + i / 2 % 2 * SECOND, K - 1 - b->channels);
        sums[i] = epilogue(sums[i], ep, k, 0);
        if (REQUANT) sums[i] = done_of(sums[i], ep, k);
    }
#endif
#if STORES == STORE_WORDS
    store_words(y, shared, b, sums, b->channels + k_sum, team / WM * WG_N, team * 4 + warp, lane, &added);
#elif STORES == STORE_PLANES
    store_planes(y, shared, b, sums, b->channels + k_warp, team / WM * WG_N, team * 4 + warp, lane, &added);
#else
    store_rows(y, shared, b, sums, k_warp, team / WM, team % WM * 128 + thread, &added);
#endif
}
#endif

#if FINISH == MET
#define FOURS (KB / 2)  // of a pair of pixels
#define TWO_AT_ONCE (Y_VECTOR && K % 2 == 0)
#define RESIDUAL_PAIRS (ADDS && TWO_AT_ONCE)  // two numbers of it at once, on their way with the shares
#if RESIDUAL_PAIRS
#define FINISHED(v, k, to, more) before_pool_of(v, BIAS ? out_load(ep.bias + (k)) : 0, out_widened(more))
#else
#define FINISHED(v, k, to, more) epilogue(v, ep, k, to)
#endif

// Send a thread's shares (wgmma.h: which they are) to the blocks that finish them.
INLINE void send_shares(shared_t shared, const Block *b, const acc_t sums[WG_WORDS], int team, int thread) {
    const int lane = thread % 32, four = team % WM * 32 + thread / 32 * 8 + lane / 4;
    UNROLL for (int i = 0; i < WG_EIGHTHS; i++) {
        const int pair = team / WM * (WG_N / 2) + i * 4 + lane % 4, owner = pair / PAIRS;
        const shared_t there = of_block(shared, owner * COPIES + b->copy);
        const shared_t to = there + MEET_FROM + ((b->sc * PAIRS + pair % PAIRS) * FOURS + four) * 16;
        send4(to, sums + i * 4, there + (MEET - shared));
    }
}

// Add up the shares of this block's pixels, finish and store them; by all threads that multiply.
INLINE void store_shares(Epilogue ep, shared_t shared, const Block *b, int thread) {
    bar_wait_cluster(MEET, 0);
    NO_UNROLL for (int item = thread; item < pairs_of(b->sc) * FOURS; item += 128 * TEAMS) {
        const int pair = item / FOURS, four = item % FOURS, k = b->channels + four / 8 * 16 + four % 8 * 2;
        acc_t v[4] = {0, 0, 0, 0};
        int pixels[2];
        read_two(pixels, shared, OUTS_FROM + (b->sc * PAIRS + pair) * 8);
#if RESIDUAL_PAIRS
        out_t more[2][2];
        UNROLL for (int e = 0; e < 2; e++)
            if (pixels[e] >= 0 && IS_CHANNEL(k))
                load_run(2, more[e], ep.z + element_of(b->at.group * K + k, pixels[e]));
#endif
        UNROLL for (int sc = 0; sc < SC; sc++) {
            acc_t share[4];
            read4(share, shared, MEET_FROM + ((sc * PAIRS + pair) * FOURS + four) * 16);
            UNROLL for (int e = 0; e < 4; e++) v[e] += share[e];
        }
        UNROLL for (int e = 0; e < 2; e++) {
            const int k_all = b->at.group * K + k;
            const offset_t to = SHARE_AT(b->at) + (offset_t)pixels[e] * (GROUPS_ * K) + k_all;
            done_t outs[2];
            UNROLL for (int h = 0; h < 2; h++) {
                const int is_one = pixels[e] >= 0 && IS_CHANNEL(k + h);
                if (is_one) outs[h] = done_of(FINISHED(v[h * 2 + e], k_all + h, to + h, more[e][h]), ep, k_all + h);
                if (is_one && !TWO_AT_ONCE) ep.y[to + h] = outs[h];
            }
            if (TWO_AT_ONCE && pixels[e] >= 0 && IS_CHANNEL(k)) store_run(2, ep.y + to, outs);
        }
    }
}
#endif
