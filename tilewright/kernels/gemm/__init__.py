"""The gemm family: matrix products on CUDA cores; and im2col, which makes them of any convolution."""
