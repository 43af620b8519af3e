"""Rows in columns: frames with types, bounds and weights, and expressions over them."""
