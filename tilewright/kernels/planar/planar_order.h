// The order of the 64 channels of a step in the packed filter.
//
// The tensor cores leave the order of a sum to who gives the operands. Four lanes share a pair of pixels; each reads 16
// channels of it. Lane t begins APART * t channels further, as many as put the four in different banks: planes of HW
// numbers are HW / 2 words apart.
//
//   HW         odd   2 mod 4   4 mod 8   8 mod 16   0 mod 16
//   APART      16    8         4         2          1
//
// Planes of odd HW begin in the middle of a word every other time; there a lane has pairs of neighbouring channels, of
// which the first begins at a word.
//
//   CHANNEL_OF(t, number)     number `number` (of 16) of lane t
//   CHANNEL_AT(place)         the same by its place in a row of the filter: as wgmma takes lanes' numbers along the sum

#define APART (HW % 2 ? 16 : HW % 4 ? 8 : HW % 8 ? 4 : HW % 16 ? 2 : 1)
#define CHANNEL_OF(t, number) ((number) % APART + (t) * APART + (number) / APART * (4 * APART))
#define CHANNEL_AT(place) \
    CHANNEL_OF((place) % 8 / 2, (place) / 16 * 4 + (place) % 16 / 8 * 2 + (place) % 2)
