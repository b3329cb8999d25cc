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
INLINE void finish_out(Epilogue ep, Place at, int k, int px, float v[RUN_OUT]) {
    k += at.k0, px += at.q0;
    const int group = at.group * K, whole = (K % KB == 0 || k < K) && (PIXELS % PB == 0 || px < PIXELS);
#if Y_VECTOR && COMBINE != ATOMIC
    if (whole) {
        const offset_t to = SHARE_AT(at) + pixel_at(group + k, px);
#if Y_NHWC  // the count must be spelt: OpenCL makes a name of it
        finished_run(4, v, ep, group + k, 1, to, v);
#else
        finished_run(VECTOR, v, ep, group + k, 0, to, v);
#endif
        STORE_OUT(ep.y + to, v);
    }
#else
    UNROLL for (int i = 0; i < RUN_OUT; i++) {
        int ki = k + (Y_NHWC ? i : 0), pi = px + (Y_NHWC ? 0 : i);
        if (whole && ki < K && pi < PIXELS) {
            const offset_t to = SHARE_AT(at) + pixel_at(group + ki, pi);
            if (COMBINE == ATOMIC) atomic_add(ep.y + to, epilogue(v[i], ep, group + ki, to));
            else finish_one(ep, group + ki, to, v[i]);
        }
    }
#endif
}

// Add up the parts of a tile, which the blocks that share it have written, in a fixed order; `own`: where this thread's
// outputs are in each.
INLINE void add_parts(float mine[MY_OUTS][RUN_OUT], const GLOBAL float *own, Lane me, int part0, int parts) {
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
