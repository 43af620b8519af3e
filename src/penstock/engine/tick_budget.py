"""Limit on the rows that one tick makes, counted by bounded code between its steps and rounds."""

from __future__ import annotations

from penstock.errors import LimitExceeded


class TickBudget:
    """Count of the rows that a tick has made so far, with a limit.

    rows: the limit. made: the count, reset before each tick.

    >>> budget = TickBudget(10)
    >>> budget(8)
    >>> budget(3)
    Traceback (most recent call last):
    penstock.errors.LimitExceeded: P751 LimitExceeded: a tick made 11 rows, and 10 is the limit
    ...
    """

    __slots__ = ("made", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.made = 0

    def __call__(self, count: int) -> None:
        """Count rows. Raises `LimitExceeded` above the limit."""
        self.made += count
        if self.made > self.rows:
            raise LimitExceeded(
                f"a tick made {self.made:,} rows, and {self.rows:,} is the limit",
                fix="let fewer rows meet, or give the view higher limits",
                reached=self.made,
                limit=self.rows,
            )
