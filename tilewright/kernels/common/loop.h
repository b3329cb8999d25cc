// Sharing `count` items over all threads of a launch, for the kernels that are not tuned.
//
// needs (from ``spread`` of kernels/untuned):
//   THREADS_ALL  threads of the whole launch      MAX_THREADS  threads of a block
//   CHUNKED 0    neighbouring threads take neighbouring items (GPU: coalesced)
//   CHUNKED 1    a thread takes a run of items (CPU: no cache line is shared by two cores)

#define THREAD_ID ((offset_t)GROUP(0) * MAX_THREADS + THREAD(0))
#define CHUNK(count) CEIL_DIV((offset_t)(count), THREADS_ALL)
#define LOOP_FIRST(count) (CHUNKED ? THREAD_ID * CHUNK(count) : THREAD_ID)
#define LOOP_END(count) (CHUNKED && LOOP_FIRST(count) + CHUNK(count) < (count) \
                             ? LOOP_FIRST(count) + CHUNK(count) : (offset_t)(count))
#define LOOP_STEP (CHUNKED ? 1 : THREADS_ALL)
#define FOR_EACH(i, count) \
    for (offset_t i = LOOP_FIRST(count), end_##i = LOOP_END(count); i < end_##i; i += LOOP_STEP)
