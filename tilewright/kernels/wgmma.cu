// wgmma: implicit GEMM on Hopper's tensor cores. y[pixel][k] = sum over taps and channels of x[pixel, tap][c] w[k][tap][c].
//
// x, y: nhwc.  w: packed [group][k tile][step][BN][128 bytes], swizzled as shared memory has it, zeros past K and C.
//
//   a step: one tap (r, s) and 128 bytes of channels
//
//        BM pixels x 128 bytes of x          BN channels x 128 bytes of w
//        +----------------------+            +----------------------+
//        | row: a pixel's place |            | row: an output       |      STAGES of both in shared memory,
//        |  under the tap, or 0 |            |  channel             |      copied by all threads
//        +----------------------+            +----------------------+
//
// A warpgroup multiplies WG_ROWS times 64 pixels with all BN channels; its sums stay in registers. Copies run
// STAGES - 2 steps ahead: a buffer is written again only when the products of two steps ago are known to be
// done, so that one step's products always run while the next is waited for. The sum is split SG ways over the
// grid. Pixels of all images are one row of numbers: 7 x 7 = 49 of 64 rows are used, 14 x 14 x 32 all.
// Example: f16, 3x3, C = 256: 9 * 4 = 36 steps; BM = 128, BN = 128: 32 KB a stage.

#define BM (64 * WG_M * WG_ROWS)
#define BN WG_N
#define THREADS (128 * WG_M)
#define A_BYTES (BM * 128)
#define STAGE_BYTES (A_BYTES + BN * 128)
#define DEEP (128 / (int)sizeof(in_t))  // channels of a step
#define PIECE (16 / (int)sizeof(in_t))  // and of a copy
#define A_COPIES (BM * 8 / THREADS)
#define RS (R * S)

#include "epilogue.h"
#include "wgmma.h"

typedef struct {
    int at[A_COPIES];          // of each row that this thread copies: offset of its first tap and piece
    unsigned inside[A_COPIES]; // bit r: tap row r lies in the image; bit 16 + s: tap column s
} Rows;

INLINE Rows find_rows(int px0, int group) {
    Rows rows;
    UNROLL for (int j = 0; j < A_COPIES; j++) {
        int px = px0 + j * (THREADS / 8) + THREAD(0) / 8, n = px / (P * Q), p = px / Q % P, q = px % Q;
        int h = p * STR_H - PAD_T, w = q * STR_W - PAD_L;
        rows.at[j] = ((n * H + h) * W + w) * C_ALL + group * C + THREAD(0) % 8 * PIECE;
        rows.inside[j] = 0;
        UNROLL for (int r = 0; r < R; r++)
            if (px < PIXELS && (unsigned)(h + r * DIL_H) < H) rows.inside[j] |= 1u << r;
        UNROLL for (int s = 0; s < S; s++)
            if ((unsigned)(w + s * DIL_W) < W) rows.inside[j] |= 1u << (16 + s);
    }
    return rows;
}

INLINE void copy16(unsigned to, const void *from, int keep) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(keep ? 16 : 0));
}

// Copy what a step multiplies; nothing if it is past the end.
INLINE void load_step(unsigned to, const in_t *x, const in_t *w, const Rows *rows, int step, int end) {
    if (step < end) {
        const int tap = step % RS, r = tap / S, s = tap % S, c = step / RS * DEEP;
        const int piece = THREAD(0) % 8, row = THREAD(0) / 8, more = c + (r * DIL_H * W + s * DIL_W) * C_ALL;
        const int wanted = C % DEEP == 0 || c + piece * PIECE < C;
        UNROLL for (int j = 0; j < A_COPIES; j++) {
            int keep = wanted && (rows->inside[j] >> r & rows->inside[j] >> (16 + s) & 1u);
            copy16(to + (j * (THREADS / 8) + row) * 128 + ((piece ^ row & 7) << 4), x + (keep ? rows->at[j] + more : 0), keep);
        }
        const char *filter = (const char *)w + (offset_t)step * (BN * 128);
        UNROLL for (int e = 0; e < BN * 128; e += THREADS * 16)
            if (e + THREADS * 16 <= BN * 128 || e + THREAD(0) * 16 < BN * 128)
                copy16(to + A_BYTES + e + THREAD(0) * 16, filter + e + THREAD(0) * 16, 1);
    }
    ASYNC_COMMIT();
}

