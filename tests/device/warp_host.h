// The dialect of CUDA C++ on the host, for kernels whose warps work together: their own source runs, each thread a
// fiber. Threads of a warp meet at what is one instruction there (products, matrices, shuffles), those of a block at a
// barrier; the one that comes last does the work of all. Rounding is that of the hardware.
using std::max;
using std::min;

#define INLINE static inline
#define GLOBAL
#define SHARED
#define RESTRICT
#define UNROLL
#define NO_UNROLL
#undef UNROLL_BY
#define UNROLL_BY(count)
#define KERNEL(name) static void name
#define BOUNDED_KERNEL(name, threads, blocks) static void name
#define GROUP(d) ((d) == 0 ? block_id : 0)
#define THREAD(d) ((d) == 0 ? own_fiber->thread : 0)
#define CHAIN_NEXT()
#define CHAIN_WAIT()
#define CHAIN_BEGIN()

#define SHARED_ARRAY(name) acc_t *name = (acc_t *)shared_store
#define ASYNC_COMMIT()
#define ASYNC_WAIT(pending)
#define FENCE()
#define FENCE_ALL()
#define FENCE_EACH()
#define BARRIER() fibers_meet(block_of_threads, 0)
#define BARRIER_ALL() BARRIER()
#define CLUSTER_BARRIER() BARRIER()
#define CLUSTER_READ()
#define CLUSTER_LEAVE()
#define __cvta_generic_to_shared(at) ((const char *)(at) - shared_store)

// ---- fibers, and where they meet
struct Meeting {
    int count, come, phase;
    std::vector<void *> brought;
};
struct Fiber {
    int thread;
    bool done;
    ucontext_t context;
    std::vector<char> stack;
};
static Fiber *own_fiber;
static std::vector<Fiber> fibers;
static std::vector<Meeting> warps;
static Meeting block_of_threads;
static ucontext_t chooser;
static int block_id;
alignas(128) static char shared_store[1 << 18];

static void fibers_meet(Meeting &at, void *mine, void (*all)(void **) = 0, int place = 0) {
    const int phase = at.phase;
    if (mine) at.brought[place] = mine;
    if (++at.come == at.count) {
        if (all) all(at.brought.data());
        at.come = 0, at.phase++;
    }
    while (at.phase == phase) swapcontext(&own_fiber->context, &chooser);
}
#define __syncwarp() fibers_meet(warps[own_fiber->thread / 32], 0)
#define WARP_MEETS(mine, all) fibers_meet(warps[own_fiber->thread / 32], mine, all, own_fiber->thread % 32)

// ---- one instruction of a warp
struct Matrices {
    unsigned *v, from;
    int count;
};
static void read_all(void **lanes) {  // as ldmatrix
    const Matrices *of = (Matrices *)lanes[0];
    unsigned found[32][4];
    for (int i = 0; i < of->count; i++)
        for (int lane = 0; lane < 32; lane++) {
            const unsigned from = ((Matrices *)lanes[8 * i + lane / 4])->from;
            if (from % 16 || from >= SHARED_BYTES) printf("a row of a matrix at %u\n", from), exit(1);
            memcpy(&found[lane][i], shared_store + from + lane % 4 * 4, 4);
        }
    for (int lane = 0; lane < 32; lane++) memcpy(((Matrices *)lanes[lane])->v, found[lane], 4 * of->count);
}
static void read_matrices(unsigned v[4], unsigned from) {
    Matrices mine = {v, from, 4};
    WARP_MEETS(&mine, read_all);
}
static void read_two_matrices(unsigned v[2], unsigned from) {
    Matrices mine = {v, from, 2};
    WARP_MEETS(&mine, read_all);
}
struct Exchange {
    unsigned v, found;
    int apart;
};
static void exchange_all(void **lanes) {  // as shfl.bfly
    for (int lane = 0; lane < 32; lane++) {
        Exchange *mine = (Exchange *)lanes[lane];
        mine->found = ((Exchange *)lanes[lane ^ mine->apart])->v;
    }
}
static unsigned __shfl_xor_sync(unsigned, unsigned v, int apart) {
    Exchange mine = {v, 0, apart};
    WARP_MEETS(&mine, exchange_all);
    return mine.found;
}
static void fetch_all(void **lanes) {  // as shfl.idx
    for (int lane = 0; lane < 32; lane++) {
        Exchange *mine = (Exchange *)lanes[lane];
        mine->found = ((Exchange *)lanes[mine->apart])->v;
    }
}
static unsigned __shfl_sync(unsigned, unsigned v, int from) {
    Exchange mine = {v, 0, from};
    WARP_MEETS(&mine, fetch_all);
    return mine.found;
}
static void turn_all(void **lanes) {  // as movmatrix.trans
    for (int lane = 0; lane < 32; lane++) {
        Exchange *mine = (Exchange *)lanes[lane];
        mine->found = 0;
        for (int i = 0; i < 2; i++) {
            const int row = lane % 4 * 2 + i, column = lane / 4;  // of what is turned
            const unsigned word = ((Exchange *)lanes[row * 4 + column / 2])->v;
            mine->found |= (word >> column % 2 * 16 & 0xffff) << 16 * i;
        }
    }
}
struct Passing {
    float v, found;
    int from;
};
static void pass_all(void **lanes) {  // as shfl.up and shfl.down: who has no lane there keeps its own
    for (int lane = 0; lane < 32; lane++) {
        Passing *mine = (Passing *)lanes[lane];
        const int from = lane + mine->from;
        mine->found = from < 0 || from > 31 ? mine->v : ((Passing *)lanes[from])->v;
    }
}
static float passed(float v, int from) {
    Passing mine = {v, 0, from};
    WARP_MEETS(&mine, pass_all);
    return mine.found;
}
#define __shfl_up_sync(all, v, apart) passed(v, -(apart))
#define __shfl_down_sync(all, v, apart) passed(v, apart)
static void agree_all(void **lanes) {  // as vote.all
    bool all = true;
    for (int lane = 0; lane < 32; lane++) all = all && *(int *)lanes[lane] != 0;
    for (int lane = 0; lane < 32; lane++) *(int *)lanes[lane] = all;
}
static int __all_sync(unsigned, int mine) {
    WARP_MEETS(&mine, agree_all);
    return mine;
}
static unsigned turned_matrix(unsigned v) {
    Exchange mine = {v, 0, 0};
    WARP_MEETS(&mine, turn_all);
    return mine.found;
}

