"""Last layers, of few output channels, on tensor cores."""
