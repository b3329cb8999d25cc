"""A Plan: one config of a kernel, compiled and bound; why that one; kept for its next use; on arrays."""
