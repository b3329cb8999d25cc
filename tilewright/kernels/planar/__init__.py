"""1x1 layers in nchw on sm_90a whose planes begin anywhere: fragments read directly from raw planes."""
