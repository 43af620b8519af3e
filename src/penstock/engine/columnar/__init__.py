"""Large ticks on Polars: columnar execution of the parts of a flow that consist of expressions.

Nothing here is imported before a tick is large enough, and nothing is needed:
without Polars every tick runs row by row, with the same answers.
"""
