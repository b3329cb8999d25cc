"""Last layers, of few output channels, in f32 on CUDA cores."""
