// From sums to y, in the pointwise family: PART channels of a team's tile at a time, by way of shared memory, since the
// lanes that share a channel have 32 bytes of y together, and all of a team 128 or 256.
//
//   keep_part    a lane's sums of a part, finished unless z is added to them
//   Out find_out, store_part   a part to y: RUN_OUT neighbouring pixels of a thread at once
//
// Two parts' worth of memory, in turns: while one is stored, who is done with it keeps the next.

#define PART 32  // channels
#define PARTS (KB / PART)
#if ADD
#define kept_t acc_t
#else
#define kept_t done_t
#endif
#define KEPT(shared, team, turn) \
    ((SHARED kept_t *)(shared + OUT_FROM + (team) * OUT_BYTES) + (turn) % 2 * (PART * 64))
// Where a pixel of the team is in a part: rows of 64, in pieces of 16 bytes, those of four lanes' channels in different
// banks.
#define KEPT_EACH (16 / (int)sizeof(kept_t))
#define KEPT_AT(row, px) \
    ((row) * 64 + ((px) / KEPT_EACH ^ (row) / 2 % 4 * LANE_CHANNELS) * KEPT_EACH + (px) % KEPT_EACH)

// What is read from here on is not read before: it would take registers that sums need.
#ifdef __CUDACC__
#define NOT_BEFORE(pointer) asm volatile("" : "+l"(pointer))
#else
#define NOT_BEFORE(pointer)
#endif

INLINE void keep_part(SHARED kept_t *kept, const acc_t *sums, Epilogue ep, int part, int warp, int lane) {
    NOT_BEFORE(ep.bias);
    UNROLL for (int i = 0; i < PART / 4; i++) {
        const int row = SUM_ROW(i, lane % 4);
        kept_t out[2];
#if ADD
        UNROLL for (int h = 0; h < 2; h++) out[h] = sums[SUM_AT(i, h)];
#else
        const int k = FIRST_K + part * PART + row;
        const acc_t added = BIAS && (K % KB == 0 || k < K) ? out_load(ep.bias + k) : 0;
        UNROLL for (int h = 0; h < 2; h++)
            out[h] = done_of(before_pool_of(sums[SUM_AT(i, h)], added, 0), ep, k);
#endif
#if PAIRED
        store_run(2, kept + KEPT_AT(row, PIXEL_OF(warp, lane, 0)), out);
#else
        UNROLL for (int h = 0; h < 2; h++) kept[KEPT_AT(row, PIXEL_OF(warp, lane, h))] = out[h];
#endif
    }
}

// What a thread of a team stores of each channel: RUN_OUT pixels from `at` of the team's on, to `to` of plane 0 of y.
typedef struct {
    int at, there;
    offset_t to;
} Out;
INLINE Out find_out(int id, int team, int thread) {
    Out out;
    out.at = thread % (64 / RUN_OUT) * RUN_OUT;
    const Origin origin = find_origin(id, SPANS_OF(team) + out.at / SPAN_PIXELS);
    const int pixel = origin.start + out.at % SPAN_PIXELS;
    out.there = origin.image < N && pixel < HW;
    out.to = (offset_t)origin.image * K * HW + pixel;
    return out;
}

#define ROWS_OUT (2 * RUN_OUT)  // channels that a team stores at once
INLINE void store_part(Epilogue ep, const SHARED kept_t *kept, int part, Out out, int thread) {
    if (!out.there) return;
    NOT_BEFORE(ep.bias);
    NOT_BEFORE(ep.z);
    UNROLL_BY(4) for (int i = 0; i < PART / ROWS_OUT; i++) {
        const int row = i * ROWS_OUT + thread / (64 / RUN_OUT), k = FIRST_K + part * PART + row;
        const offset_t to = out.to + (offset_t)k * HW;
        kept_t v[RUN_OUT];
        if (K % KB && k >= K) continue;
        load_run(RUN_OUT, v, kept + KEPT_AT(row, out.at));
#if ADD
        finish_run(RUN_OUT, ep, k, 0, to, v);
#else
        store_run(RUN_OUT, ep.y + to, v);
#endif
    }
}
