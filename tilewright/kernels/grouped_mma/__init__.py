"""The grouped_mma family: many small groups on tensor cores."""
