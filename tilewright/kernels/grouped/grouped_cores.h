// What the grouped family's kernels for CPU cores share that go from item to item by tiles: which of two is less. (min
// and max of OpenCL C want two of one type; offset_t may be wider than an int.)

INLINE int least(int a, int b) { return a < b ? a : b; }
INLINE int most(int a, int b) { return a > b ? a : b; }
