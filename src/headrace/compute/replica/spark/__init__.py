"""Spark runtime: dataflows as streaming queries, indexes in files."""
