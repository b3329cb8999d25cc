// Boxes of an image by the copy engine of sm_90, which arrive on a barrier (CUDA; barriers.h).
//
//   ImageMap     a tensor map (kernels/tensor_map.py), which a kernel is given by value
//   image_copy   pixels of a raster, all or some channels of each (Im2colMap)
//   span_copy    consecutive pixels of some channels' planes (TiledMap)
//   image_soon   fetch the map

typedef struct __align__(64) {
    unsigned char opaque[128];
} ImageMap;

INLINE void image_copy(shared_t to, const void *map, int c, int v, int h, int n, int phase_v, int phase_h,
                       shared_t bar) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3, %4, %5}], [%6], {%7, %8};"
                 ::"r"(to), "l"(map), "r"(c), "r"(v), "r"(h), "r"(n), "r"(bar),
                 "h"((unsigned short)phase_v), "h"((unsigned short)phase_h) : "memory");
}
INLINE void span_copy(shared_t to, const void *map, int v, int c, int h, int n, shared_t bar) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3, %4, %5}], [%6];"
                 ::"r"(to), "l"(map), "r"(v), "r"(c), "r"(h), "r"(n), "r"(bar) : "memory");
}
INLINE void image_soon(const void *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
