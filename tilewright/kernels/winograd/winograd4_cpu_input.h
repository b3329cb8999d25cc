// winograd and winograd4 on CPU cores: an item of V, the transformed input (winograd4_cpu.cu).

// The first `count` floats of a vector in memory.
INLINE void store_some(GLOBAL float *to, const float *v, int count) {
    if (count >= VECTOR) *(GLOBAL wide *)to = *(const wide *)v;
    else {
        int i = 0;
        NO_UNROLL for (; i + 4 <= count; i += 4) *(GLOBAL quad *)(to + i) = *(const quad *)(v + i);
        NO_UNROLL for (; i < count; i++) to[i] = v[i];
    }
}

#if X_NHWC
INLINE void input_item(const GLOBAL float *RESTRICT x, GLOBAL float *RESTRICT tiles, int first, int item) {
    int t0 = item % PARTS_IN * VECTOR, c = item / PARTS_IN * VECTOR, count = TILES_ALL - first - t0;
    c = c < SIZE_C - VECTOR ? c : SIZE_C - VECTOR;
    wide done[ELEMENTS][VECTOR];  // [e][tile]: lanes are channels
    NO_UNROLL for (int u = 0; u < VECTOR && u < count; u++) {
        int t = first + t0 + u, n = t / TILES_IMAGE;
        int h0 = ROW_OF(t / TILES_Q % TILES_P) - PAD_TOP, w0 = COLUMN_OF(t % TILES_Q) - PAD_LEFT;
        wide half_way[POINTS][POINTS], v[POINTS];
        UNROLL for (int i = 0; i < POINTS; i++) {
            wide d[POINTS];
            UNROLL for (int j = 0; j < POINTS; j++) {
                int h = h0 + i * DILATION_H, w = w0 + j * DILATION_W;
                int inside = (unsigned)h < SIZE_H && (unsigned)w < SIZE_W;
                d[j] = inside ? *(const GLOBAL wide *)(x + X_AT(n, c, h, w)) : (wide)(0);
            }
            at_points(half_way[i], d, 1);
        }
        UNROLL for (int j = 0; j < POINTS; j++) {
            at_points(v, &half_way[0][j], POINTS);
            UNROLL for (int i = 0; i < POINTS; i++) done[i * POINTS + j][u] = v[i];
        }
    }
    NO_UNROLL for (int e = 0; e < ELEMENTS; e++) {
        wide rows[VECTOR];
        UNROLL for (int u = 0; u < VECTOR; u++) rows[u] = done[e][u];
        turn_lanes(rows);
        UNROLL for (int u = 0; u < VECTOR; u++)
            store_some(tiles + ((offset_t)e * SIZE_C + c + u) * TILES + t0, (const float *)&rows[u], TILES - t0);
    }
}
#else

// Columns w, w + 1, ... of a row, with zeros around the image; what lies there in memory is other rows.
INLINE wide load_columns(const GLOBAL float *x, offset_t row, int w) {
    wide v;
    if (row + w >= 0 && row + w + VECTOR <= (offset_t)SIZE_N * SIZE_C * SIZE_H * SIZE_W)
        v = *(const GLOBAL wide *)(x + row + w);
    else UNROLL for (int u = 0; u < VECTOR; u++) v[u] = (unsigned)(w + u) < SIZE_W ? x[row + w + u] : 0.0f;
    if (w >= 0 && w + VECTOR <= SIZE_W) return v;
    whole column;
    UNROLL for (int u = 0; u < VECTOR; u++) column[u] = w + u;
    return column >= 0 && column < SIZE_W ? v : (wide)(0);
}

// The columns of a line by turns, a lane for each tile.
INLINE void every_second(wide d[2], const wide *from) { d[0] = EVEN(from[0], from[1]), d[1] = ODD(from[0], from[1]); }
INLINE void every_fourth(wide d[4], const wide *from) {
    wide low[2], high[2];
    every_second(low, from);
    every_second(high, from + 2);
    d[0] = EVEN(low[0], high[0]), d[1] = EVEN(low[1], high[1]),
    d[2] = ODD(low[0], high[0]), d[3] = ODD(low[1], high[1]);
}

