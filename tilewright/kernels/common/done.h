// What a kernel stores where a sum is done (tile.h): an output, or a partial sum (TWO_PASS). With REQUANT outputs are
// i8.
//
//   final_t   FINAL_OF(v, k)   an output: of channel k (of all groups), whose sum is v; FINAL_BY(v, s): of scale s
//   done_t    DONE_OF(v, k)    what is stored: the same, or the sum as it is; DONE_BY(v, s)
//   SCALE_PARAMETER            the last parameter where REQUANT, the scale of each channel; SCALE_ARGUMENT: handed on

#ifndef REQUANT
#define REQUANT 0
#endif
#if REQUANT
#include "requant.h"
#define SCALE_PARAMETER , const GLOBAL float *RESTRICT scale
#define SCALE_ARGUMENT , scale
#ifdef __CUDACC__
typedef signed char final_t;
#else
typedef char final_t;  // vectors have no other name there
#endif
#define FINAL_OF(v, k) requantised(v, scale[k])
#define FINAL_BY(v, s) requantised(v, s)
#else
#define SCALE_PARAMETER
#define SCALE_ARGUMENT
typedef out_t final_t;
#define FINAL_OF(v, k) narrowed(v)
#define FINAL_BY(v, s) narrowed(v)
#endif
#if defined(TWO_PASS) && COMBINE == TWO_PASS
typedef acc_t done_t;
#define DONE_OF(v, k) (v)
#define DONE_BY(v, s) (v)
#else
typedef final_t done_t;
#define DONE_OF(v, k) FINAL_OF(v, k)
#define DONE_BY(v, s) FINAL_BY(v, s)
#endif
