// winograd_rows: few input channels under a wide filter, its rows by minimal filtering: F(4, 7), F(2, 5), F(4, 3), …
//
//   y[n,k,p,q] = epilogue(sum over c,r of row r of w[k][c], slid along row p*u+r*d-pad of x[n,c])
//
// x, y: nchw or nhwc.  w: packed [POINTS][c][r][KP]: each row of the filter as the values of a polynomial at POINTS
// points (points.h), zero padded in K.
//
//   1. x -> xs       POINTS neighbours of a row, from every SIDE-th column on, transformed:
//                    xs[point][image][c][row][tile]
//   2. xs, w -> y    a thread's unit: TH rows of one tile, TK channels. For each point, C * R multiply-adds an output
//                    row; then SIDE more each, which bring the point's sum back to SIDE columns
//
//     x     . . . . . . . . . . . .        F(2, 7): 8 multiply-adds for 2 outputs of a row instead of 14
//     tile 0  |-------------|              F(4, 7): 10 for 4 instead of 28
//     tile 1      |-------------|
//     tile 2          |-------------|      The rows of xs under TH outputs are in registers, once for each point and
//                                          channel: TH + R - 1 words and R * TK of the filter, for R * TK * TH products
//
// As many blocks as the device holds at once go from item to item (BAND output rows of IMAGES images). Blocks that
// share a unit hide each other's step 1.
// Knobs (rows.py; docs/families.md has what each buys): POINTS (points: with 8 LeNet 2 takes 1236 us, with 10 996;
// direct sums 1676), TK and TH (tk, th) of a unit, THREADS, MIN_BLOCKS (mb), BAND (bands), IMAGES (ni) of an item.
// Example: LeNet 2 (7x7), POINTS = 10, TH = 8, TK = 2: for each point and channel 14 words of xs and 14 of the filter
// feed 112 multiply-adds.

#include "bands.h"

#define SIDE (POINTS + 1 - S)  // outputs of a tile
#define READ (CEIL_DIV(POINTS, X_WORDS) * X_WORDS)
#define UNITS (IMAGES * P_PARTS * TILES * K_GROUPS)
#define PLANE (XH * TILES)
#define POINT (IMAGES * C * PLANE)
#define SEEN_H ((TH - 1) * STR_H + (R - 1) * DIL_H + 1)  // under a unit

typedef float value_t;
#include "points.h"

// Bring the rows under an item to xs. Neighbouring lanes have neighbouring tiles (nchw) or channels (nhwc).
INLINE void bring(SHARED float *xs, const GLOBAL float *x, int item) {
    const int n0 = item / BANDS * IMAGES, h0 = item % BANDS * (BAND * STR_H) - PAD_T;
    UNROLL_BY(2) for (int e = THREAD(0); e < POINT; e += THREADS) {
        int tile = e % TILES, h = e / TILES % XH, c = e / PLANE % C, i = e / (C * PLANE);
        if (X_NHWC) c = e % C, tile = e / C % TILES, h = e / (C * TILES) % XH;
        int from = tile * SIDE - PAD_L, keep = (unsigned)(h0 + h) < H && n0 + i < N;
        float d[READ];
        UNROLL for (int j = 0; j < READ; j += X_WORDS) {
            UNROLL for (int a = 0; a < X_WORDS; a++) d[j + a] = 0.0f;
            if (keep && (unsigned)(from + j) < W) load_run(X_WORDS, d + j, x + X_AT(n0 + i, c, h0 + h, from + j));
        }
        float v[POINTS];
        at_points(v, d, 1);
        UNROLL for (int j = 0; j < POINTS; j++) xs[j * POINT + (i * C + c) * PLANE + h * TILES + tile] = v[j];
    }
}

typedef struct {
    int i, p, tile, k;  // image of the item, first row of the band, tile of the row, first channel
} Unit;

// Neighbouring lanes make what are neighbours in y.
INLINE Unit find_unit(int unit) {
    const int k = Y_NHWC ? unit % K_GROUPS : unit / TILES % K_GROUPS;
    const int tile = Y_NHWC ? unit / K_GROUPS % TILES : unit % TILES, part = unit / (TILES * K_GROUPS);
    Unit at = {part / P_PARTS, part % P_PARTS * TH, tile, k * TK};
    return at;
}

