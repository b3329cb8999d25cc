"""Callers' arrays: identifying them, and using them in place."""