// Dilated, tiles side by side begin in columns side by side, DILATION_W of them: a vector ends with them.
#define NEXT_VECTOR(q) \
    (DILATION_W > 1 && (q) % DILATION_W + VECTOR > DILATION_W ? ((q) / DILATION_W + 1) * DILATION_W : (q) + VECTOR)

INLINE void input_item(const GLOBAL float *RESTRICT x, GLOBAL float *RESTRICT tiles, int first, int item) {
    int row0 = item % PARTS_IN * RUN_ROWS, row1 = row0 + RUN_ROWS < SLAB_ROWS ? row0 + RUN_ROWS : SLAB_ROWS;
    int c0 = item / PARTS_IN * RUN_C, c1 = c0 + RUN_C < SIZE_C ? c0 + RUN_C : SIZE_C;
    int rows = SIZE_N * TILES_P - first / TILES_Q;  // to the end of the batch
    row1 = row1 < rows ? row1 : rows;
    float lines[POINTS][LINE];
    // Stored in runs: 36 open lines far apart share few sets of a cache.
    float done[ELEMENTS][RUN_ROWS * TILES_Q + VECTOR];
    NO_UNROLL for (int c = c0; c < c1; c++) {
        NO_UNROLL for (int row = row0; row < row1; row++) {
            int n = (first / TILES_Q + row) / TILES_P, h0 = ROW_OF((first / TILES_Q + row) % TILES_P) - PAD_TOP;
            offset_t image = X_AT(n, c, 0, 0);
            NO_UNROLL for (int w = 0; w < TILES_Q * SIDE_Q + (POINTS - SIDE_Q) * DILATION_W; w += VECTOR) {
                wide d[POINTS], v[POINTS];
                UNROLL for (int i = 0; i < POINTS; i++) {
                    int h = h0 + i * DILATION_H;
                    d[i] = (wide)(0);
                    if ((unsigned)h < SIZE_H) d[i] = load_columns(x, image + h * SIZE_W, w - PAD_LEFT);
                }
                at_points(v, d, 1);
                UNROLL for (int i = 0; i < POINTS; i++) *(wide *)(&lines[i][w]) = v[i];
            }
            NO_UNROLL for (int q = 0; q < TILES_Q; q = NEXT_VECTOR(q)) {
                NO_UNROLL for (int i = 0; i < POINTS; i++) {
                    wide v[POINTS], d[8];
                    const float *from = &lines[i][COLUMN_OF(q)];
#if DILATION_W > 1
                    UNROLL for (int j = 0; j < POINTS; j++) d[j] = *(const wide *)(from + j * DILATION_W);
#elif SIDE_Q == 4
                    UNROLL for (int j = 0; j < 8; j += 4) every_fourth(d + j, (const wide *)(from + j));
#else
                    UNROLL for (int j = 0; j < POINTS; j += 2) every_second(d + j, (const wide *)(from + j));
#endif
                    at_points(v, d, 1);
                    UNROLL for (int j = 0; j < POINTS; j++)  // what hangs over is overwritten by what follows
                        *(wide *)(&done[i * POINTS + j][(row - row0) * TILES_Q + q]) = v[j];
                }
            }
        }
        // What hangs over here is overwritten by the item's next channel; after the last it is cut off.
        int count = (row1 - row0) * TILES_Q, room = PARTS_IN == 1 ? (c1 - c) * TILES : count;
        GLOBAL float *to = tiles + (offset_t)c * TILES + row0 * TILES_Q;
        NO_UNROLL for (int e = 0; e < ELEMENTS; e++)
            NO_UNROLL for (int t = 0; t < count; t += VECTOR)
                store_some(to + (offset_t)e * SIZE_C * TILES + t, &done[e][t], room - t);
    }
}
#endif
