"""Catalogue functions lowered to Polars, by theme. A function without an entry stays in rows."""
