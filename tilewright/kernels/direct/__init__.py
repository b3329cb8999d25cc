"""The direct family: split-C direct convolution on CUDA cores and CPU vectors."""
