// gemv: y[n,k] = epilogue(sum over c of w[k,c] * x[n,c]): a filter over the whole image, so one pixel is left
//
// x: [N][C], w: [K][C] as given; C counts all inputs of an image (channels x pixels). They are multiplied as words:
// one number each, or four of i8 (dot4).
//
//              C of w                       a team of LANES threads walks along ROWS rows of w at once,
//      +---------------------+              neighbouring threads on neighbouring 16 bytes; each keeps
// ROWS |>>>>  team 0         |              ROWS x IMAGES sums of VECTOR parts. UNROLL_PIECES of each row
//      |>>>>  team 1         |  TEAMS       are under way before the first is used: what limits is how
//      |>>>>  ...            |              many bytes are in flight, not arithmetic.
//      +---------------------+
//
// The sum over C may be split SG ways across the grid; its shares meet as in tile.h.
// Knobs (gemv.py; docs/families.md has what each buys): THREADS, LANES (lanes 8 .. 256), ROWS (rows 1 .. 16), IMAGES
// (images), UNROLL_PIECES (unroll 1 .. 8), X_SHARED (x), MIN_BLOCKS (mb), SG, COMBINE.
// Example: CLASS1 (4096 x 25088), 256 threads, LANES = 32, ROWS = 4, UNROLL_PIECES = 2: a block asks for
// 256 * 4 * 2 * 16 = 32 KB at a time; two blocks a unit keep 64 KB in flight.

#define TEAMS (THREADS / LANES)
#define KB (TEAMS * ROWS)
#define HB 1
#define WB 1
#define IN_WORD (DTYPE == 4 ? 4 : 1)           // numbers of a word
#define THREAD_NUMBERS (VECTOR * IN_WORD)      // of a row, read by one thread at once
#define TEAM_NUMBERS (LANES * THREAD_NUMBERS)  // and by its team: a piece of the row
#define THREAD_SUMS (ROWS * IMAGES)
#define FOR_SUMS(a, b) UNROLL for (int a = 0; a < ROWS; a++) UNROLL for (int b = 0; b < IMAGES; b++)

#include "tile.h"

// VECTOR neighbours of a row, as words. WIDE: aligned, and read 16 bytes at a time.
INLINE vec load_row(const GLOBAL in_t *p) {
    acc_t v[VECTOR];
#if WIDE && (DTYPE == 2 || DTYPE == 3)
    unsigned bits[4];
    load_once16(bits, p);
    UNROLL for (int i = 0; i < 4; i++) v[2 * i] = widened(bits[i] & 0xffff), v[2 * i + 1] = widened(bits[i] >> 16);
#elif WIDE && VECTOR == 4
    unsigned bits[4];
    load_once16(bits, p);
#if DTYPE == 4
    UNROLL for (int i = 0; i < 4; i++) v[i] = (int)bits[i];
#else
    UNROLL for (int i = 0; i < 4; i++) v[i] = bits_float(bits[i]);
#endif
#elif DTYPE == 4
    UNROLL for (int i = 0; i < VECTOR; i++) {
        unsigned word = 0;
        UNROLL for (int j = 0; j < 4; j++) word |= (unsigned)(unsigned char)p[4 * i + j] << 8 * j;
        v[i] = (int)word;
    }
#else
    UNROLL for (int i = 0; i < VECTOR; i++) v[i] = in_load(p + i);
#endif
    return vec_pack(v);
}

// A vector with one number and zeros.
INLINE vec first_of(const GLOBAL in_t *p) {
    acc_t v[VECTOR] = {0};
    v[0] = DTYPE == 4 ? (acc_t)(unsigned char)*p : in_load(p);  // in the lowest byte
    return vec_pack(v);
}

#if DTYPE == 4  // four numbers in each word of shared memory, where the lowest byte comes first
#define SHARED_X(shared, i) ((SHARED in_t *)(shared))[i]
#else
#define SHARED_X(shared, i) (shared)[i]
#endif
INLINE vec load_input(const GLOBAL in_t *x, const SHARED acc_t *xs, int image, int c, int from) {
#if X_SHARED
    acc_t v[VECTOR];
    UNROLL for (int i = 0; i < VECTOR; i++) v[i] = xs[(image * C_SHARE + c - from) / IN_WORD + i];
    return vec_pack(v);
#else
    return load_row(x + (offset_t)image * C + c);
#endif
}

// acc += w x over `pieces` pieces of each row from channel c on.
INLINE void add_pieces(vec acc[ROWS][IMAGES], const GLOBAL in_t *w, const GLOBAL in_t *x, const SHARED acc_t *xs, int c,
                       int from, int pieces) {
    vec wv[UNROLL_PIECES][ROWS];
    UNROLL for (int u = 0; u < UNROLL_PIECES; u++)
        if (u < pieces)
            UNROLL for (int a = 0; a < ROWS; a++) wv[u][a] = load_row(w + (offset_t)a * C + c + u * TEAM_NUMBERS);
    UNROLL for (int u = 0; u < UNROLL_PIECES; u++)
        if (u < pieces) UNROLL for (int b = 0; b < IMAGES; b++) {
            vec xv = load_input(x, xs, b, c + u * TEAM_NUMBERS, from);
            UNROLL for (int a = 0; a < ROWS; a++) vec_mul_add(&acc[a][b], wv[u][a], xv);
        }
}

#if COMBINE == ATOMIC
// Put zeros where the shares of the rows will be added (tile.h).
INLINE void zero_outputs(GLOBAL done_t *y, GLOBAL unsigned *arrived, Place at) {
    if (!ZEROES_TILE(at)) return;
    for (int e = THREAD(0); e < KB * IMAGES; e += THREADS) {
        int k = at.k0 + e % KB, n = at.n * IMAGES + e / KB;
        if (k < K && n < N) y[(offset_t)n * K + k] = 0;
    }
    zeros_written(arrived, at);
}
#endif

