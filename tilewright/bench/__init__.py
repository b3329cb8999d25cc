"""The comparison with peers: a race of the families, a contest with the libraries, rows of results."""
