"""The grouped family: depthwise layers and small groups."""
