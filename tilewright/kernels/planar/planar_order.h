// The order of a step's channels in the packed filter: 64, or 32 of tf32.
//
// The tensor cores leave the order of a sum to who gives the operands. Four lanes share two pixels; each reads a fourth
// of the channels of them. Lane t begins APART * t channels further, as many as put the four in different banks: planes
// are PLANE_HALVES / 2 words apart.
//
//   PLANE_HALVES   odd   2 mod 4   4 mod 8   8 mod 16   0 mod 16
//   APART          16    8         4         2          1
//
// If a plane has an odd number of halves, every second plane begins in the middle of a word. Then a lane has channels
// in pairs, c and c + 1, of which the plane of c begins at a word.
//
//   CHANNEL_OF(t, number)     number `number` (of OF_STEP / 4) of lane t
//   CHANNEL_AT(place)         the same by its place in a row of the filter: as wgmma takes lanes' numbers along the sum

#define OF_STEP (128 / (int)sizeof(in_t))
#define OF_WORD (4 / (int)sizeof(in_t))
#define PLANE_HALVES (HW * 2 / OF_WORD)
#define APART (PLANE_HALVES % 2 ? 16 : PLANE_HALVES % 4 ? 8 : PLANE_HALVES % 8 ? 4 : PLANE_HALVES % 16 ? 2 : 1)
#define CHANNEL_OF(t, number) ((number) % APART + (t) * APART + (number) / APART * (4 * APART))
#define WORD_AT(place) ((place) / OF_WORD)
#define CHANNEL_AT(place) \
    CHANNEL_OF(WORD_AT(place) % 4, (WORD_AT(place) / 8 * 2 + WORD_AT(place) % 8 / 4) * OF_WORD + (place) % OF_WORD)
