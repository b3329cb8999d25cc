"""Plans: a compiled config of a kernel with its workspace; why it was chosen; cached; on callers' arrays."""
