"""Rows in columns: frames with types, bounds and weights, and expressions over them."""


class NotLowered(Exception):
    """Raised if an operator, expression or type has no columnar form.

    Its text is a clause, the reason; `explain` shows it.
    """
