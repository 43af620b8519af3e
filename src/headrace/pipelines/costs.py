"""Cost model of updates: seconds from changes or from all rows, estimated from the last updates.

From all rows, that is the seconds of the last such update for each row of the inputs. From changes, it is the
seconds of the last such update for each changed row; but a part of these does not grow with the changes, so
that further ones are taken to cost `FACTOR` times as much as a row of the whole at most. For a change, state
is read and written, and what it takes back is looked up.

Only an update from changes tells what these cost, and one that was slow for another reason would prevent all
others. So after `MOST_ESTIMATED` updates that were made from all rows by estimate, the next is from changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

FACTOR = 2.0
"""Cost of a changed row, in rows of the whole, as far as it was not measured."""

LEAST = 5_000
"""Rows from which on an update tells what a row costs: below, start-up is most of it."""

MOST_ESTIMATED = 3
"""Updates from all rows, one after another, for which what changes cost is taken as it was."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured update: its seconds, and the rows of inputs or changes that it read."""

    seconds: float
    rows: int

    @property
    def per_row(self) -> float:
        return self.seconds / self.rows


@dataclass(frozen=True, slots=True)
class Costs:
    """Last measured updates of a table, from all rows and from changes.

    estimated: updates since the last from changes that were made from all rows by estimate.
    """

    whole: Measured | None = None
    changes: Measured | None = None
    estimated: int = 0

    @classmethod
    def from_entry(cls, entry: Mapping[str, list[float]]) -> Costs:
        found = {
            name: Measured(entry[name][0], int(entry[name][1]))
            for name in ("whole", "changes")
            if name in entry
        }
        return cls(**found, estimated=int(entry.get("estimated", [0])[0]))

    def to_entry(self) -> dict[str, list[float]]:
        found = {"whole": self.whole, "changes": self.changes}
        made = {name: [each.seconds, each.rows] for name, each in found.items() if each is not None}
        return {**made, "estimated": [self.estimated]} if self.estimated else made

    def after(self, seconds: float, rows: int | None, *, whole: bool, estimated: bool = False) -> Costs:
        """Return the costs after one more update; as they were if its rows were few, or not counted.

        whole: from all rows; estimated: because that was estimated to cost less.
        """
        counted = replace(self, estimated=self.estimated + 1) if estimated else self
        if rows is None or rows < LEAST:
            return counted
        last = Measured(seconds, rows)
        return replace(counted, whole=last) if whole else Costs(self.whole, last)

    def why_whole(self, changes: int, rows: int) -> str:
        """Return why making a table from all rows costs less than from changes; empty if it does not."""
        if changes < LEAST or self.estimated >= MOST_ESTIMATED:
            return ""
        if (estimated := self._seconds(changes, rows)) is None:
            return ""
        by_changes, whole = estimated
        if by_changes <= whole:
            return ""
        return (
            f"from all rows: {changes:,} changes estimated at {_text(by_changes)}, "
            f"all {rows:,} rows at {_text(whole)}"
        )

    def _seconds(self, changes: int, rows: int) -> tuple[float, float] | None:
        """Estimate an update from changes and one from all rows; None if none was measured."""
        last = self.changes
        if self.whole is not None:
            row = self.whole.per_row
        elif last is not None:
            row = last.per_row / FACTOR
        else:
            return None
        if last is None:
            return changes * row * FACTOR, rows * row
        in_proportion = changes * last.per_row
        further = last.seconds + max(0, changes - last.rows) * row * FACTOR
        return min(in_proportion, further), rows * row


def _text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
