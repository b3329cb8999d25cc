// 3x3 and 1x3 filters of the hopper family over x in nchw as it is (SLID), with one of padding left and right.
//
// All that the copy engine brings begins at a multiple of 16 bytes of memory, and so does what wgmma takes along its
// columns: 8 pixels. A patch of whole rows serves all taps of a row of the filter nevertheless, if those products that
// would need x moved are summed up apart, and the sums are moved. So each column of the filter has sums of its own:
//
//   L[q] = sum of x[q] w[0]    M[q] = sum of x[q] w[1]    R[q] = sum of x[q] w[2]      over channels and rows of taps
//   y[q] = L[q - 1] + M[q] + R[q + 1]                      from outside of a row comes the sum of padding times w: 0,
//                                                          or NaN (w_moved; PACK_PADDING)
//
// Three sums for an output leave few registers. Who sends is a warpgroup, whose other warps do nothing: it hands on its
// registers (REGS_SENDING, REGS_SUMMING), until all finish sums together (REGS_ALL).
//
// A row is WR places, a team's WG_N columns whole rows of it. Or a row is in several teams side by side: then the first
// and last sums of a team go to those beside it by EDGES_FROM: [team][row of its 64][to the left, to the right].
//
// Of 8 columns a lane has two, from column lane % 4 * 2 on (wgmma.h): sums i and i + 1; i + 4 is 8 columns further.

static_assert(REGS_SUMMING * TEAMS + REGS_SENDING <= REGS_ALL * (TEAMS + 1), "tile.py: registers that nobody has");

#define BESIDE (WR > WG_N)  // whether a row is in several teams
#define ROW_WORDS (WR / 2)  // sums of a lane from one row of a team to the next

// What comes into the first and last columns of a row, for both channels of a lane: from padding, or the teams beside.
typedef struct {
    acc_t first[2], last[2];
} Edges;
INLINE Edges find_padding(const Block *b, int team, int thread) {
    Edges edges;
    UNROLL for (int h = 0; h < 2; h++) {
        const int row = team % WM * 64 + thread / 32 * 16 + thread % 32 / 4 + 8 * h;
        const int2 two = __ldg((const int2 *)b->w_moved + row);
        edges.first[h] = __int_as_float(two.x), edges.last[h] = __int_as_float(two.y);
    }
    return edges;
}
INLINE void find_edges(Edges *edges, const acc_t left[WG_WORDS], const acc_t right[WG_WORDS], shared_t shared, int team,
                       int thread) {
#if BESIDE
    const int row = thread / 32 * 16 + thread % 32 / 4, column = team / WM % (WR / WG_N);
    const shared_t mine = shared + EDGES_FROM + (team * 64 + row) * 8;
    const shared_t before = mine - WM * 512, behind = mine + WM * 512;
    TEAMS_SYNC();  // those of the tile before are read
    UNROLL for (int h = 0; h < 2; h++) {
        if (thread % 4 == 0) write1(mine, h * 64, right[2 * h]);
        if (thread % 4 == 3) write1(mine, h * 64 + 4, left[WG_WORDS - 3 + 2 * h]);
    }
    TEAMS_SYNC();
    UNROLL for (int h = 0; h < 2; h++) {
        if (column > 0) edges->first[h] = read1(before, h * 64 + 4);
        if (column < WR / WG_N - 1) edges->last[h] = read1(behind, h * 64);
    }
#endif
}

// Bring the three sums of each output together, in those of the middle column.
INLINE void slide_sums(acc_t sums[SUM_WORDS], Edges edges, shared_t shared, int team, int thread) {
    const acc_t *left = sums + SUMS_OF(0), *right = sums + SUMS_OF(2);
    find_edges(&edges, left, right, shared, team, thread);
    const int lane = thread % 32, t = lane % 4, four = lane - t;
    UNROLL for (int i = 0; i < WG_WORDS; i += 2) {
        const int h = i / 2 % 2, begins = BESIDE ? i < 4 : i / 4 * 4 % ROW_WORDS == 0;
        const int ends = BESIDE ? i >= WG_WORDS - 4 : (i / 4 * 4 + 4) % ROW_WORDS == 0;
        const acc_t before = begins ? edges.first[h] : left[begins ? 0 : i - 3];
        const acc_t behind = ends ? edges.last[h] : right[ends ? 0 : i + 4];
        sums[i] += __shfl_sync(0xffffffffu, t == 3 ? before : left[i + 1], four + (t + 3) % 4) + right[i + 1];
        sums[i + 1] += left[i] + __shfl_sync(0xffffffffu, t == 0 ? behind : right[i], four + (t + 1) % 4);
    }
}
