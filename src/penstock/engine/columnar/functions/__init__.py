"""Catalogue functions in Polars, by theme. A function without an entry stays in rows."""
