// How the stem family stages rows of the image, as they are, and its filter.
//
// Of a row STAGED_BYTES are staged, the first LEAD of them before what its first output sees: chunks of COPY bytes,
// which lie wholly inside a row of the image or outside (zeros), since COPY divides X_ROW_BYTES, and the byte at which
// each tile's rows begin (tile.py). Of numbers of 2 bytes, where rows are no whole words, a chunk is two. Rows are
// PITCH bytes apart, and columns GAP more than they have, so that lanes read from different banks.

// A row is shared out to ROW_THREADS threads, a power of two: no division by a row's chunks.
#define ROWS_AT_ONCE (THREADS / ROW_THREADS)
#define ALL_ROWS (PLANES * XH)
#define CHUNK_BYTES (COPY == 2 ? 4 : COPY)
#define ROW_COPIES (STAGED_BYTES / CHUNK_BYTES)  // chunks of a row
#define THREAD_COPIES CEIL_DIV(ROW_COPIES, ROW_THREADS)  // chunks of a row that a thread copies
#define AT_ONCE (COPY >= 4 ? 4 : THREAD_COPIES < 8 ? CEIL_DIV(8, THREAD_COPIES) : 1)  // rows

typedef struct {
    const GLOBAL in_t *from;  // of the image, or anywhere
    int to, inside, next;     // chunk of the tile, or -1; whether it, or its second number, lies in the image
} Chunk;

// Chunk `copy` of thread `mine` of a row's ROW_THREADS, in row `all` of those of all planes.
INLINE Chunk find_chunk(const GLOBAL in_t *x, int all, int copy, int h0, int first, int mine) {
    Chunk it;
    const int i = copy * ROW_THREADS + mine, h = h0 + all % XH, byte = first + i * CHUNK_BYTES;
    const int row = all < ALL_ROWS && (unsigned)h < H;
    it.inside = row && (unsigned)byte < X_ROW_BYTES;
    it.next = row && (unsigned)(byte + COPY) < X_ROW_BYTES;
    it.from = x + (it.inside || (COPY == 2 && it.next)
                       ? ((offset_t)(all / XH) * H + h) * (W * UNIT) + byte / NUMBER_BYTES : 0);
    it.to = all * (PITCH / CHUNK_BYTES) + i + (GAP ? i / (COLUMN_BYTES / CHUNK_BYTES) * (GAP / CHUNK_BYTES) : 0);
    if (all >= ALL_ROWS || (ROW_COPIES % ROW_THREADS != 0 && i >= ROW_COPIES)) it.to = -1;
    return it;
}

INLINE void stage_x(SHARED acc_t *tile, const GLOBAL in_t *x, Place at) {
    const int mine = THREAD(0) % ROW_THREADS, h0 = at.p0 * STR_H - PAD_T;
    const int first = (at.q0 * STR_W - PAD_L) * (UNIT * NUMBER_BYTES) - LEAD;
    x += (offset_t)at.n * (PLANES * H) * (W * UNIT);
    NO_UNROLL for (int all = THREAD(0) / ROW_THREADS; all < ALL_ROWS; all += AT_ONCE * ROWS_AT_ONCE) {
#if COPY >= 4
        UNROLL for (int i = 0; i < AT_ONCE * THREAD_COPIES; i++) {
            const Chunk it = find_chunk(x, all + i / THREAD_COPIES * ROWS_AT_ONCE, i % THREAD_COPIES, h0, first, mine);
            const GLOBAL acc_t *from = (const GLOBAL acc_t *)it.from;
            SHARED acc_t *to = tile + it.to * (COPY / 4);
            if (it.to < 0) continue;
            COPY == 16 ? async_copy4(to, from, it.inside) : COPY == 8 ? async_copy2(to, from, it.inside)
                                                                      : async_copy1(to, from, it.inside);
        }
#elif COPY == 2
        unsigned held[AT_ONCE * THREAD_COPIES];
        UNROLL for (int i = 0; i < AT_ONCE * THREAD_COPIES; i++) {
            const Chunk it = find_chunk(x, all + i / THREAD_COPIES * ROWS_AT_ONCE, i % THREAD_COPIES, h0, first, mine);
            const GLOBAL unsigned short *from = (const GLOBAL unsigned short *)it.from;
            const unsigned one = it.inside ? from[0] : 0u, other = it.next ? from[1] : 0u;
            held[i] = one | other << 16;
        }
        UNROLL for (int i = 0; i < AT_ONCE * THREAD_COPIES; i++) {
            const Chunk it = find_chunk(x, all + i / THREAD_COPIES * ROWS_AT_ONCE, i % THREAD_COPIES, h0, first, mine);
            if (it.to >= 0) ((SHARED unsigned *)tile)[it.to] = held[i];
        }
#else
        in_t held[AT_ONCE * THREAD_COPIES];
        UNROLL for (int i = 0; i < AT_ONCE * THREAD_COPIES; i++) {
            const Chunk it = find_chunk(x, all + i / THREAD_COPIES * ROWS_AT_ONCE, i % THREAD_COPIES, h0, first, mine);
            held[i] = *it.from;
            if (!it.inside) held[i] = 0;
        }
        UNROLL for (int i = 0; i < AT_ONCE * THREAD_COPIES; i++) {
            const Chunk it = find_chunk(x, all + i / THREAD_COPIES * ROWS_AT_ONCE, i % THREAD_COPIES, h0, first, mine);
            if (it.to >= 0) ((SHARED in_t *)tile)[it.to] = held[i];
        }
#endif
    }
}

INLINE void stage_w(SHARED acc_t *to, const GLOBAL acc_t *w) {
    UNROLL_BY(4) for (int i = THREAD(0) * 4; i < W_STAGED; i += THREADS * 4) async_copy4(to + i, w + i, 1);
}
