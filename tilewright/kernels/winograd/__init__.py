"""The winograd families: minimal filtering, fused in one kernel, in three chained ones, and along rows."""
