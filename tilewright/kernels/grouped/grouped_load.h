// How a thread of the grouped kernel loads a row of its inputs: all of it is under way before one number is converted.

// f16, bf16 and f8 are widened, bytes side by side are parted: what is in memory is not what is multiplied.
#define PARTS_WORDS (!CPU_LANES && (DTYPE == 2 || DTYPE == 3 || DTYPE == 5 || (DTYPE == 4 && ACROSS)))

// CV words that are neighbours in memory.
INLINE vec load_words(const GLOBAL in_t *from) {
#if CPU_LANES
    return load_lanes(from);
#elif DTYPE < 2
    return vec_load(from);
#else
    acc_t words[VECTOR];
    UNROLL for (int i = 0; i < VECTOR; i++) words[i] = load_word(from + i, 0);
    return vec_pack(words);
#endif
}

// CV words of one input from word `word` of the group on: VECTOR groups of one channel each (ACROSS).
INLINE vec load_inside(const GLOBAL in_t *from, int word) {
#if CV > 1
    return load_words(from);
#else
    acc_t one[VECTOR] = {0};
    one[0] = load_word(from, word);
    return vec_pack(one);
#endif
}

// The same, or zeros.
INLINE vec load_input(const GLOBAL in_t *x, Item at, int c, int word, int h, int w) {
    vec v;
    vec_zero(&v);
    if ((unsigned)h < H && (unsigned)w < W) v = load_inside(x + X_AT(at.n, c, h, w), word);
    return v;
}

#if PARTS_WORDS && DTYPE == 4
#define HELD(count) 1
#define hold_run(count, held, from)                                                                       \
    ((held)[0] = CV == 4 ? *(const GLOBAL unsigned *)(from) : CV == 2 ? *(const GLOBAL unsigned short *)(from) \
                                                                      : *(const GLOBAL unsigned char *)(from))
#define held_number(held, u) ((acc_t)((held)[0] >> (u) * 8))  // the lowest byte counts: the tap's others are zeros
#endif

// Those of a row from column w on.
#if X_QUADS  // nchw: four columns at a time, from a multiple of four on; no four are cut by the edge of the image
#define LEAD ((4 - PAD_L % 4) % 4)
#define ROW_QUADS ((LEAD + SEEN_W + 3) / 4)
INLINE void load_row(vec row[SEEN_W], const GLOBAL in_t *x, Item at, int c, int word, int h, int w) {
    acc_t line[ROW_QUADS * 4], one[VECTOR] = {0};
#if PARTS_WORDS
    unsigned held[ROW_QUADS][2];
    UNROLL for (int i = 0; i < ROW_QUADS; i++) {
        held[i][0] = held[i][1] = 0;
        const int v = w - LEAD + 4 * i;
        if ((unsigned)h < H && (unsigned)v < W) hold4(held[i], x + X_AT(at.n, c, h, v));
    }
    UNROLL for (int j = 0; j < ROW_QUADS * 4; j++) line[j] = held_number(held[j / 4], j % 4);
#else
    UNROLL for (int i = 0; i < ROW_QUADS; i++) {
        UNROLL for (int j = 0; j < 4; j++) line[4 * i + j] = 0;
        const int v = w - LEAD + 4 * i;
        if ((unsigned)h < H && (unsigned)v < W) load4(line + 4 * i, x + X_AT(at.n, c, h, v));
    }
#endif
    UNROLL for (int j = 0; j < SEEN_W; j++) {
        one[0] = line[LEAD + j];
        row[j] = vec_pack(one);
    }
}
#elif PARTS_WORDS
INLINE void load_row(vec row[SEEN_W], const GLOBAL in_t *x, Item at, int c, int word, int h, int w) {
    unsigned held[SEEN_W][HELD(CV)];
    UNROLL for (int j = 0; j < SEEN_W; j++) {
        UNROLL for (int u = 0; u < HELD(CV); u++) held[j][u] = 0;
        if ((unsigned)h < H && (unsigned)(w + j) < W) hold_run(CV, held[j], x + X_AT(at.n, c, h, w + j));
    }
    UNROLL for (int j = 0; j < SEEN_W; j++) {
        acc_t words[VECTOR] = {0};
        UNROLL for (int u = 0; u < CV; u++) words[u] = held_number(held[j], u);
        row[j] = vec_pack(words);
    }
}
#else
INLINE void load_row(vec row[SEEN_W], const GLOBAL in_t *x, Item at, int c, int word, int h, int w) {
#if CPU_LANES  // a CPU: a row that lies inside the image, as most do, is asked once
    if ((unsigned)h < H && w >= 0 && w + SEEN_W <= W) {
        const GLOBAL in_t *from = x + X_AT(at.n, c, h, w);
        UNROLL for (int j = 0; j < SEEN_W; j++) row[j] = load_inside(from + j * (X_NHWC ? C_ALL : 1), word);
    } else
#endif
        UNROLL for (int j = 0; j < SEEN_W; j++) row[j] = load_input(x, at, c, word, h, w + j);
}
#endif
