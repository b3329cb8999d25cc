// FACTORS: the DTYPE of what tensor cores multiply, where x is staged as another; sum_t: what their sums are made of.

#ifdef FACTORS
typedef float sum_t;
#else
#define FACTORS DTYPE
typedef acc_t sum_t;
#endif
