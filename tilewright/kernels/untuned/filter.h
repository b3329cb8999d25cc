// Where packers find an element of a filter, kcrs: from the first one of its output channel, channel c's of tap rs.
//
// PACK_ORDER (of packers that include swizzle.h): FILTER_OF(row), which output channel of a tile a row of it is.
// 0: as they are; 1: in the order of COLUMN; 2: of PAIR.
//
// FOLD > 1 (fold.py): the layer is computed as one with FOLD columns of the filter as channels of one; CG and SIZE_S
// count its channels and columns, and c = j * (CG / FOLD) + the filter's channel, of the filter's column s * FOLD + j.

#ifndef FOLD
#define FOLD 1
#endif
#define FILTER_OF(row) (PACK_ORDER == 1 ? COLUMN(row) : PACK_ORDER == 2 ? PAIR(row) : (row))
#define FILTER_TAPS (SIZE_R * SIZE_S)
#define FILTER_AT(c, rs)                                                                      \
    (FOLD == 1 ? (offset_t)(c) * FILTER_TAPS + (rs)                                           \
               : ((offset_t)((c) % (CG / FOLD)) * FILTER_TAPS + (rs)) * FOLD + (c) / (CG / FOLD))
