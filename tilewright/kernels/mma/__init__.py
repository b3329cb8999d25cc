"""The mma family: implicit GEMM on tensor cores by mma.sync, sm_80 and later."""
