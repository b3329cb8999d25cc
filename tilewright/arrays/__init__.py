"""Callers' arrays: what they are, and their use in place."""
