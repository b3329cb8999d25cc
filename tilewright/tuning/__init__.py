"""The search for the fastest right kernel: a tuner, and the worker processes that try configs for it."""
