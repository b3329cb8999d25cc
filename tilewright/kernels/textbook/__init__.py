"""The textbook family: the steps of the sources' ladders, which are there to learn from."""
