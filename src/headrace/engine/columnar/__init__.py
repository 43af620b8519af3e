"""Columnar execution of large ticks on Polars, for the expression-based parts of a flow.

The package is imported only once a tick is large enough, and it is optional: without Polars, every tick runs
row by row, with the same results.
"""
