"""Columnar execution of large ticks on Polars, for the expression-based parts of a flow.

Nothing here is imported before a tick is large enough, and nothing is needed:
without Polars every tick runs row by row, with the same answers.
"""
