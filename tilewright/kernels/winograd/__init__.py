"""The winograd families: minimal filtering fused in one kernel, in three chained kernels, and along rows."""
