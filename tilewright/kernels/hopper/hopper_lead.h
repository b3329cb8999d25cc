// Planes of nchw that begin anywhere (LEADS > 1), by the copy engine: 1x1 filters, numbers of 2 bytes.
//
// All that the copy engine brings begins at a multiple of 16 bytes of memory, 8 pixels. A plane of 7x7 pixels does so
// in every eighth channel; the others begin 1 to 7 pixels behind such a place: that is their lead. Channels of one lead
// are LEADS apart, whole pieces of 16 bytes, so that an image is rows of LEADS planes, and a span of those that a step
// has is one box: from the place before the tile's first pixel on.
//
//             column  0 1 2 3 4 5 6 7 8 ..        P * Q = 49, LEADS = 8
//   lead 7    c = 7   . . . . . . . 0 1 ..        0: the tile's first pixel; what is before it, and behind the plane,
//   lead 6    c = 6   . . . . . . 0 1 2 ..           are other channels' pixels, in columns that nobody stores
//   lead 0    c = 0   0 1 2 3 4 5 6 7 8 ..
//
// The sum goes over all channels of the longest lead first. Then the sums move to the left, by 8 / LEADS columns, to
// where those of the next lead belong (move_sums). So of a stretch of columns the last ones are no outputs: they have
// been outside for some leads. USED are: a plane, or a multiple of 8. A warpgroup's WG_N columns are one stretch, or
// several of 64, which may be of several images.
//
//   LEADS   8 of odd planes, 4, or 2 (14x14);  OF_LEAD: steps of each
//   LEAP    channels from one lead to the next longer one, but for multiples of LEADS (odd: its own inverse)
//   a place of the raster is pixel place / STRETCH * USED + place % STRETCH of its image, of a row of WR places

#define MOVE (8 / LEADS)
#define PLANE_OF(part) ((LEADS - 1 - (part)) * LEAP % LEADS)  // the first channel of those that a part of the sum is of

INLINE int lead_pixel(int place) { return place % WR / STRETCH * USED + place % STRETCH; }
INLINE int lead_output(int place) {
    const int pixel = lead_pixel(place), n = place / WR;
    return place % STRETCH < USED && pixel < P * Q && n < N ? n * (P * Q) + pixel : -1;
}
// Where the box of a step begins, for the columns from a place on: in rows of LEADS planes, and its channel among those
// of its lead.
INLINE int lead_column(int place, int step) { return lead_pixel(place) + PLANE_OF(step / OF_LEAD) * (P * Q) / 8 * 8; }
INLINE int lead_channel(int group, int step) { return group * (C / LEADS) + step % OF_LEAD * (CHUNKS * EACH); }

#ifdef __CUDACC__
// v if `first`, else w; never by a branch, in which the compiler would not let products be under way.
INLINE float chosen(int first, float v, float w) {
    float found;
    asm("{.reg .pred p; setp.ne.s32 p, %1, 0; selp.f32 %0, %2, %3, p;}" : "=f"(found) : "r"(first), "f"(v), "f"(w));
    return found;
}
// Move a warp's sums `by` columns to the left, 1, 2 or 4: of 8 columns a lane has two, from column lane % 4 * 2 on
// (wgmma.h). Into the last ones come any.
INLINE void move_sums(acc_t sums[WG_WORDS], int by, int lane) {
    const int lanes = (by + 1) / 2, from = (lane & ~3) | ((lane + lanes) & 3), leaves = lane % 4 < lanes;
    UNROLL for (int i = 0; i < WG_WORDS; i += 2) {
        const int j = i + 4 < WG_WORDS ? i + 4 : i;  // the next 8 columns, whose first ones come to the end of these
        const acc_t first = chosen(leaves, sums[j], sums[i]), second = chosen(leaves, sums[j + 1], sums[i + 1]);
        sums[i] = by == 1 ? sums[i + 1] : __shfl_sync(0xffffffffu, first, from);
        sums[i + 1] = __shfl_sync(0xffffffffu, by == 1 ? first : second, from);
    }
}
// Move them to where the outputs are, from where those of `lead` columns before are.
INLINE void move_home(acc_t sums[WG_WORDS], int lead, int lane) {
    if (LEADS > 1 && lead & 4) move_sums(sums, 4, lane);
    if (LEADS > 2 && lead & 2) move_sums(sums, 2, lane);
    if (LEADS > 4 && lead & 1) move_sums(sums, 1, lane);
}
#endif
