"""Catalogue functions lowered to Polars, by theme. A function without an entry runs row by row."""
