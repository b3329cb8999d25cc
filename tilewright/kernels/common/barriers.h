// Barriers of asynchronous copies (PTX ISA, "mbarrier"; CUDA, since sm_90): a barrier's phase is over when so many have
// arrived and all bytes that were announced have come; waiting for parity 0 is waiting for the end of its first, third,
// ... phase. shared_t: an address in shared memory.
//
//   bar_init, bar_init_done     count of arrivals of each phase; then seen by the copy engine and the cluster
//   bar_wait bar_arrive bar_arrive_at      the latter on a barrier of another block of the cluster
//   bar_wait_cluster            for what other blocks of the cluster have written themselves
//   bar_expect                  arrive, and announce bytes
//   bar_after_copies            arrive when this thread's copies so far (cp.async) have come
//   copy_bulk                   bytes from global memory, that arrive on a barrier: 16 or a multiple
//   sum_of_blocks               add up the four numbers that each of the first blocks of the cluster has at a multiple
//                               of 16 bytes. Lanes side by side should read what lies side by side

typedef unsigned shared_t;

INLINE shared_t of_block(shared_t place, int rank) {  // the same place in another block of the cluster
    shared_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(place), "r"(rank));
    return there;
}
INLINE void bar_init(shared_t bar, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
INLINE void bar_init_done(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
#define BAR_WAIT(how)                                                                                             \
    int done;                                                                                                     \
    do {                                                                                                          \
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity" how                                              \
                     ".shared::cta.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"                                      \
                     : "=r"(done) : "r"(bar), "r"(parity) : "memory");                                            \
    } while (!done)
INLINE void bar_wait(shared_t bar, int parity) { BAR_WAIT(""); }
INLINE void bar_wait_cluster(shared_t bar, int parity) { BAR_WAIT(".acquire.cluster"); }
INLINE void bar_arrive(shared_t bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
// Relaxed: only reads come before it; release is a fence of all memory.
INLINE void bar_arrive_at(shared_t bar, int rank) {
    asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(of_block(bar, rank)) : "memory");
}
INLINE void bar_expect(shared_t bar, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
INLINE void bar_after_copies(shared_t bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
INLINE void copy_bulk(shared_t to, const void *from, int bytes, shared_t bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
}
INLINE void sum_of_blocks(float sums[4], shared_t from, int blocks) {
    UNROLL for (int i = 0; i < 4; i++) sums[i] = 0;
    UNROLL for (int rank = 0; rank < blocks; rank++) {
        const shared_t there = of_block(from, rank);
        float more[4];
        asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(more[0]), "=f"(more[1]), "=f"(more[2]), "=f"(more[3]) : "r"(there) : "memory");
        UNROLL for (int i = 0; i < 4; i++) sums[i] += more[i];
    }
}
