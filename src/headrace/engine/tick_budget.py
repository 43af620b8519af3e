"""Limit on the rows that one tick makes, counted by bounded code between its steps and rounds."""

from __future__ import annotations

from headrace.errors import LimitExceeded

LARGEST_TICK = 8_192
"""Rows of input that a limit is meant for; ticks of more may make as many for each of these."""


class TickBudget:
    """Count of the rows that a tick has made so far, with a limit.

    rows: the limit of the current tick. made: the count, reset before each tick.

    >>> budget = TickBudget(10)
    >>> budget(8)
    >>> budget(3)
    Traceback (most recent call last):
    headrace.errors.LimitExceeded: P751 LimitExceeded: a tick made 11 rows, and 10 is the limit
    ...
    """

    __slots__ = ("_usual", "made", "rows")

    def __init__(self, rows: int) -> None:
        self.rows = self._usual = rows
        self.made = 0

    def allow_for(self, given: int) -> None:
        """Set the limit of ticks with so many rows of input."""
        self.rows = self._usual * max(1, -(-given // LARGEST_TICK))

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
