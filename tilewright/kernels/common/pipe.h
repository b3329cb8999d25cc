// The staging pipeline: STAGES buffers go round between the copies that fill them and the multiply-adds that read them.
//
//   PIPE(name)            declares it;  pipe_begin makes it ready
//   PIPE_ENGINE           whether the copy engine fetches the filter
//   pipe_run              begins to copy a run of words that a step has in one piece: its filter
//   pipe_sent             all copies of this thread for a step are under way
//   pipe_full             waits until the data of a step are there, and all threads are done with the step before
//
// With F_SHARED 2, on Hopper, the copy engine fetches the filter: one thread asks for it, and a barrier for each buffer
// says that it has come. From cold memory it is slower than threads are, but costs them nothing.

#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900 && F_SHARED == 2
#include "barriers.h"

#define PIPE_ENGINE 1
typedef shared_t pipe_t;
#define PIPE(name)                                     \
    __shared__ unsigned long long name##_store[STAGES]; \
    const pipe_t name = (unsigned)__cvta_generic_to_shared(name##_store)
#define COME(pipe, step) ((pipe) + (step) % STAGES * 8)

INLINE void pipe_begin(pipe_t pipe) {
    if (THREAD(0)) return;
    UNROLL for (int i = 0; i < STAGES; i++) bar_init(COME(pipe, i), 1);
    bar_init_done();
}
INLINE void pipe_run(pipe_t pipe, int step, acc_t *to, const acc_t *from, int words) {
    if (THREAD(0)) return;
    bar_expect(COME(pipe, step), words * ACC_BYTES);
    copy_bulk((unsigned)__cvta_generic_to_shared(to), from, words * ACC_BYTES, COME(pipe, step));
}
#define pipe_come(pipe, step) bar_wait(COME(pipe, step), (step) / STAGES & 1)

#else
#define PIPE_ENGINE 0
typedef int pipe_t;
#define PIPE(name) const pipe_t name = 0
#define pipe_begin(pipe)
#define pipe_come(pipe, step)
INLINE void pipe_run(pipe_t pipe, int step, SHARED acc_t *to, const GLOBAL acc_t *from, int words) {
    from += THREAD(0) * 4, to += THREAD(0) * 4;
    UNROLL for (int e = 0; e < words; e += THREADS * 4)
        if (e + THREADS * 4 <= words || e + THREAD(0) * 4 < words) async_copy4(to + e, from + e, 1);
}
#endif

#define pipe_sent() ASYNC_COMMIT()
#define pipe_full(pipe, step)                     \
    do {                                          \
        ASYNC_WAIT(STAGES > 1 ? STAGES - 2 : 0);  \
        BARRIER();                                \
        pipe_come(pipe, step);                    \
    } while (0)
