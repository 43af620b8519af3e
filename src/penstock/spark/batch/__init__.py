"""A whole flow over input that ends: native DataFrames, and subplans on the in-process engine."""
