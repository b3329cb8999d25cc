"""Whether an answer is right: inputs, references in f64, bounds, fences round what a kernel may write."""
