"""Whether an answer is right: inputs, f64 references, error bounds, fences around what a kernel may write."""
