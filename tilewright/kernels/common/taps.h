// Which taps of a filter meet the image under an output: worked out once (Met), asked for at each copy.
//
//   no padding      one bit for all of them
//   up to 15 x 15   a bit for each row and column of the filter
//   more            the first row and column that does, and how many do: they follow one another
//
// MOST_BITS: limits.py has it, too, and counts the words.

#define MOST_BITS 15
#define NO_TAP 0xffffffffu  // never met

#if !PADDED
typedef unsigned Met;

INLINE unsigned tap_of(int r, int s) { return 1u; }
INLINE Met met_at(int h, int w) { return 1u; }
INLINE Met met_never(void) { return 0; }
INLINE int meets(Met met, unsigned tap) { return (met & tap) == tap; }
#elif R > MOST_BITS || S > MOST_BITS
typedef struct {
    unsigned rows, columns;  // each: the first | how many << 16
} Met;

INLINE unsigned tap_of(int r, int s) { return (unsigned)r | (unsigned)s << 16; }

// Along one side of `size` pixels, of `taps` taps `apart` pixels apart, the first at pixel `at`.
INLINE unsigned met_along(int at, int apart, int taps, int size) {
    int first = at < 0 ? (apart - 1 - at) / apart : 0, end = at < size ? min(taps, CEIL_DIV(size - at, apart)) : 0;
    return first < end ? (unsigned)first | (unsigned)(end - first) << 16 : 0;
}

INLINE Met met_at(int h, int w) {
    Met met;
    met.rows = met_along(h, DIL_H, R, H), met.columns = met_along(w, DIL_W, S, W);
    return met;
}

INLINE Met met_never(void) {
    Met met = {0, 0};
    return met;
}

INLINE int meets(Met met, unsigned tap) {
    const unsigned row = (tap & 0xffff) - (met.rows & 0xffff), column = (tap >> 16) - (met.columns & 0xffff);
    return row < met.rows >> 16 && column < met.columns >> 16;
}
#else
typedef unsigned Met;  // bit r: row r; bit 16 + s: column s

INLINE unsigned tap_of(int r, int s) { return 1u << r | 1u << (16 + s); }

INLINE Met met_at(int h, int w) {
    Met met = 0;
    UNROLL for (int r = 0; r < R; r++) met |= (unsigned)((unsigned)(h + r * DIL_H) < H) << r;
    UNROLL for (int s = 0; s < S; s++) met |= (unsigned)((unsigned)(w + s * DIL_W) < W) << (16 + s);
    return met;
}

INLINE Met met_never(void) { return 0; }
INLINE int meets(Met met, unsigned tap) { return (met & tap) == tap; }
#endif
