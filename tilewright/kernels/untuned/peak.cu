// multiply_add: as many multiply-adds as the device can do: the f32 peak.
//
//   sums[j] += w * x    for CHAINS independent vectors of VECTOR floats in each thread; all chains TURNS times
//                       in a row, ROUNDS times, so that the loop itself is lost in them
//
// Which CHAINS and VECTOR are fastest depends on the device: several are tried (see tools.py). Worked number:
// 8 chains of 4 floats, 16 turns: 512 multiply-adds for the 3 instructions of a GPU's loop.

#if defined(AVX512) && AVX512  // as HOT wants it: no calls of what was compiled for less
typedef float wide __attribute__((ext_vector_type(VECTOR), aligned(4)));
#define LOAD(p) (*(const GLOBAL wide *)(p))
#define UNPACK(p, v) (*(wide *)(p) = (v))
#else
typedef vec wide;
#define LOAD(p) vec_load(p)
#define UNPACK(p, v) vec_unpack(p, v)
#endif

#ifdef __OPENCL_VERSION__
#define MULTIPLY_ADD(j) sums[j] += w * x
#else
#define HOT INLINE
#define MULTIPLY_ADD(j) vec_fma_turn(j, &sums[j], w, x)
#endif

HOT void all_chains(GLOBAL const float *RESTRICT start, GLOBAL float *RESTRICT sink) {
    wide sums[CHAINS], w = LOAD(start);
    float x = start[0], parts[VECTOR], sum = 0.0f;
    UNROLL for (int j = 0; j < CHAINS; j++) sums[j] = LOAD(start + VECTOR * (j + 1));
    NO_UNROLL for (int round = 0; round < ROUNDS; round++) {
        UNROLL for (int turn = 0; turn < TURNS; turn++) {
            UNROLL for (int j = 0; j < CHAINS; j++) MULTIPLY_ADD(j);
        }
    }
    UNROLL for (int j = 0; j < CHAINS; j++) {
        UNPACK(parts, sums[j]);
        for (int i = 0; i < VECTOR; i++) sum += parts[i];
    }
    if (sum == 1.25f) sink[0] = sum;  // never so where `start` holds zeros: it keeps the sums alive
}

KERNEL(multiply_add)(GLOBAL const float *RESTRICT start, GLOBAL float *RESTRICT sink) {
    all_chains(start, sink);
}
