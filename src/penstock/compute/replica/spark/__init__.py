"""The runtime on Spark: dataflows as streaming queries, indexes in files."""
