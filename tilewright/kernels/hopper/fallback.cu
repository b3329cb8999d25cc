// fallback: the last launch of a layer whose numbers were split in two of f16 (halves.h). Where that lost too much
// (halves_guard.h), of x or of a row of the filter, y once more, in strict f32 by the CUDA cores:
//
//   y[n,k,p,q] = sum over r,s,c of x[n,c,p*u+r*d-pad,q*u+s*d-pad] * w[k,r,s,c], then its epilogue (epilogue.h)
//
// x: as given, nchw or nhwc.  y: nhwc or nchw.  w: the packed filter with all that stands behind it (halves_pack.cu).
//
//   a tile   KB channels x COLUMNS sums: pixels, or where there is a pool whole windows of it, cell by cell:
//
//            columns  | c0 c1 c2 c3 | c0 c1 c2 c3 | ...      a window of more than COLUMNS cells takes some PASSES
//                       window 0      window 1
//
// A block takes tile after tile, 4 x 4 sums a thread, DEPTH terms of them a step, which come while those of the step
// before are multiplied (fallback.py has the sizes). PARTIAL_STEPS steps are summed by themselves, and these sums one
// after the other: always in this order.
// Where nothing was lost no block has a tile: they only look.
// Example: 64 channels of 3x3 filters: 576 terms, 36 steps of 16; a 2x2 pool: 16 windows of a tile.

#define PITCH (COLUMNS + 4)
#define TERMS (R * S * C)
#define STEPS CEIL_DIV(TERMS, DEPTH)
#define CELLS (POOL_SIZE * POOL_SIZE)
#define OUTS (N * YP * YQ)
#define OUTS_AT_ONCE (CELLS < COLUMNS ? COLUMNS / CELLS : 1)
#define PASSES CEIL_DIV(CELLS, COLUMNS)
#define K_TILES CEIL_DIV(K, KB)
#define TILES (GROUPS_ * K_TILES * CEIL_DIV(OUTS, OUTS_AT_ONCE))
#define NOWHERE (-(1 << 30))
#define HB 1  // for tile.h: one share of the sum
#define WB 1
#define SC 1
#define SG 1
#define P_TILES 1
#define Q_TILES 1
#define K_FASTEST 1
#define COMBINE NONE

#include "tile.h"
#include "halves.h"
#include "halves_guard.h"

typedef struct {
    int n, p, q, inside;  // a pixel of the sum; whether it is one
} Pixel;

// Which pixel a cell of the window of an output is.
INLINE Pixel find_pixel(int out, int cell) {
    Pixel at;
    at.n = out / (YP * YQ);
    at.p = out / YQ % YP * POOL_STRIDE - POOL_PAD + cell / POOL_SIZE;
    at.q = out % YQ * POOL_STRIDE - POOL_PAD + cell % POOL_SIZE;
    at.inside = out < OUTS && cell < CELLS && (unsigned)at.p < P && (unsigned)at.q < Q;
    return at;
}

// Neighbouring threads stage neighbours in memory: of w terms, of x terms (nhwc) or columns.
#define MY_STAGED (KB * DEPTH / THREADS)         // numbers of a thread
#define STAGED_COLUMNS (X_NHWC ? MY_STAGED : 1)  // columns that they are of
#define STAGED_TERM(i) (X_NHWC ? THREAD(0) % DEPTH : (THREAD(0) + (i) * THREADS) / COLUMNS)
#define STAGED_COLUMN(i) (X_NHWC ? (THREAD(0) + (i) * THREADS) / DEPTH : THREAD(0) % COLUMNS)

// Send for the terms of a step: DEPTH rows of KB channels, then of COLUMNS columns; zeros where there is nothing.
// A Pixel is here one of x, under the first tap.
INLINE void stage(SHARED acc_t *to, const GLOBAL acc_t *x, const GLOBAL acc_t *w, const Pixel *from, int group, int k0,
                  int step) {
    UNROLL for (int i = 0; i < MY_STAGED; i++) {
        const int row = (THREAD(0) + i * THREADS) / DEPTH, term = THREAD(0) % DEPTH, t = step * DEPTH + term;
        const int keep = t < TERMS && k0 + row < K;
        async_copy1(to + term * PITCH + row, w + (keep ? (offset_t)(group * K + k0 + row) * TERMS + t : 0), keep);
    }
    UNROLL for (int i = 0; i < MY_STAGED; i++) {
        const int term = STAGED_TERM(i), t = step * DEPTH + term, tap = t / C;
        const Pixel at = from[i % STAGED_COLUMNS];
        const int h = at.p + tap / S * DIL_H, v = at.q + tap % S * DIL_W;
        const int keep = t < TERMS && (unsigned)h < H && (unsigned)v < W;
        const offset_t place = keep ? X_AT(at.n, group * C + t % C, h, v) : 0;
        async_copy1(to + (DEPTH + term) * PITCH + STAGED_COLUMN(i), x + place, keep);
    }
    ASYNC_COMMIT();
}

// Multiply what a step has staged.
INLINE void multiply(acc_t sums[16], const SHARED acc_t *from) {
    UNROLL for (int term = 0; term < DEPTH; term++) {
        acc_t a[4], b[4];
        load4(a, from + term * PITCH + THREAD(0) / 16 * 4);
        load4(b, from + (DEPTH + term) * PITCH + THREAD(0) % 16 * 4);
        UNROLL for (int i = 0; i < 16; i++) sums[i] = mul_add(a[i / 4], b[i % 4], sums[i]);
    }
}

