"""Sources of flows as DataFrames of one form."""
