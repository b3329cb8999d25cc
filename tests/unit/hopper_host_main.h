// The kernel's functions that have to do with numbers alone, and the run of clusters (hopper_host.h).

static Block tiles[CLUSTER * THREADS];  // of each thread, the tile that it is at
static Block *tile() { return &tiles[me->block * THREADS + me->thread]; }
static Block noted(Block b) { return own().step = b.first, *tile() = b; }
#define find_block(...) noted(find_block(__VA_ARGS__))
static void find_places(shared_t, const Block *, int, int) {}
static void find_moves(int *, const Block *, int, int) {}
static void join_sums(acc_t *, int *) {}
static void write_sums(shared_t, const acc_t *, int, int) {}
static void move_sums(acc_t *, int, int) {}
static void move_home(acc_t *, int, int) {}
#define FEWER_REGISTERS(count) have_registers(count, REGS_ALL)
#define MORE_REGISTERS(count) have_registers(count, REGS_ALL)
#if SLID
typedef struct {
} Edges;
static Edges find_padding(const Block *, int, int) { return {}; }
static void slide_sums(acc_t *, Edges, shared_t, int, int) { TEAMS_SYNC(), TEAMS_SYNC(); }
#endif
#define store_own(...)
#define ask_for_residual(...)
#define BRINGS 0
#define store_tile(...)

static long patch_of(const Block *b, int step) { return where(step, b->px0, b->at.group, 0); }
static void fill(shared_t to, long what, int thread, int count) {
    for (int i = thread; i < X_BYTES / 16; i += count) holds[block_of(to)][place_of(to) / 16 + i] = what;
}
static void gather(shared_t shared, const x_t *, int px0, int group) {
    fill(shared + X_FROM, where(0, px0, group, 0), THREAD(0), THREADS);
}
static void copy_patch(shared_t shared, int to, const Block *b, int step, int thread, int count) {
    const long what = patch_of(b, step);
    Fiber *mine = me;
#if TURNS_RUNS
    own().raw = b->at.group * C + step * CHUNKS * 8;
    turn_patch(shared, to, b, step, thread, count);
#endif
    for (int i = thread; i < X_BYTES / 16; i += count) written(shared + to + i * 16, 16);
    if (THROUGH_REGISTERS) return fill(shared + to, what, thread, count);
    mine->copies++;
    begin([=] { return fill(shared + to, what, thread, count), mine->copies--, true; });
}

// What the first place of a patch should be a copy of.
static long patch_wanted(const Block *b, int step) {
    const int q = b->px0 % WR, p = b->px0 / WR % HR, n = b->px0 / (WR * HR), run = step / TAPS, tap = step % TAPS;
#if LEADS > 1
    return where(lead_channel(b->at.group, step), lead_column(b->px0, step), 0, b->px0 / WR);
#endif
    if (SLID) return where(b->at.group * C + run * CHUNKS * EACH, q, p - PAD_T, n);
    if (SPAN)
        return where(b->at.group * C + run * CHUNKS * EACH, q + tap % S * DIL_W - PAD_L,
                     p * STR_H + tap / S * DIL_H - PAD_T, n);
    if (!MAPPED) return GATHERS ? where(0, b->px0, b->at.group, 0) : patch_of(b, run);
    const int c = (b->at.group * X_PARTS * CC + run * CHUNKS) * EACH;
    const int r = TAPWISE ? tap / S : 0, s = TAPWISE ? tap % S : 0;
    return where(c, q * STR_W - PAD_L + s * DIL_W, p * STR_H - PAD_T + r * DIL_H, n);
}
static void check_step(int w_slot, int x_slot, int r, int s) {
    if (me->thread % 32) return;
    const Block *b = tile();
    const long *w = &holds[me->block][w_slot * W_BYTES / 16], *x = &holds[me->block][(X_FROM + x_slot * X_BYTES) / 16];
    const long step = own().step++, row = (b->w - FILTERS) / W_BYTES + step;
    const bool here = std::all_of(w, w + W_BYTES / 16, [=](long one) { return one == row; });
    CHECK(here, "step %ld finds other filters", step);
    CHECK(JOINT || GATHERS || r * S + s == step % TAPS, "step %ld multiplies another tap", step);
    CHECK(!std::count(x, x + X_BYTES / 16, NOTHING) && x[0] == patch_wanted(b, step), "step %ld finds another patch",
          step);
}

static void hopper(const x_t *, const unsigned char *, const out_t *, const out_t *, done_t *, acc_t *, unsigned *);
void run_kernel() { hopper(IMAGE, FILTERS, 0, 0, 0, 0, 0); }

int main(int count, char **given) {
    for (int i = 0; i < 2 * atoi(given[1]); i++) {
        rng.seed(i / 2), pace.lingers = i % 2;
        run_cluster({CLUSTER, THREADS, BARS_FROM, SHARED_END}, rng() % (GRID / CLUSTER) * CLUSTER);
    }
    puts("done");
}