// Sum up a tile: cells of outputs from `out` on. It is left in shared memory, [KB][PITCH].
INLINE void sum_up(SHARED acc_t *shared, const GLOBAL acc_t *x, const GLOBAL acc_t *w, int group, int k0, int out,
                   int pass) {
    acc_t sums[16], part[16];
    Pixel from[STAGED_COLUMNS];
    UNROLL for (int i = 0; i < 16; i++) sums[i] = part[i] = 0;
    UNROLL for (int i = 0; i < STAGED_COLUMNS; i++) {
        const int column = STAGED_COLUMN(i) + pass * COLUMNS, next = PASSES > 1 ? 0 : column / CELLS;
        from[i] = find_pixel(next < OUTS_AT_ONCE ? out + next : OUTS, column - next * CELLS);
        from[i].p = from[i].inside ? from[i].p * STR_H - PAD_T : NOWHERE;
        from[i].q = from[i].q * STR_W - PAD_L;
    }
    stage(shared, x, w, from, group, k0, 0);
    NO_UNROLL for (int step = 0; step < STEPS; step++) {
        ASYNC_WAIT(0);
        BARRIER();  // all of the step has come, and who multiplied the one before is done
        if (step + 1 < STEPS) stage(shared + (step + 1) % 2 * (2 * DEPTH * PITCH), x, w, from, group, k0, step + 1);
        multiply(part, shared + step % 2 * (2 * DEPTH * PITCH));
        if (step % PARTIAL_STEPS == PARTIAL_STEPS - 1 || step == STEPS - 1)
            UNROLL for (int i = 0; i < 16; i++) sums[i] += part[i], part[i] = 0;
    }
    BARRIER();
    UNROLL for (int i = 0; i < 16; i += 4)
        store4(shared + (THREAD(0) / 16 * 4 + i / 4) * PITCH + THREAD(0) % 16 * 4, sums + i);
    BARRIER();
}

// Sum up, finish and store outputs from `out` on.
INLINE void make_tile(Epilogue ep, const GLOBAL acc_t *x, const GLOBAL acc_t *w, SHARED acc_t *shared, int group,
                      int k0, int out) {
    acc_t v = POOL_NOTHING;  // of an output; where that takes some passes a thread has no other
    NO_UNROLL for (int pass = 0; pass < PASSES; pass++) {
        sum_up(shared, x, w, group, k0, out, pass);
        NO_UNROLL for (int e = THREAD(0); e < KB * OUTS_AT_ONCE; e += THREADS) {
            const int k = Y_NHWC ? e % KB : e / OUTS_AT_ONCE, next = Y_NHWC ? e / KB : e % OUTS_AT_ONCE;
            const int k_all = group * K + k0 + k, last = min(CELLS, (pass + 1) * COLUMNS);
            if (k0 + k >= K || out + next >= OUTS) continue;
            for (int cell = pass * COLUMNS; cell < last; cell++) {
                const Pixel at = find_pixel(out + next, cell);
                if (!at.inside) continue;
                const acc_t sum = before_pool(shared[k * PITCH + next * CELLS + cell - pass * COLUMNS], ep, k_all,
                                              Z_AT(at.n, k_all, at.p, at.q));
                if (POOL) pool_take(&v, sum);
                else v = sum;
            }
            if (pass < PASSES - 1) continue;
            ep.y[Y_AT((out + next) / (YP * YQ), k_all, (out + next) / YQ % YP, (out + next) % YQ)] = pool_mean(v);
            v = POOL_NOTHING;
        }
        BARRIER();
    }
}

// Whether too much was lost of a row of the filter, among `count` from `first` on, `step` apart.
INLINE int any_unfit(const GLOBAL acc_t *misfits, int first, int count, int step) {
    int found = 0;
    for (int i = first; i < count; i += step) found |= unfit(misfits[i], TERMS);
    return found;
}

BOUNDED_KERNEL(fallback, THREADS, 1)
(const GLOBAL acc_t *RESTRICT x, const GLOBAL acc_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL out_t *RESTRICT y, const GLOBAL acc_t *RESTRICT found) {
    SHARED_ARRAY(shared);
    SHARED_FLAG(any);
    const GLOBAL acc_t *misfits = w + (offset_t)MISFITS_AT, *exact = misfits + GROUPS_ * W_ROWS;
    const int row = any_unfit(misfits, THREAD(0), GROUPS_ * W_ROWS, THREADS);
    CHAIN_WAIT();
    const int all = unfit(load_fresh(found + 1), (offset_t)N * H * W * C_ALL);
    const int tiles = largest_of_block(row | all, any) ? TILES : 0;
    const Epilogue ep = {bias, z, y};
    NO_UNROLL for (int tile = GROUP(0); tile < tiles; tile += GROUPS(0)) {
        const int k0 = tile % K_TILES * KB, group = tile / K_TILES % GROUPS_;
        if (all || any_unfit(misfits + group * W_ROWS, k0, min(k0 + KB, K), 1))
            make_tile(ep, x, exact, shared, group, k0, tile / K_TILES / GROUPS_ * OUTS_AT_ONCE);
    }
}