// Two neighbouring channels of one pixel: finished, or a share of the sum.
INLINE void store_pair(out_t *y, acc_t *partial, const out_t *bias, const out_t *z, int px, int k, int k_all, const acc_t v[2]) {
    if (px >= PIXELS) return;
    const offset_t to = (offset_t)px * K_ALL + k_all;
    UNROLL for (int e = 0; e < 2; e++) {
        if (k + e >= K) continue;
        if (SG > 1) partial[to + e] = v[e];
        else out_store(y + to + e, before_pool(v[e], bias, k_all + e, z, to + e));
    }
}

BOUNDED_KERNEL(wgmma, THREADS, MIN_BLOCKS)
(const in_t *RESTRICT x, const in_t *RESTRICT w, const out_t *RESTRICT bias, const out_t *RESTRICT z,
 out_t *RESTRICT y, acc_t *RESTRICT partial) {
    SHARED_ARRAY(shared);
    CHAIN();
    int rest = GROUP(0);
    const int sg = rest % SG, k_tile = (rest /= SG) % K_TILES, px_tile = (rest /= K_TILES) % PX_TILES, group = rest / PX_TILES;
    const int first = sg * SHARE, end = min(STEPS, first + SHARE), px0 = px_tile * BM, team = THREAD(0) / 128;
    const unsigned base = ((unsigned)__cvta_generic_to_shared(shared) + 1023) / 1024 * 1024;
    const Rows rows = find_rows(px0, group);
    w += (offset_t)(group * K_TILES + k_tile) * STEPS * (BN * DEEP);

    acc_t sums[WG_ROWS][WG_WORDS];
    UNROLL for (int a = 0; a < WG_ROWS; a++) UNROLL for (int i = 0; i < WG_WORDS; i++) sums[a][i] = 0;

    UNROLL for (int i = 0; i < STAGES - 2; i++) load_step(base + i * STAGE_BYTES, x, w, &rows, first + i, end);
    int slot = 0, ahead = STAGES - 2;
    NO_UNROLL for (int step = first; step < end; step++) {
        ASYNC_WAIT(STAGES - 3);
        wg_see_copies();
        BARRIER();
        load_step(base + ahead * STAGE_BYTES, x, w, &rows, step + STAGES - 2, end);
        const unsigned a = base + slot * STAGE_BYTES + team * (WG_ROWS * 8192), b = base + slot * STAGE_BYTES + A_BYTES;
        wg_begin();
        UNROLL for (int i = 0; i < 128; i += 32)
            UNROLL for (int m = 0; m < WG_ROWS; m++) wg_multiply_add(sums[m], wg_tile(a + m * 8192 + i), wg_tile(b + i), 1);
        wg_commit();
        WG_WAIT(1);
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        ahead = ahead + 1 == STAGES ? 0 : ahead + 1;
    }
    WG_WAIT(0);

    const int lane = THREAD(0) % 32, warp = THREAD(0) / 32 % 4;
    partial += (offset_t)sg * PIXELS * K_ALL;
    UNROLL for (int m = 0; m < WG_ROWS; m++)
        UNROLL for (int i = 0; i < WG_WORDS; i += 2) {
            int px = px0 + (team * WG_ROWS + m) * 64 + warp * 16 + lane / 4 + i / 2 % 2 * 8, k = k_tile * BN + i / 4 * 8 + lane % 4 * 2;
            store_pair(y, partial, bias, z, px, k, group * K + k, sums[m] + i);
        }
}

#if SG > 1
BOUNDED_KERNEL(sum_shares, SUM_THREADS, 1)
(const acc_t *RESTRICT partial, const out_t *RESTRICT bias, const out_t *RESTRICT z, out_t *RESTRICT y) {
    const offset_t i = (offset_t)GROUP(0) * SUM_THREADS + THREAD(0);
    CHAIN();
    if (i >= (offset_t)PIXELS * K_ALL) return;
    acc_t sum = 0;
    UNROLL for (int g = 0; g < SG; g++) sum += partial[(offset_t)g * PIXELS * K_ALL + i];
    out_store(y + i, before_pool(sum, bias, i % K_ALL, z, i));
}
#endif
