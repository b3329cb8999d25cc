// x in nchw, turned into pieces of channels by way of shared memory (SEGMENTS): numbers of 2 bytes, whole pieces of
// channels, and of each channel a multiple of 8 pixels.
//
// The pixels that a patch has are one run of the image. The copy engine brings them as they are, in segments: 64 pixels
// of each channel of a step, a row of 128 bytes for each channel, swizzled (operand.h). Threads read matrices of 8
// channels x 8 pixels and store them transposed: a pixel's 8 channels are a piece, which goes to the pixel's place in
// the patch.
//
//   raw     segment 0  channel 0  [ 64 pixels ]        patch    place  [ piece 0 | piece 1 ... ]
//                      channel 1  [           ]                 place  [ ...
//           segment 1  ...
//
// A table says which place each pixel of the segments is, -1 for none: what is none goes to DUMP. Places with no pixel
// are filled with zeros once, in all buffers: no copy writes there.
// Example: 3x3 on 64x64 pixels, a tile of 128: places of 260 pixels at most, five segments.

#define SEGMENT 64
#define SEGMENT_BYTES (CHUNKS * 8 * 128)
#define OF_IMAGE CEIL_DIV(H * W, SEGMENT)  // segments
#define DUMP (TABLE_FROM + SEGMENTS * (SEGMENT * 4))
#define RAW_AT(slot) (RAW_FROM + (slot) * (SEGMENTS * SEGMENT_BYTES))
#define RAW_FULL(slot) W_FULL(2 * (STAGES + X_BARS) + 2 + (slot))

// The segments of a block: of one image from pixel `first` on, a multiple of 8; of several those of all images are
// counted, each image's from its first pixel on.
typedef struct {
    int first, count;
} Segments;

// The pixel that a place shows in phase (phase_h, phase_w); or the next one behind it, where it shows none.
INLINE int pixel_from(int place, int phase_h, int phase_w) {
    const int p = place / WR % HR, n = place / (WR * HR);
    const int h = p * STR_H + phase_h - PAD_T, v = place % WR * STR_W + phase_w - PAD_L;
    if (n >= N) return N * H * W;
    return n * (H * W) + (h < 0 ? 0 : h >= H ? H * W : h * W + min(max(v, 0), W));
}
INLINE int segment_of(int pixel) { return pixel / (H * W) * OF_IMAGE + pixel % (H * W) / SEGMENT; }
INLINE Segments find_segments(const Block *b) {
    const int first = pixel_from(b->px0, 0, 0);
    const int last = min(pixel_from(b->px0 + PATCH - 1, PHASES_H - 1, PHASES_W - 1), N * H * W - 1);
    Segments found;
    found.first = N == 1 ? first / 8 * 8 : segment_of(first);
    found.count = N == 1 ? (last - found.first) / SEGMENT + 1 : segment_of(last) - found.first + 1;
    if (first >= N * H * W) found.count = 0;
    return found;
}

// Fill the table, and the places that show no pixel with zeros; by `count` threads.
INLINE void find_turned(shared_t shared, const Block *b, int thread, int count) {
    const Segments found = find_segments(b);
    NO_UNROLL for (int i = thread; i < found.count * SEGMENT; i += count) {
        const int segment = found.first + i / SEGMENT, n = N == 1 ? 0 : segment / OF_IMAGE;
        const int at = N == 1 ? found.first + i : segment % OF_IMAGE * SEGMENT + i % SEGMENT;
        const int h = at / W + PAD_T, v = at % W + PAD_L, p = h / STR_H, q = v / STR_W;
        const int place = (n * HR + p) * WR + q - b->px0, phase_h = h % STR_H, phase_w = v % STR_W;
        const int is_one = at < H * W && p < HR && q < WR && phase_h < PHASES_H && phase_w < PHASES_W &&
                           place >= 0 && place < PATCH;
        write_int(shared, TABLE_FROM + i * 4, is_one ? (phase_h * PHASES_W + phase_w) * PATCH + place : -1);
    }
    const unsigned zeros[4] = {0, 0, 0, 0};
    NO_UNROLL for (int row = thread; row < PLACES; row += count)
        if (find_pixel(b->px0, row, 0) < 0)
            NO_UNROLL for (int i = 0; i < X_STAGES * CHUNKS; i++)
                write16(shared, X_FROM + i / CHUNKS * X_BYTES + piece_at(0, X_NEXT, row, i % CHUNKS), zeros);
}

// Send for the raw channels of run `run` of the block's, if it has one; by one thread.
INLINE void send_for_raw(shared_t shared, const Block *b, int run) {
    const Segments found = find_segments(b);
    const int step = b->first / TAPS + run, slot = run % RAW_STAGES, c = b->at.group * C + step * (CHUNKS * 8);
    if (step > (b->last - 1) / TAPS) return;
    bar_expect(RAW_FULL(slot), found.count * SEGMENT_BYTES);
    NO_UNROLL for (int i = 0; i < found.count; i++) {
        const int segment = found.first + i, n = N == 1 ? 0 : segment / OF_IMAGE;
        const int at = N == 1 ? found.first + i * SEGMENT : segment % OF_IMAGE * SEGMENT;
        span_copy(shared + RAW_AT(slot) + i * SEGMENT_BYTES, b->x, at, c, 0, n, RAW_FULL(slot));
    }
}

// Turn channels `step` of a patch, by `count` threads, whole warps. A warp has half a segment at once.
#define PIECES_AT_ONCE (CHUNKS < 8 ? CHUNKS : 8)
INLINE void turn_patch(shared_t shared, int to, const Block *b, int step, int thread, int count) {
    const int run = step - b->first / TAPS, slot = run % RAW_STAGES, lane = thread % 32, pieces = C / 8 - step * CHUNKS;
    const int halves = 2 * find_segments(b).count;
    bar_wait(RAW_FULL(slot), run / RAW_STAGES % 2);
    NO_UNROLL for (int half = thread / 32; half < halves; half += count / 32) {
        const int place = read_int(shared, TABLE_FROM + (half * 32 + lane) * 4);
        const shared_t raw = shared + RAW_AT(slot) + half / 2 * SEGMENT_BYTES + lane % 8 * 128 +
                             ((half % 2 * 4 + lane / 8) ^ lane % 8) * 16;
        NO_UNROLL for (int first = 0; first < CHUNKS; first += PIECES_AT_ONCE) {
            unsigned words[PIECES_AT_ONCE][4];
            UNROLL for (int i = 0; i < PIECES_AT_ONCE; i++)
                if (C % (CHUNKS * 8) == 0 || first + i < pieces) read_matrices(words[i], raw + (first + i) * (8 * 128));
                else UNROLL for (int e = 0; e < 4; e++) words[i][e] = 0;
            UNROLL for (int i = 0; i < PIECES_AT_ONCE; i++)
                write_transposed(shared + (place < 0 ? DUMP : to + piece_at(0, X_NEXT, place, first + i)), words[i]);
        }
    }
}
