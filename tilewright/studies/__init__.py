"""Studies: the experiments of publications, described as data and run by one engine, beside their figures."""