// ---- memory
template <class to_t, class from_t> static void copy_run(int count, to_t *to, const from_t *from) {
    const size_t bytes = count * sizeof(from_t), whole = bytes > 16 ? 16 : bytes;
    if ((size_t)to % sizeof(to_t) || ((size_t)from % whole && (size_t)to % whole)) printf("not aligned\n"), exit(1);
    memcpy(to, from, bytes);
}
#define load_run(count, to, from) copy_run(count, to, from)
#define store_run(count, to, from) copy_run(count, to, from)
template <class type> static void copy_words(type *to, const type *from, int count, int keep) {
    if (keep) memcpy(to, from, 4 * count);
    else memset(to, 0, 4 * count);
}
#define async_copy1(to, from, keep) copy_words(to, from, 1, keep)
#define async_copy2(to, from, keep) copy_words(to, from, 2, keep)
#define async_copy4(to, from, keep) copy_words(to, from, 4, keep)
static std::vector<char> held[6];  // x, the packed filter, and the other arrays of the layer
static void fetch(void *to, const void *from, int bytes) {  // as ld.global: aligned, and from x or the filter
    bool there = false;
    for (int i = 0; i < 2; i++)
        there |= from >= held[i].data() && (char *)from + bytes <= held[i].data() + held[i].size();
    if (!there || (size_t)from % bytes) {
        printf("%d bytes beside x and the filter, or not aligned\n", bytes), fflush(stdout);
        _Exit(1);  // no destructors: they would free the stack of this fiber
    }
    memcpy(to, from, bytes);
}
static void fetch4(unsigned to[4], const unsigned *from) { fetch(to, from, 16); }
static void fetch2(unsigned to[2], const unsigned *from) { fetch(to, from, 8); }
static float fetch1(const float *from) {
    float v;
    fetch(&v, from, 4);
    return v;
}
static void fetch_if(float *to, const float *from, int keep) {
    if (keep) fetch(to, from, 4);
}
static void load4(float *to, const float *from) { load_run(4, to, from); }
static float mul_add(float w, float x, float sum) { return fmaf(w, x, sum); }
static unsigned atomic_count(unsigned *p) { return (*p)++; }
static unsigned __funnelshift_r(unsigned low, unsigned high, int bits) {
    return (unsigned)(((unsigned long)high << 32 | low) >> bits);
}

// ---- numbers
static float bits_float(unsigned bits) {
    float v;
    memcpy(&v, &bits, 4);
    return v;
}
static unsigned float_bits(float v) {
    unsigned bits;
    memcpy(&bits, &v, 4);
    return bits;
}
static float half_float(unsigned short half) {
    const int exponent = half >> 10 & 31, rest = half & 1023;
    const float size = exponent == 0 ? ldexpf(rest, -24) : exponent == 31 ? (rest ? NAN : INFINITY)
                                                                         : ldexpf(rest + 1024, exponent - 25);
    return half >> 15 ? -size : size;
}
static unsigned short float_half(float v) {
    const unsigned short sign = float_bits(v) >> 31 << 15;
    const float size = fabsf(v);
    if (size != size) return sign | 0x7e00;
    if (size >= 65520) return sign | 0x7c00;
    int exponent;
    frexpf(size, &exponent);
    exponent = max(exponent, -13);
    const int rest = (int)nearbyintf(ldexpf(size, 11 - exponent));  // 2048 where it is rounded up to the next power
    return sign | (rest < 1024 ? rest : ((exponent + 13) << 10) + rest);
}
#define FLOAT_BFLOAT
static unsigned short float_bfloat(float v) {
    const unsigned bits = float_bits(v);
    return v != v ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
template <class type> static type larger(type a, type b) { return a > b || a != a ? a : b; }
#define SILU(v) ((v) / (1 + expf(-(v))))
