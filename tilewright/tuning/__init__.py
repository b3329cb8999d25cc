"""Search for the fastest right kernel: space, model, search, verify, measure, worker, tuner."""
