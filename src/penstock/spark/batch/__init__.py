"""A whole flow over input that ends: native DataFrames, and islands on the in-process engine."""
