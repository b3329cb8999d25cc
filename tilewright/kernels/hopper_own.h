// Sums that go to nhwc without a tile of them in shared memory (FINISH, hopper_tile.py: finish): no barrier of all threads,
// and little code, which costs 4 to 5 cycles an instruction where it runs once.
//
// FINISH 1: a warp's sums are whole. It finishes and stores them itself.
//   4 bytes an output   from registers: an instruction stores 8 channels (32 bytes) of 4 pixels
//   2 bytes             by way of shared memory, a matrix of 8 x 8 at a time, transposed: a row there is a pixel, and a
//                       warp's 16 channels of it 32 bytes; an instruction stores those of 16 pixels
// FINISH 2: they are shares of a cluster, and each block finishes some of its pixels: a thread sends what it has of two
// neighbouring pixels and two channels, 8 apart (16 bytes), from its registers to that block's shared memory, where
// [share][pair of pixels][pair of channels] wait until all have come. Then a thread adds up one such four of all shares.
// All else goes by way of the tile of sums (hopper_store.h).

#define IS_CHANNEL(k) (K % KB == 0 || (k) < K)

#if FINISH == 1
#define OWN_BY_ROWS (sizeof(y_t) < 4)
#define OWN_WAITS (OWN_BY_ROWS && !STAYS)  // until nobody reads the buffers that it writes over

// Store a warp's sums from registers, channels from `k` on; y is where channel k of pixel 0 goes.
INLINE void store_words(GLOBAL y_t *y, shared_t shared, int outs, const acc_t sums[WG_WORDS], int k, int px_team, int lane) {
    UNROLL for (int i = 0; i < WG_WORDS; i += 4) {
        int pixels[2];
        read_two(pixels, shared, outs + (px_team + i * 2 + lane % 4 * 2) * 4);
        UNROLL for (int e = 0; e < 2; e++) {
            GLOBAL y_t *to = y + (offset_t)pixels[e] * (GROUPS_ * K);
            UNROLL for (int h = 0; h < 2; h++)
                if (pixels[e] >= 0 && IS_CHANNEL(k + 8 * h)) to[8 * h] = y_of(sums[i + 2 * h + e]);
        }
    }
}

// Store them as outputs of 2 bytes, by way of rows of shared memory from `rows` on: a pixel each, OWN_ROWS at a time.
INLINE void store_halfwords(GLOBAL y_t *y, shared_t shared, int outs, const acc_t sums[WG_WORDS], int rows, int k,
                            int px_team, int lane) {
    const int matrix = lane / 8;
    const shared_t write = shared + rows + (matrix / 2 * 8 + lane % 8) * OWN_PITCH + matrix % 2 * 16;
    const int read = rows + lane / 2 * OWN_PITCH + lane % 2 * 16;
    UNROLL for (int from = 0; from < WG_N; from += OWN_ROWS) {
        if (from > 0) __syncwarp();
        UNROLL for (int px = from; px < WG_N && px < from + OWN_ROWS; px += 16) {
            unsigned words[4];
            UNROLL for (int m = 0; m < 4; m++) {
                const int at = min(px / 2 + m * 2, WG_WORDS - 2);  // the last 8 pixels may be all
                words[m] = (unsigned)y_of(sums[at]) | (unsigned)y_of(sums[at + 1]) << 16;
            }
            write_transposed(write + (px - from) * OWN_PITCH, words);
        }
        __syncwarp();
        UNROLL for (int px = from; px < WG_N && px < from + OWN_ROWS; px += 16) {
            const int at = px + lane / 2, pixel = at < WG_N ? read_int(shared, outs + (px_team + at) * 4) : -1;
            acc_t four[4];
            read4(four, shared, read + (px - from) * OWN_PITCH);
            if (pixel >= 0 && IS_CHANNEL(k)) store_run(4, (GLOBAL acc_t *)(y + (offset_t)pixel * (GROUPS_ * K)), four);  // bits
        }
    }
}

