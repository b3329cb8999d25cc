"""Studies: the experiments of the sources, each as data, run by one engine beside what was published."""
