// Words from global memory to registers, asked for here and now: the compiler would rather wait for other data first.

#ifdef __CUDACC__
INLINE void fetch4(unsigned to[4], const unsigned *from) {
    asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "l"(from));
}
INLINE void fetch2(unsigned to[2], const unsigned *from) {
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "l"(from));
}
#endif
