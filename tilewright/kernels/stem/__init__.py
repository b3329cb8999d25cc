"""First layers, of few input channels, on tensor cores."""