// Store VECTOR channels of one row of a tile.
INLINE void store_tile(Epilogue ep, int n, int k, int p, int q, const vec sums[SIDE]) {
    if (k >= K) return;
    float one[SIDE][VECTOR];
    UNROLL for (int j = 0; j < SIDE; j++) vec_unpack(one[j], sums[j]);
#if Y_VECTOR  // nhwc: neighbouring channels
    UNROLL for (int j = 0; j < SIDE; j++) {
        if (q + j >= Q) continue;
        offset_t to = Z_AT(n, k, p, q + j);
        UNROLL for (int v = 0; v < VECTOR; v++) one[j][v] = epilogue(one[j][v], ep, k + v, to + v);
        store_run(VECTOR, ep.y + to, one[j]);
    }
#else  // nchw: neighbouring columns; or one after the other
    UNROLL for (int v = 0; v < VECTOR; v++)
        UNROLL for (int j = 0; j < SIDE; j += Y_WORDS) {
            if (k + v >= K || q + j >= Q) continue;
            offset_t to = Z_AT(n, k + v, p, q + j);
            float run[Y_WORDS];
            UNROLL for (int a = 0; a < Y_WORDS; a++) run[a] = epilogue(one[j + a][v], ep, k + v, to + a);
            store_run(Y_WORDS, ep.y + to, run);
        }
#endif
}

BOUNDED_KERNEL(winograd_rows, THREADS, MIN_BLOCKS)
(const GLOBAL float *RESTRICT x, const GLOBAL float *RESTRICT w, const GLOBAL float *RESTRICT bias,
 const GLOBAL float *RESTRICT z, GLOBAL float *RESTRICT y) {
    SHARED_ARRAY(shared);  // xs, then the filter [POINTS][C][R][KP]
    SHARED float *xs = shared, *filter = shared + X_FLOATS;
    const Epilogue ep = {bias, z, y};
    CHAIN_WAIT();
    for (int e = THREAD(0); e < POINTS * C * R * KP; e += THREADS) filter[e] = w[e];

    NO_UNROLL for (int item = GROUP(0); item < ITEMS; item += GRID) {
        BARRIER();  // all are done with the last item
        bring(xs, x, item);
        BARRIER();
        NO_UNROLL for (int unit = THREAD(0); unit < UNITS; unit += THREADS) {
            const Unit at = find_unit(unit);
            vec sums[VK][TH][SIDE];
            UNROLL for (int a = 0; a < VK; a++)
                UNROLL for (int b = 0; b < TH; b++) UNROLL for (int j = 0; j < SIDE; j++) vec_zero(&sums[a][b][j]);
            NO_UNROLL for (int point = 0; point < POINTS; point++) {
                const SHARED float *from = xs + point * POINT + at.i * (C * PLANE) + at.p * (STR_H * TILES) + at.tile;
                const SHARED float *taps = filter + point * (C * R * KP) + at.k;
                vec sum[VK][TH];
                UNROLL for (int a = 0; a < VK; a++) UNROLL for (int b = 0; b < TH; b++) vec_zero(&sum[a][b]);
                UNROLL_BY(CHANNEL_UNROLL_BY) for (int c = 0; c < C; c++) {
                    float row[SEEN_H];
                    UNROLL for (int h = 0; h < SEEN_H; h++) row[h] = from[c * PLANE + h * TILES];
                    UNROLL for (int r = 0; r < R; r++)
                        UNROLL for (int a = 0; a < VK; a++) {
                            vec tap = vec_load_shared(taps + (c * R + r) * KP + a * VECTOR);
                            UNROLL for (int b = 0; b < TH; b++)
                                vec_fma_turn(b, &sum[a][b], tap, row[b * STR_H + r * DIL_H]);
                        }
                }
                float weights[SIDE];
                powers_of(point, SIDE, weights);
                UNROLL for (int a = 0; a < VK; a++)
                    UNROLL for (int b = 0; b < TH; b++)
                        UNROLL for (int j = 0; j < SIDE; j++) vec_fma(&sums[a][b][j], sum[a][b], weights[j]);
            }
            const int n = item / BANDS * IMAGES + at.i, p0 = item % BANDS * BAND;
            UNROLL for (int b = 0; b < TH; b++)
                UNROLL for (int a = 0; a < VK; a++) {
                    const int p = at.p + b;
                    if (n < N && p < BAND && p0 + p < P)
                        store_tile(ep, n, at.k + a * VECTOR, p0 + p, at.tile * SIDE, sums[a][b]);
                }
        }
    }
}
