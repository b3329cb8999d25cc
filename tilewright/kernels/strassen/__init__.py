"""The strassen families: large matrix products with fewer multiplications."""
