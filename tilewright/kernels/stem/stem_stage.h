// How the stem family stages rows of the image, as they are, and its filter.
//
// A staged row has PITCH bytes, the first LEAD of them before what its first output sees: pieces of COPY bytes, which
// lie wholly inside a row of the image or outside (zeros), since COPY divides its ROW_BYTES.

// A row is shared out to LINE threads, a power of two, so that where a thread reads and writes takes no divisions.
#define LINES (THREADS / LINE)
#define ALL_ROWS (PLANES * ROWS)
#define TURNS ((PIECES + LINE - 1) / LINE)                          // pieces of a row that a thread copies
#define AT_ONCE (COPY >= 4 ? 4 : TURNS < 8 ? (8 + TURNS - 1) / TURNS : 1)  // rows

typedef struct {
    const GLOBAL in_t *from;  // of the image, or anywhere
    int to, inside;           // piece of the tile; whether there is one, of the image
} Piece;

INLINE Piece find_piece(const GLOBAL in_t *x, int all, int turn, int h0, int first, int lane) {
    Piece it;
    const int i = turn * LINE + lane, h = h0 + all % ROWS, byte = first + i * COPY;
    it.inside = all < ALL_ROWS && (unsigned)h < H && (unsigned)byte < ROW_BYTES;
    it.from = x + (it.inside ? ((offset_t)(all / ROWS) * H + h) * (W * UNIT) + (unsigned)byte / NUMBER_BYTES : 0);
    it.to = all < ALL_ROWS && (PIECES % LINE == 0 || i < PIECES) ? all * PIECES + i : -1;
    return it;
}

INLINE void stage_x(SHARED acc_t *tile, const GLOBAL in_t *x, Place at) {
    const int lane = THREAD(0) % LINE, h0 = at.p0 * STR_H - PAD_T;
    const int first = (at.q0 * STR_W - PAD_L) * (UNIT * NUMBER_BYTES) - LEAD;
    x += (offset_t)at.n * (PLANES * H * W) * UNIT;
    NO_UNROLL for (int all = THREAD(0) / LINE; all < ALL_ROWS; all += AT_ONCE * LINES) {
#if COPY >= 4
        UNROLL for (int i = 0; i < AT_ONCE * TURNS; i++) {
            const Piece it = find_piece(x, all + i / TURNS * LINES, i % TURNS, h0, first, lane);
            const GLOBAL acc_t *from = (const GLOBAL acc_t *)it.from;
            SHARED acc_t *to = tile + it.to * (COPY / 4);
            if (it.to < 0) continue;
            COPY == 16 ? async_copy4(to, from, it.inside) : COPY == 8 ? async_copy2(to, from, it.inside)
                                                                      : async_copy1(to, from, it.inside);
        }
#else
        in_t held[AT_ONCE * TURNS];
        UNROLL for (int i = 0; i < AT_ONCE * TURNS; i++) {
            const Piece it = find_piece(x, all + i / TURNS * LINES, i % TURNS, h0, first, lane);
            held[i] = *it.from;
            if (!it.inside) held[i] = 0;
        }
        UNROLL for (int i = 0; i < AT_ONCE * TURNS; i++) {
            const Piece it = find_piece(x, all + i / TURNS * LINES, i % TURNS, h0, first, lane);
            if (it.to >= 0) ((SHARED in_t *)tile)[it.to] = held[i];
        }
#endif
    }
}

INLINE void stage_w(SHARED acc_t *to, const GLOBAL acc_t *w) {
    UNROLL_BY(4) for (int i = THREAD(0) * 4; i < W_STAGED; i += THREADS * 4)
        if (i < W_WORDS) async_copy4(to + i, w + i, 1);
}
