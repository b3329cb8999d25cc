// Words from global memory to registers where `there`; else zeros, and nothing is read. Asked for here and now, as by
// fetch.h.

#include "fetch.h"

#ifdef __CUDACC__
INLINE void fetch4_if(unsigned to[4], const unsigned *from, int there) {
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %5, 0;\n\tmov.u32 %0, 0;\n\tmov.u32 %1, 0;\n\tmov.u32 %2, 0;\n\t"
        "mov.u32 %3, 0;\n\t@p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];\n\t}"
        : "=&r"(to[0]), "=&r"(to[1]), "=&r"(to[2]), "=&r"(to[3]) : "l"(from), "r"(there));
}
INLINE void fetch2_if(unsigned to[2], const unsigned *from, int there) {
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %3, 0;\n\tmov.u32 %0, 0;\n\tmov.u32 %1, 0;\n\t"
        "@p ld.global.nc.v2.u32 {%0, %1}, [%2];\n\t}"
        : "=&r"(to[0]), "=&r"(to[1]) : "l"(from), "r"(there));
}
INLINE void fetch1_if(unsigned to[1], const unsigned *from, int there) {
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.ne.s32 p, %2, 0;\n\tmov.u32 %0, 0;\n\t@p ld.global.nc.u32 %0, [%1];\n\t}"
        : "=&r"(to[0]) : "l"(from), "r"(there));
}
#endif
