"""Sources of flows as DataFrames of a common schema."""
