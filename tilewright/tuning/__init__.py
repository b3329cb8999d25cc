"""Search for the fastest right kernel: measure, worker, tuner."""
