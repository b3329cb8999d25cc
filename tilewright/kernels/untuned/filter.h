// Where packers find an element of a filter, kcrs: from the first one of its output channel, channel c's of tap rs.
//
// FOLD > 1 (fold.py): the layer is computed as one whose filter has a single column; CG counts its channels, FOLD of
// them, a column each, for one of the filter's: c = column * (CG / FOLD) + the filter's channel; rs is a row.

#ifndef FOLD
#define FOLD 1
#endif
#define FILTER_TAPS (SIZE_R * SIZE_S)
#define FILTER_AT(c, rs)                                                                      \
    (FOLD == 1 ? (offset_t)(c) * FILTER_TAPS + (rs)                                           \
               : ((offset_t)((c) % (CG / FOLD)) * FILTER_TAPS + (rs)) * FOLD + (c) / (CG / FOLD))
