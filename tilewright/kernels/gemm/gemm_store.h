// What the gemm kernel does with its sums: where a thread's outputs lie, and how one is finished. OUTS outputs of a
// thread are runs of RUN_OUT neighbours in y: channels of a pixel in nhwc, pixels of a channel in nchw. A run is stored
// at once, and bias and residual read at once, where rows are whole and aligned (Y_VECTOR).

// Output g of a thread: RUN_OUT neighbours in y, from channel out_k and pixel out_px of the block tile on.
INLINE int out_k(Lane me, int g) { return me.k + (Y_NHWC ? g / PT * (4 * LK) : g / TP / 4 * (4 * LK) + g / TP % 4); }
INLINE int out_px(Lane me, int g) {
    return me.px + (Y_NHWC ? g % PT / VECTOR * (LP * VECTOR) + g % VECTOR : g % TP * (LP * VECTOR));
}
INLINE void pick(float v[RUN_OUT], vec acc[KT][TP], int g) {
    float one[VECTOR];
    UNROLL for (int i = 0; i < RUN_OUT; i++) {
        vec_unpack(one, Y_NHWC ? acc[g / PT * 4 + i][g % PT / VECTOR] : acc[g / TP][g % TP]);
        v[i] = one[Y_NHWC ? g % VECTOR : i];
    }
}
#define STORE_OUT(to, v)                 \
    do {                                 \
        if (RUN_OUT == 4) store4(to, v); \
        else vec_store(to, vec_pack(v)); \
    } while (0)

// Finish a thread's output, or hand its partial sum on. (No early return: PoCL miscompiles it here.)
INLINE void finish_out(GLOBAL float *y, const GLOBAL float *bias, const GLOBAL float *z, Place at, int k, int px,
                       float v[RUN_OUT]) {
    k += at.k0, px += at.q0;
    const int group = at.group * K, whole = (K % KB == 0 || k < K) && (PIXELS % PB == 0 || px < PIXELS);
    y += SHARE_AT(at);
#if Y_VECTOR && COMBINE != ATOMIC
    if (whole) {
        const offset_t to = y_at(group + k, px);
#if Y_NHWC  // the count must be spelt: OpenCL makes a name of it
        if (EPILOGUE_HERE) before_pool_run(4, v, bias, group + k, 1, z, to);
#else
        if (EPILOGUE_HERE) before_pool_run(VECTOR, v, bias, group + k, 0, z, to);
#endif
        STORE_OUT(y + to, v);
    }
#else
    UNROLL for (int i = 0; i < RUN_OUT; i++) {
        int ki = k + (Y_NHWC ? i : 0), pi = px + (Y_NHWC ? 0 : i);
        if (whole && ki < K && pi < PIXELS) {
            offset_t to = y_at(group + ki, pi);
            if (EPILOGUE_HERE) v[i] = before_pool(v[i], bias, group + ki, z, to);
            if (COMBINE == ATOMIC) atomic_add(y + to, v[i]);
            else y[to] = v[i];
        }
    }
#endif
}

// The shares of a block meet in shared memory; each thread gets the outputs that it finishes.
INLINE void join_shares(float mine[MY_OUTS][RUN_OUT], vec acc[KT][TP], SHARED float *shared, Lane me) {
#if SB > 1
    ASYNC_WAIT(0);
    BARRIER();
    UNROLL for (int g = 0; g < OUTS; g++) {
        float v[RUN_OUT];
        pick(v, acc, g);
        SHARED float *to = shared + ((me.share * OUTS + g) * TEAM + me.team) * RUN_OUT;
        STORE_OUT(to, v);
    }
    BARRIER();
    UNROLL for (int g = 0; g < MY_OUTS; g++) {
        UNROLL for (int i = 0; i < RUN_OUT; i++) mine[g][i] = 0.0f;
        if (FINISHES(me, g)) UNROLL for (int s = 0; s < SB; s++)
            UNROLL for (int i = 0; i < RUN_OUT; i++)
                mine[g][i] += shared[((s * OUTS + g * SB + me.share) * TEAM + me.team) * RUN_OUT + i];
    }
#else
    UNROLL for (int g = 0; g < OUTS; g++) pick(mine[g], acc, g);
#endif
}

#if COMBINE == LAST
// The shares of the grid meet in memory: the block that arrives last adds them up, in a fixed order. Whether it is this
// one, and `mine` the whole sums.
INLINE int join_blocks(float mine[MY_OUTS][RUN_OUT], GLOBAL float *partial, GLOBAL unsigned *arrived,
                       SHARED int *is_last, Place at, Lane me, int block, int first) {
    int whole = 1;
#if STREAM  // worked out here, for the main loop needs all registers; a stream goes on with a tile, or begins one
    const int owner = stream_of(at.tile * TILE_STEPS), part0 = 2 * owner;
    const int part = 2 * (block - FULL_TILES) + (first == 0);
    const int parts = block < FULL_TILES ? 1 : stream_of(at.tile * TILE_STEPS + TILE_STEPS - 1) - owner + 1;
#else
    const int part0 = at.tile * SG, part = part0 + at.sg, parts = SG;
#endif
    if (parts > 1) {
        GLOBAL float *own = partial + (me.share * TEAM + me.team) * RUN_OUT, *to = own + (offset_t)part * (KB * PB);
        UNROLL for (int g = 0; g < MY_OUTS; g++)
            if (FINISHES(me, g)) STORE_OUT(to + g * (SB * TEAM * RUN_OUT), mine[g]);
        whole = arrive_last(arrived, at, parts, is_last);
        if (whole) {
            UNROLL for (int g = 0; g < MY_OUTS; g++) UNROLL for (int i = 0; i < RUN_OUT; i++) mine[g][i] = 0.0f;
            NO_UNROLL for (int s = 0; s < parts; s++) {
                const GLOBAL float *from = own + (offset_t)(part0 + (STREAM ? 2 * s + (s == 0) : s)) * (KB * PB);
                UNROLL for (int g = 0; g < MY_OUTS; g++)
                    if (FINISHES(me, g)) {
                        float more[RUN_OUT];
                        load_fresh_run(RUN_OUT, more, from + g * (SB * TEAM * RUN_OUT));
                        UNROLL for (int i = 0; i < RUN_OUT; i++) mine[g][i] += more[i];
                    }
            }
        }
    }
    return whole;
}
#endif
