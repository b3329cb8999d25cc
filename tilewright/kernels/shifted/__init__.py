"""Convolutions of nchw on sm_90a: fragments of every tap read directly from planes, as they are."""
