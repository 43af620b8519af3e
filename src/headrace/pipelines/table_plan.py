"""Maintenance plan of a table: how it is kept up to date, and what that has cost.

Where both ways are open, a model of costs chooses at each update: seconds from changes or from all rows,
estimated from the last updates. From all rows, that is the seconds of the last such update for each row of
the inputs. From changes, it is the seconds of the last such update for each changed row; but a part of
these does not grow with the changes, so that further ones are taken to cost `FACTOR` times as much as a row
of the whole at most. For a change, state is read and written, and what it takes back is looked up.

Only an update from changes tells what these cost, and one that was slow for another reason would prevent
all others. So after `MAX_ESTIMATED` updates that were made from all rows by estimate, the next is from
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from headrace.errors import Step
from headrace.pipelines.graph import StoredTable
from headrace.pipelines.leaves import FilesLeaf, Leaf

if TYPE_CHECKING:
    from headrace.flow.flow import Flow
    from headrace.spark.prepared_flow import PreparedFlow


ANSWER = "rows"
"""Name of the sink of a table's flow."""


class Method(Enum):
    """Method by which a table is kept up to date. The value is shown to users.

    INCREMENTAL: a flow with state gets the changes of its inputs.
    STATELESS:   the query runs on the rows that came and on those that went: its rows are computed one by
                 one, so that is what came to the table, and what went.
    APPEND:      the query of a stream runs on the rows that it has not read.
    AFFECTED:    Spark runs the query on the rows with the keys of changed rows, see `AffectedKeys`, and the
                 difference to the table's rows with these keys is handed on.
    RECOMPUTE:   Spark runs the query on all rows, and the difference to the rows before is handed on.
    """

    INCREMENTAL = "incremental"
    STATELESS = "incremental, stateless"
    APPEND = "append"
    AFFECTED = "recompute, affected keys"
    RECOMPUTE = "recompute"


@dataclass(frozen=True, slots=True)
class AffectedKeys:
    """Key by which a table is recomputed in part.

    columns: names of the columns that are the key.
    fixed:   keys in positions of the inputs to which the key cannot be traced. If one of them changes, all
             rows are recomputed.
    """

    columns: tuple[str, ...]
    fixed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TablePlan:
    """Maintenance plan of a table.

    why:     of what cannot be incremental; empty if it is, or is not meant to be.
    flow:    of a table that is kept up to date by changes, over `inputs`: its leaves by the names of the
             flow's sources. only_spark: why there is none of a table whose rows are computed one by one.
    fingerprint: of what is computed. stable: whether the same inputs give the same rows.
    chooses: whether it may be made from all rows where that is estimated to cost less.
    parts: of what the fingerprint is made.
    load:    gives the flow of a kept plan, see `loaded`.
    column_origins: of a table without a flow, the columns that its query hands on unchanged, by the `exact`
             of the input that they come from, with their names there.
    time_columns: columns by which the rows of streams are put in order, by the names of the flow's sources.
    keys:    of a table that is recomputed in part.
    """

    table: StoredTable
    method: Method
    fingerprint: str
    stable: bool
    why: str = ""
    where: tuple[Step, ...] = ()
    flow: Flow | None = None
    inputs: Mapping[str, Leaf] | None = None
    chooses: bool = False
    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    load: Callable[[], PreparedFlow] | None = None
    only_spark: str = ""
    column_origins: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, "Mapping[str, str]"])
    time_columns: Mapping[str, str] = field(default_factory=dict[str, str])
    keys: AffectedKeys | None = None

    def loaded(self) -> TablePlan:
        """Return the plan with its flow, which a kept analysis has in a part of its own."""
        return self if self.load is None else replace(self, flow=self.load().flow, load=None)

    def prepared(self) -> PreparedFlow | None:
        """Return the flow prepared for runs in this process; None without one."""
        from headrace.spark.prepared_flow import PreparedFlow

        if self.load is not None:
            return self.load()
        return None if self.flow is None else PreparedFlow(self.flow)

    @property
    def compared_files(self) -> Iterator[str]:
        """Folders and files that are read by their changes, not in full."""
        if self.method in (Method.STATELESS, Method.INCREMENTAL, Method.AFFECTED):
            for query in self.table.queries:
                for leaf in query.leaves:
                    if isinstance(leaf, FilesLeaf) and not leaf.streaming:
                        yield from leaf.roots


FACTOR = 2.0
"""Cost of a changed row, in rows of the whole, as far as it was not measured."""


LEAST = 5_000
"""Rows from which on an update tells what a row costs: below, start-up is most of it."""


MAX_ESTIMATED = 3
"""Updates from all rows, one after another, for which what changes cost is taken as it was."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured update: its duration, and the number of rows of inputs or changes that it read."""

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
        """Return the costs after one more update; unchanged if its rows were few or not counted.

        whole: from all rows; estimated: because that was estimated to cost less.
        """
        counted = replace(self, estimated=self.estimated + 1) if estimated else self
        if rows is None or rows < LEAST:
            return counted
        last = Measured(seconds, rows)
        return replace(counted, whole=last) if whole else Costs(self.whole, last)

    def why_whole(self, changes: int, rows: int) -> str:
        """Return why computing a table from all rows costs less than from changes; empty if it does not."""
        if changes < LEAST or self.estimated >= MAX_ESTIMATED:
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
