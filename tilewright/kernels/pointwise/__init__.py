"""Pointwise: 1x1 layers in nchw on wgmma, what comes in, is multiplied and goes out side by side."""
