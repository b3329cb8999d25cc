// The words of the input: what is staged in shared memory and multiplied with those of the filter (pack.cu).
//
//   f64 f32    an element                          i8   four channels 4c .. 4c + 3, zeros past the last: CG
//   f16 bf16 f8   an element, widened to f32            channels of a group are C words, for dot4
//
// AS_WORDS 1: memory holds words as they are, and they can be copied without a register: always so for f64 and
// f32, for i8 in aligned nhwc with whole words. Else each is loaded, made, and stored.

#ifndef AS_WORDS
#define AS_WORDS (DTYPE < 2)
#endif
#ifndef CG
#define CG C
#endif
#if DTYPE == 4
#define CHANNEL(c) ((c) * 4)  // the first of word c
#else
#define CHANNEL(c) (c)
#endif
#define PLANE_STEP (X_NHWC ? 1 : H * W)  // elements to the next channel

// Numbers that are widened, or bytes that are put together, are not what is multiplied. A thread that makes each word
// when it has come waits for memory once a word; so it first holds what it has loaded of several, and makes them then.
#if DTYPE == 2 || DTYPE == 3
#define HELD(count) (((count) + 1) / 2)  // two numbers in 32 bits
INLINE void hold1(unsigned *held, const GLOBAL in_t *from) { held[0] = *from; }
INLINE void hold2(unsigned *held, const GLOBAL in_t *from) { held[0] = *(const GLOBAL unsigned *)from; }
INLINE void hold4(unsigned *held, const GLOBAL in_t *from) { load_run(2, held, (const GLOBAL unsigned *)from); }
#define hold_run(count, held, from) TW_JOIN(hold, count)(held, from)  // neighbours in memory, aligned to them all
INLINE acc_t held_number(const unsigned *held, int u) { return widened((in_t)(held[u / 2] >> u % 2 * 16)); }
#elif DTYPE == 5
#define HELD(count) (((count) + 3) / 4)  // four numbers in 32 bits
#define hold_run(count, held, from)                                                                              \
    ((held)[0] = count == 4 ? *(const GLOBAL unsigned *)(from) : count == 2 ? *(const GLOBAL unsigned short *)(from) \
                                                                            : *(from))
INLINE acc_t held_number(const unsigned *held, int u) { return widened((in_t)(held[u / 4] >> u % 4 * 8)); }
#endif

// Word c of a group, whose first channel lies at `from`.
INLINE acc_t load_word(const GLOBAL in_t *from, int c) {
#if AS_WORDS
    return *(const GLOBAL acc_t *)from;
#elif DTYPE != 4
    return in_load(from);
#else
    unsigned word = 0;
    UNROLL for (int j = 0; j < 4; j++)
        if (CG % 4 == 0 || c * 4 + j < CG) word |= (unsigned)(unsigned char)from[j * PLANE_STEP] << 8 * j;
    return (acc_t)word;
#endif
}
