"""The gemm family: matrix products on CUDA cores; and im2col, which turns any convolution into one."""
