// Four 8 x 8 matrices of 16-bit numbers, rows of 16 bytes, from shared memory into the registers of a warp, as products
// take them: lane l says where row l % 8 of matrix l / 8 is, and gets word l % 4 of row l / 4 of each.
// Layout: PTX ISA 8.x, "ldmatrix".

#ifdef __CUDACC__
INLINE void read_matrices(unsigned v[4], unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(from) : "memory");
}
INLINE unsigned turned_matrix(unsigned v) {  // rows for columns, of a matrix that lanes hold as read_matrices gives it
    unsigned turned;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(v));
    return turned;
}
INLINE void read_two_matrices(unsigned v[2], unsigned from) {  // of which the first 16 lanes say where
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(v[0]), "=r"(v[1]) : "r"(from) : "memory");
}
#endif
