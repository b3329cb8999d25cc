// The points of winograd_rows: 0, PAIRS pairs a and -a, and infinity, in this order. F(m, r) takes m + r - 1 points.
//
// Chosen for their rounding errors (simulated, squares of them summed, beside those of direct): 8 points 1.1 to 1.7
// times direct's, 10 points 2.2 to 3.8; 1/2, 1, 2 and 4 would have 8. All products of their squares are exact in f32.

#define PAIRS (POINTS / 2 - 1)
#if POINTS == 8
#define PAIR(i) ((i) == 0 ? 1.0f : (i) == 1 ? 2.0f : 0.5f)
#else
#define PAIR(i) ((i) == 0 ? 0.375f : (i) == 1 ? 0.75f : (i) == 2 ? 1.25f : 2.25f)
#endif

// A point that is not infinity, by its number.
INLINE float point_at(int number) {
    const float a = PAIR((number - 1) / 2);
    return number == 0 ? 0.0f : number % 2 ? a : -a;
}
