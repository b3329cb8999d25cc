"""Depthwise convolution on tensor cores."""
