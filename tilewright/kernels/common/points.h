// Minimal filtering: r taps over m + r - 1 neighbours make m outputs by POINTS = m + r - 1 multiplications.
//
// The filter and the output are polynomials, taken at the points 0, PAIRS pairs a and -a, and infinity, in this order.
// Source: S. Winograd, "Arithmetic Complexity of Computations", SIAM 1980. The pairs are chosen for their rounding
// errors: by simulation F(4x4, 3x3) has half the error that 1 and 2 give it, a quarter at worst. All products of their
// squares are exact in f32. `apart`: how far from each other the values are in their array.

#define PAIRS (POINTS / 2 - 1)
#if POINTS == 4
#define PAIR_POINT(i) 1.0f
#elif POINTS == 6
#define PAIR_POINT(i) ((i) == 0 ? 0.75f : 1.5f)
#elif POINTS == 8
#define PAIR_POINT(i) ((i) == 0 ? 0.5f : (i) == 1 ? 1.0f : 2.0f)
#else
#define PAIR_POINT(i) ((i) == 0 ? 0.375f : (i) == 1 ? 0.75f : (i) == 2 ? 1.25f : 2.25f)
#endif

// What each of `count` outputs or taps counts for at a point: its powers.
INLINE void powers_of(int point, int count, float *to) {
    const float a = PAIR_POINT((point - 1) / 2), base = point == 0 ? 0.0f : point % 2 ? a : -a;
    float power = 1.0f;
    UNROLL for (int j = 0; j < count; j++, power *= base)
        to[j] = point < POINTS - 1 ? power : j == count - 1 ? 1.0f : 0.0f;
}

// The coefficients of the product of (t - a^2) over all pairs but one; the compiler computes them.
INLINE void product_of_pairs(float to[PAIRS + 1], int without) {
    UNROLL for (int i = 0; i <= PAIRS; i++) to[i] = i == 0 ? 1.0f : 0.0f;
    UNROLL for (int j = 0; j < PAIRS; j++) {
        if (j == without) continue;
        const float square = PAIR_POINT(j) * PAIR_POINT(j);
        UNROLL for (int i = PAIRS; i > 0; i--) to[i] = to[i - 1] - square * to[i];
        to[0] *= -square;
    }
}

#ifdef PACKS_FILTER

// What a point's sum is divided by: the product of its distances to the other points.
INLINE float distances_of(int point) {
    float square = 0.0f, product = 1.0f;
    if (point == POINTS - 1) return 1.0f;
    if (point > 0) {
        const float a = PAIR_POINT((point - 1) / 2);
        square = a * a;
        product = 2.0f * square;
    }
    UNROLL for (int i = 0; i < PAIRS; i++)
        if (point == 0 || i != (point - 1) / 2) product *= square - PAIR_POINT(i) * PAIR_POINT(i);
    return product;
}

#else

// POINTS neighbours of the input, at the points.
INLINE void at_points(value_t to[POINTS], const value_t *d, int apart) {
    float by[PAIRS + 1];
    product_of_pairs(by, PAIRS);
    value_t first = by[0] * d[0], last = by[0] * d[apart];
    UNROLL for (int i = 1; i <= PAIRS; i++) first += by[i] * d[2 * i * apart], last += by[i] * d[(2 * i + 1) * apart];
    to[0] = first;
    to[POINTS - 1] = last;
    UNROLL for (int pair = 0; pair < PAIRS; pair++) {
        product_of_pairs(by, pair);
        value_t even = by[0] * d[2 * apart], odd = by[0] * d[apart];
        UNROLL for (int i = 1; i < PAIRS; i++)
            even += by[i] * d[(2 * i + 2) * apart], odd += by[i] * d[(2 * i + 1) * apart];
        to[2 * pair + 1] = even + PAIR_POINT(pair) * odd;
        to[2 * pair + 2] = even - PAIR_POINT(pair) * odd;
    }
}

// `count` outputs of the sums at the points.
INLINE void from_points(int count, value_t *to, const value_t *m, int apart) {
    float powers[PAIRS];
    UNROLL for (int pair = 0; pair < PAIRS; pair++) powers[pair] = 1.0f;
    UNROLL for (int j = 0; j < count; j++) {
        value_t sum = j == 0 ? m[0] : j == count - 1 ? m[(POINTS - 1) * apart] : (value_t)(0.0f);
        UNROLL for (int pair = 0; pair < PAIRS; pair++) {
            value_t one = m[(2 * pair + 1) * apart], other = m[(2 * pair + 2) * apart];
            sum += powers[pair] * (j % 2 ? one - other : one + other);
            powers[pair] *= PAIR_POINT(pair);
        }
        to[j] = sum;
    }
}

#endif
