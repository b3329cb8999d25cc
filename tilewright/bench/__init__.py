"""The comparison with peers: our families, the contestants of other libraries, and rows of results."""