// acc += w x over the last few numbers of each row, one a lane.
INLINE void add_last(vec acc[ROWS][IMAGES], const GLOBAL in_t *w, const GLOBAL in_t *x, int end, int lane) {
    for (int c = end - C % THREAD_NUMBERS + lane; c < end; c += LANES) {
        vec one[ROWS];
        UNROLL for (int a = 0; a < ROWS; a++) one[a] = first_of(w + (offset_t)a * C + c);
        UNROLL for (int b = 0; b < IMAGES; b++) {
            vec xv = first_of(x + (offset_t)b * C + c);
            UNROLL for (int a = 0; a < ROWS; a++) vec_mul_add(&acc[a][b], one[a], xv);
        }
    }
}

BOUNDED_KERNEL(gemv, THREADS, MIN_BLOCKS)
(const GLOBAL in_t *RESTRICT x, const GLOBAL in_t *RESTRICT w, const GLOBAL out_t *RESTRICT bias,
 const GLOBAL out_t *RESTRICT z, GLOBAL done_t *RESTRICT y, GLOBAL acc_t *RESTRICT partial,
 GLOBAL unsigned *RESTRICT arrived) {
    SHARED_ARRAY(shared);
    SHARED_FLAG(is_last);

    // block, team, lane
    Place at = find_place(GROUP(0));
    int team = THREAD(0) / LANES, lane = THREAD(0) % LANES, row = at.k0 + team * ROWS, image = at.n * IMAGES;
    int from = at.sg * C_SHARE, end = from + C_SHARE < C ? from + C_SHARE : C;
    int last = K - ROWS > 0 ? K - ROWS : 0, first = row < last ? row : last;  // rows past K: read others instead
    const GLOBAL in_t *wr = w + (offset_t)first * C;
    const Epilogue ep = {bias, z, y};
    image = image < N - IMAGES ? image : N - IMAGES;
    const GLOBAL in_t *xr = x + (offset_t)image * C;
#if COMBINE == ATOMIC
    zero_outputs(y, arrived, at);
#endif

    // the input, where it is shared
#if X_SHARED
    for (int b = 0; b < IMAGES; b++)
        for (int c = from + THREAD(0); c < end; c += THREADS)
            SHARED_X(shared, b * C_SHARE + c - from) = in_load(xr + (offset_t)b * C + c);
    BARRIER();
#endif

    // registers and main loop
    vec acc[ROWS][IMAGES];
    FOR_SUMS(a, b) vec_zero(&acc[a][b]);
    int c = from + lane * THREAD_NUMBERS;
    NO_UNROLL for (; c + (UNROLL_PIECES - 1) * TEAM_NUMBERS + THREAD_NUMBERS <= end; c += UNROLL_PIECES * TEAM_NUMBERS)
        add_pieces(acc, wr, xr, shared, c, from, UNROLL_PIECES);
    NO_UNROLL for (; c + THREAD_NUMBERS <= end; c += TEAM_NUMBERS) add_pieces(acc, wr, xr, shared, c, from, 1);
    if (C % THREAD_NUMBERS && end == C) add_last(acc, wr, xr, end, lane);

    zeros_awaited(arrived, at);

    // the lanes of a team meet in shared memory, by halves
    BARRIER();
    SHARED acc_t *mine = shared + THREAD(0);
    FOR_SUMS(a, b) {
        acc_t one[VECTOR], sum = 0;
        vec_unpack(one, acc[a][b]);
        UNROLL for (int i = 0; i < VECTOR; i++) sum += one[i];
        mine[(a * IMAGES + b) * THREADS] = sum;
    }
    NO_UNROLL for (int apart = LANES / 2; apart > 0; apart /= 2) {
        BARRIER();
        if (lane < apart) UNROLL for (int i = 0; i < THREAD_SUMS; i++) mine[i * THREADS] += mine[i * THREADS + apart];
    }
    BARRIER();

    // the shares of the grid meet (pass 1 of LAST), and every sum is finished: one for each thread
    UNROLL for (int pass = 0; pass < (COMBINE == LAST ? 2 : 1); pass++) {
        if (pass == 1 && !arrive_last(arrived, at, SG, is_last)) return;
        for (int e = THREAD(0); e < TEAMS * THREAD_SUMS; e += THREADS) {
            int a = e / IMAGES % ROWS, b = e % IMAGES, t = e / THREAD_SUMS, k = t * ROWS + a;
            int base = at.k0 + t * ROWS < last ? at.k0 + t * ROWS : last;  // as `first` of that team
            acc_t sum = shared[(a * IMAGES + b) * THREADS + t * LANES];
            GLOBAL acc_t *part = partial + (offset_t)at.tile * SG * (KB * IMAGES) + e;
            if (COMBINE == LAST && pass == 0) {
                part[(offset_t)at.sg * (KB * IMAGES)] = sum;
                continue;
            }
            if (COMBINE == LAST) {
                sum = 0;
                UNROLL for (int g = 0; g < SG; g++) sum += load_fresh(part + (offset_t)g * (KB * IMAGES));
            }
            k = base + a;
            if (k >= K) continue;
            offset_t to = (offset_t)(image + b) * K + k;
#if COMBINE == ATOMIC
            if (k >= at.k0 + t * ROWS && image + b >= at.n * IMAGES) atomic_add(&y[to], sum);
#else
            finish_one(ep, k, SHARE_AT(at) + to, sum);
#endif
        }
    }
}
