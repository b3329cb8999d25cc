"""Matrix products on CUDA cores: gemm, one for each tap of a filter, and im2col, one of its columns."""
