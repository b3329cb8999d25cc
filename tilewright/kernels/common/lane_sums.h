// What a lane has of a warpgroup's product (wgmma) of 64 pixels by KB channels: sums of two pixels.
//
//   SUMS            of a lane, half of them of each pixel
//   SUM_ROW(i, t)   the channel of a pixel's number i, for the lane `t` of the four that share the pixels
//   SUM_AT(i, h)    which sum that is, of pixel h
//   PAIRED          the two pixels are neighbours: words of 2 bytes have both

#define SUMS (KB / 2)
#define SUM_ROW(i, t) ((i) / 2 * 8 + (t) * 2 + (i) % 2)
#define SUM_AT(i, h) ((i) / 2 * 4 + (h) * 2 + (i) % 2)
#define PAIRED (PRODUCTS != TF32)
