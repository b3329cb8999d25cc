// Which number of all is number `place` (of 8) of a piece of a product, where those of `group` pieces alternate two by
// two: a thread has numbers 2 t and 2 t + 1 of each piece, so a run of them.

INLINE int alternated(int piece, int place, int group) {
    return (piece / group * 8 + place / 2 * 2) * group + piece % group * 2 + place % 2;
}
