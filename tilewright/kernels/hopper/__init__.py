"""The hopper family: implicit GEMM by wgmma and the copy engine of sm_90a."""