// Finish and store the sums of a thread (wgmma.h: which they are).
INLINE void store_own(GLOBAL y_t *y, const GLOBAL out_t *bias, shared_t shared, const Block *b, acc_t sums[WG_WORDS],
                      int team, int thread) {
    const int lane = thread % 32, k_warp = team % WM * 64 + thread / 32 * 16, px_team = team / WM * WG_N;
    const int k_sum = k_warp + lane / 4, k_stored = OWN_BY_ROWS ? k_warp + lane % 2 * 8 : k_sum;
    const int k_tile = b->at.group * K + b->channels;
    y += SHARE_AT(b->at) + k_tile + k_stored;
    asm volatile("" : "+l"(y));  // worked out once
    UNROLL for (int i = 0; i < WG_WORDS; i++)
        sums[i] = epilogue(sums[i], bias, k_tile + min(k_sum + i / 2 % 2 * 8, K - 1 - b->channels), 0, 0);
    const int k_y = b->channels + k_stored;
    const int rows = STAYS ? OWN_FROM + thread / 32 * (OWN_ROWS * OWN_PITCH) + team * (4 * OWN_ROWS * OWN_PITCH)
                           : team / WM * (OWN_ROWS * OWN_PITCH) + k_warp * 2;
    if (OWN_BY_ROWS) store_halfwords(y, shared, b->outs, sums, rows, k_y, px_team, lane);
    else store_words(y, shared, b->outs, sums, k_y, px_team, lane);
}
#endif

#if FINISH == 2
#define FOURS (KB / 2)  // of a pair of pixels

// Send a thread's shares (wgmma.h: which they are) to the blocks that finish them.
INLINE void send_shares(shared_t shared, const Block *b, const acc_t sums[WG_WORDS], int team, int thread) {
    const int lane = thread % 32, four = team % WM * 32 + thread / 32 * 8 + lane / 4;
    UNROLL for (int i = 0; i < WG_EIGHTHS; i++) {
        const int pair = team / WM * (WG_N / 2) + i * 4 + lane % 4, owner = pair / PAIRS;
        const shared_t there = of_block(shared, owner * COPIES + b->copy);
        send4(there + MEET_FROM + ((b->sc * PAIRS + pair % PAIRS) * FOURS + four) * 16, sums + i * 4, there + (MEET - shared));
    }
}

// Add up the shares of this block's pixels, finish and store them; by all threads that multiply.
INLINE void store_shares(GLOBAL y_t *y, const GLOBAL out_t *bias, const GLOBAL out_t *z, shared_t shared, const Block *b,
                         int thread) {
    bar_wait_cluster(MEET, 0);
    y += SHARE_AT(b->at);
    NO_UNROLL for (int item = thread; item < pairs_of(b->sc) * FOURS; item += 128 * TEAMS) {
        const int pair = item / FOURS, four = item % FOURS, k = b->channels + four / 8 * 16 + four % 8;
        acc_t v[4] = {0, 0, 0, 0};
        int pixels[2];
        read_two(pixels, shared, OUTS_FROM + (b->sc * PAIRS + pair) * 8);
        UNROLL for (int sc = 0; sc < SC; sc++) {
            acc_t share[4];
            read4(share, shared, MEET_FROM + ((sc * PAIRS + pair) * FOURS + four) * 16);
            UNROLL for (int e = 0; e < 4; e++) v[e] += share[e];
        }
        UNROLL for (int e = 0; e < 2; e++)
            UNROLL for (int h = 0; h < 2; h++) {
                const int k_all = b->at.group * K + k + h * 8;
                const offset_t to = (offset_t)pixels[e] * (GROUPS_ * K) + k_all;
                if (pixels[e] >= 0 && IS_CHANNEL(k + h * 8)) y[to] = y_of(epilogue(v[h * 2 + e], bias, k_all, z, to));
            }
    }
}
#endif
