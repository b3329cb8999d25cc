"""The textbook family: the sources' successive optimisation steps, to learn from."""
