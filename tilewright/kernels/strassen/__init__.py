"""The strassen families: large matrix products by fewer multiplications."""
