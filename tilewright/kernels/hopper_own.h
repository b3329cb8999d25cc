// Where a warp's sums are whole and go to nhwc (OWN, hopper_tile.py: stores_own), it finishes and stores them itself: no
// tile of sums, no barrier of all threads, and little code, which costs 4 to 5 cycles an instruction where it runs once.
//
//   4 bytes an output   from registers: an instruction stores 8 channels (32 bytes) of 4 pixels
//   2 bytes             by way of shared memory, a matrix of 8 x 8 at a time, transposed: a row there is a pixel, and a
//                       warp's 16 channels of it 32 bytes; an instruction stores those of 16 pixels
// All else goes by way of the tile of sums (hopper_store.h).

#if OWN
#define IS_CHANNEL(k) (K % KB == 0 || (k) < K)
#define OWN_WAITS (sizeof(y_t) < 4)  // until nobody reads the buffers that it writes over

// Write four matrices of 8 x 8 outputs, transposed: rows of matrix i go where lanes 8i to 8i + 7 say.
INLINE void write_transposed(shared_t to, const unsigned v[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
}

// Finish and store the sums of a thread (wgmma.h: which they are).
INLINE void store_own(GLOBAL y_t *y, const GLOBAL out_t *bias, shared_t shared, const Block *b, acc_t sums[WG_WORDS], int team, int thread) {
    const int lane = thread % 32, k_warp = team % WM * 64 + thread / 32 * 16, px_team = team / WM * WG_N;
    const int k_tile = b->at.group * K + b->channels, k = k_warp + lane / 4;
    y += SHARE_AT(b->at) + k_tile + (OWN_WAITS ? k_warp + lane % 2 * 8 : k);
    asm volatile("" : "+l"(y));  // worked out once
    UNROLL for (int i = 0; i < WG_WORDS; i++)
        sums[i] = epilogue(sums[i], bias, k_tile + min(k + i / 2 % 2 * 8, K - 1 - b->channels), 0, 0);
    if (sizeof(y_t) == 4) {
        UNROLL for (int i = 0; i < WG_WORDS; i += 4) {
            int pixels[2];
            read_two(pixels, shared, OUTS_FROM + (px_team + i * 2 + lane % 4 * 2) * 4);
            UNROLL for (int e = 0; e < 2; e++) {
                GLOBAL y_t *to = y + (offset_t)pixels[e] * (GROUPS_ * K);
                UNROLL for (int h = 0; h < 2; h++)
                    if (pixels[e] >= 0 && IS_CHANNEL(b->channels + k + 8 * h)) to[8 * h] = y_of(sums[i + 2 * h + e]);
            }
        }
    } else {
        const int matrix = lane / 8, k_half = k_warp + lane % 2 * 8, rows_team = team / WM * OWN_ROWS;
        const shared_t write = shared + (rows_team + matrix / 2 * 8 + lane % 8) * OWN_PITCH + (k_warp + matrix % 2 * 8) * 2;
        const int read = (rows_team + lane / 2) * OWN_PITCH + k_half * 2;
        UNROLL for (int i = 0; i < WG_WORDS; i += 8) {  // 16 pixels
            unsigned words[4];
            UNROLL for (int m = 0; m < 4; m++) {
                const int at = min(i + m * 2, WG_WORDS - 2);  // the last 8 pixels may be all
                words[m] = (unsigned)y_of(sums[at]) | (unsigned)y_of(sums[at + 1]) << 16;
            }
            write_transposed(write + i * 2 * OWN_PITCH, words);
        }
        __syncwarp();
        UNROLL for (int px = 0; px < WG_N; px += 16) {
            const int at = px + lane / 2, pixel = at < WG_N ? read_int(shared, OUTS_FROM + (px_team + at) * 4) : -1;
            acc_t four[4];
            read4(four, shared, read + px * OWN_PITCH);
            if (pixel >= 0 && IS_CHANNEL(b->channels + k_half))
                store_run(4, (GLOBAL acc_t *)(y + (offset_t)pixel * (GROUPS_ * K)), four);  // bits, not numbers
        }
    }
}
#endif
