// Staging of the gemm family for filters of several taps and few channels (FLAT): the sum runs over channels, rows and
// columns of the filter as one, e = (c * R + r) * S + s, in the order of the packed filter; a step is CS of them, at
// whatever taps. Where each lies is looked up in a table in shared memory, made once by the block.
//
//   filter  packed [e][KB], staged as one run
//   input   laid out as gemm_stage.h says, 4 bytes a copy: x[place of the pixel + place of e], or zeros where that is
//           padding (taps.h) and past the last e
// Example: 3 channels, 7x7 taps: 147 in 10 steps of 16. A tap at a time they would be 49 steps of 4, one of them zeros.

#define LINEAR (WHOLE_ROWS && !X_NHWC)  // copy j goes j * ROWS_APART rows behind the first, and is of the same pixel
#define KEPT (LINEAR ? 1 : X_KEPT ? X_COPIES : 0)
#define AT_ONCE (X_COPIES % 8 == 0 ? 8 : X_COPIES % 4 == 0 ? 4 : X_COPIES % 3 == 0 ? 3 : X_COPIES % 2 == 0 ? 2 : 1)
#define EXACT (X_ITEMS % THREADS == 0)  // all threads have as many copies
#define ENTRIES (CEIL_DIV(C, CS) * CS)

typedef struct {
    const GLOBAL float *x, *w;     // of the group; of the step to stage next
    const SHARED int *table;       // ENTRIES places, then as many taps
    offset_t at[KEPT ? KEPT : 1];  // of this thread's pixels, from x on
    Met met[KEPT ? KEPT : 1];
} Source;

INLINE int copy_to(int j) { return copy_c(j) * X_PITCH + copy_px(j); }

INLINE void make_table(SHARED float *shared) {
    SHARED int *table = (SHARED int *)(shared + TABLE_AT);
    for (int e = THREAD(0); e < ENTRIES; e += THREADS) {
        int c = e / (R * S), r = e / S % R, s = e % S;
        table[e] = e < C ? (int)X_AT(0, c, r * DIL_H, s * DIL_W) : 0;
        table[ENTRIES + e] = (int)tap_of(r, s);
    }
    BARRIER();
}

INLINE Source find_source(const GLOBAL float *x, const GLOBAL float *w, Place at, int step) {
    Source from;
    from.x = x + (offset_t)at.group * (C_ALL / GROUPS_) * C_STEP;
    from.w = w + ((offset_t)(at.group * K_TILES + at.k0 / KB) * C_PADDED + step * CS) * KB + THREAD(0) * 4;
    UNROLL for (int j = 0; j < KEPT; j++) {
        from.at[j] = x_at(copied_px(at, j));
        from.met[j] = met_under(copied_px(at, j));
    }
    return from;
}

// Copy the tiles of a step to `to`, if it comes before `last`.
INLINE void stage(SHARED float *to, Source *from, Place at, int step, int last) {
    if (step < last) {
        SHARED float *to_w = to + THREAD(0) * 4, *to_x = to + CS * KB + (LINEAR ? copy_to(0) : 0);
        const int first = step * CS;
        const SHARED int *table = from->table + first + (LINEAR && EXACT ? copy_c(0) : 0);
        UNROLL for (int j = 0; j < W_ITEMS; j += THREADS)
            if (j + THREADS <= W_ITEMS || j + THREAD(0) < W_ITEMS) async_copy4(to_w + j * 4, from->w + j * 4, 1);
        UNROLL_BY(KEPT ? X_COPIES : 1) for (int j0 = 0; j0 < X_COPIES; j0 += AT_ONCE) {
            offset_t place[AT_ONCE];
            int keep[AT_ONCE];
            UNROLL for (int i = 0; i < AT_ONCE; i++) {  // reads and copies in turns would wait for one another
                const int j = j0 + i, kept = KEPT > 1 ? j : 0;
                const int e = !EXACT ? min(copy_c(j), CS - 1) : LINEAR ? j * ROWS_APART : copy_c(j);
                const unsigned tap = PADDED ? (unsigned)table[ENTRIES + e] : tap_of(0, 0);
                const int inside = meets(KEPT ? from->met[kept] : met_under(copied_px(at, j)), tap);
                keep[i] = inside && (C % CS == 0 || first + copy_c(j) < C);
                place[i] = keep[i] ? (KEPT ? from->at[kept] : x_at(copied_px(at, j))) + table[e] : 0;
            }
            UNROLL for (int i = 0; i < AT_ONCE; i++) {
                const int j = j0 + i;
                SHARED float *there = to_x + (LINEAR ? j * (ROWS_APART * X_PITCH) : copy_to(j));
                if (EXACT || j * THREADS + THREAD(0) < X_ITEMS)
                    async_copy1(there, from->x + place[i], keep[i]);
            }
        }
        from->w += CS * KB;
    }
    ASYNC_COMMIT();
}
