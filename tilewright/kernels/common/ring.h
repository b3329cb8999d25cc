// Buffers that are filled and read in turn, where barriers say which are full and which are empty (barriers.h).
//
//   NEXT   go on from buffer `slot` to the next of `count`; `parity` is of the phase of its barrier that ends next
//   Ring   which buffers for filters and for x are next, and the phases of their barriers; of who sends the phases
//          before: that readers are done

#define NEXT(slot, parity, count) if (++slot == (count)) slot = 0, parity ^= 1

typedef struct {
    int slot, parity, x_slot, x_parity;
} Ring;
