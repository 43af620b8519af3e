"""Large ticks on Polars: the parts of a flow that are made of expressions, column by column.

Nothing here is imported before a tick is large enough, and nothing is needed:
without Polars every tick runs row by row, with the same answers.
"""
