"""How each function of the catalogue is said in Polars, by theme; what has no entry stays in rows."""
