"""Watching an engine: listeners called after each tick, and the rows of a sink for its live table."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.engine.change import unknown_sink
from headrace.errors import BadInput, SourceLocation
from headrace.expr.types import Row, Schema
from headrace.expr.typing_rules import is_number
from headrace.requirements import require_package

if TYPE_CHECKING:
    from headrace.engine.live_table import LiveTable
    from headrace.engine.program import Program


@dataclass(slots=True)
class Occurrence:
    """Multiplicity of a row, and the last tick that changed it. json: the row as JSON, built on first use."""

    weight: int
    tick: int
    json: str = ""


class CurrentRows:
    """Multiset of rows, maintained from changes.

    rows: those of nonzero weight, the last changed come last.
    """

    def __init__(self) -> None:
        self.rows: dict[Row, Occurrence] = {}

    def change(self, row: Row, weight: int, tick: int) -> int:
        """Add to a row's weight; return the weight before."""
        there = self.rows.pop(row, None)
        if there is None:
            there = Occurrence(0, tick)
        before = there.weight
        there.weight += weight
        if there.weight:
            there.tick = tick
            self.rows[row] = there
        return before


@dataclass(frozen=True, slots=True)
class LiveRow:
    """Row of a live table. change: 1 if its count has grown, -1 if it has shrunk, else 0.

    copies: current multiplicity.
    """

    row: Any
    change: int
    copies: int


class LiveRows:
    """Current rows of one sink, maintained from its changes.

    append:  whether rows are only added. Then only the latest are kept, in the order of arrival.
    present: converts an internal row to the user's.
    limit:   number of rows that are shown.

    A table that is watched only from some tick on lacks the rows that have not changed since.
    """

    def __init__(self, append: bool, present: Callable[[Row], Any], limit: int) -> None:
        self._append = append
        self._present = present
        self.limit = limit
        self.count = 0
        """Number of rows so far, or of rows that are there now, copies included."""
        self._current = CurrentRows()
        self._latest: list[Row] = []
        self._changed: dict[Row, int] = {}
        self._arrived = 0

    def apply(self, rows: Sequence[Row]) -> None:
        """Apply the changes of a tick: internal rows, weight last unless the sink is append-only."""
        if self._append:
            self.count += len(rows)
            self._arrived += len(rows)
            self._latest = [*self._latest, *rows[-self.limit :]][-self.limit :]
            return
        for *values, weight in rows:
            row = tuple(values)
            before = self._current.change(row, weight, 0)
            self.count += max(before + weight, 0) - max(before, 0)
            self._changed[row] = self._changed.get(row, 0) + weight

    def take(self) -> list[LiveRow]:
        """Return the rows to show: at most `limit` current rows, with the changes since the last call.

        Of a table, the rows that changed last are taken and sorted, with those among them that are gone.
        """
        if self._append:
            old = len(self._latest) - self._arrived
            self._arrived = 0
            return [LiveRow(self._present(row), int(at >= old), 1) for at, row in enumerate(self._latest)]
        changed, self._changed = self._changed, {}
        current = self._current.rows
        present = ((row, current[row].weight) for row in reversed(current) if current[row].weight > 0)
        gone = ((row, max(current[row].weight, 0) if row in current else 0) for row in _gone(changed))
        shown = dict([*islice(gone, self.limit), *islice(present, self.limit)])
        return [LiveRow(self._present(row), _sign(changed.get(row, 0)), shown[row]) for row in _sorted(shown)]


def _gone(changed: dict[Row, int]) -> Iterator[Row]:
    return (row for row in reversed(changed) if changed[row] < 0)


def _sign(weight: int) -> int:
    return (weight > 0) - (weight < 0)


def _sorted(rows: dict[Row, int]) -> list[Row]:
    try:
        return sorted(rows)
    except TypeError:  # values of a column that cannot be compared
        return sorted(rows, key=repr)


def number_columns(schema: Schema) -> list[bool]:
    """Return for each column whether it is numeric; tables right-align numeric columns."""
    return [is_number(field.type) for field in schema.fields]


def shown_json(value: Any) -> str | None:
    """Format a JSON value as text, because JavaScript would round large numbers."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


_LOG = logging.getLogger(__name__)

TickListener: TypeAlias = Callable[[Mapping[str, Any]], object]
"""Receives the internal rows, or columns, that a tick gave to each sink."""


class TickListeners:
    """Mixin of `Engine`: listeners and live tables."""

    program: Program
    _ticks: int
    _outlets: list[tuple[str, bool, Callable[[tuple[Any, ...]], Any], Schema]]
    _listeners: tuple[TickListener, ...] = ()
    _tables: Mapping[str, LiveTable] = {}

    def watch(self, sink: str, *, limit: int = 20) -> LiveTable:
        """Return a live table of a sink's rows, a widget that notebooks show and update after ticks.

        limit: number of rows shown: those of a table that changed last, or the latest of an append stream.

        The table follows all ticks, with new rows marked `+` and deleted ones `−`. While an event loop runs,
        as in Jupyter, it is redrawn at most ten times a second. It holds what changes from now on, so watch
        before the first tick to see all rows; they are kept in memory. Watching a sink again returns the same
        table. `close()` ends it.

        Needs `headrace[notebook]`. Raises `BadInput` without it and for an invalid limit, and `UnknownSink`.
        """
        location = SourceLocation.of_caller()
        if not isinstance(limit, int) or limit < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadInput(f"limit is {limit!r}", where=[location], fix="give a whole number, 1 or more")
        found = next((outlet for outlet in self._outlets if outlet[0] == sink), None)
        if found is None:
            raise unknown_sink(sink, [name for name, *_ in self._outlets])
        if sink in self._tables:
            self._tables[sink].show_up_to(limit)
            return self._tables[sink]
        require_package("watch()", "anywidget", "notebook", location)
        from headrace.engine.live_table import LiveTable

        _, append, present, schema = found

        def follow(outputs: Mapping[str, Any]) -> None:
            rows = outputs.get(sink, ())
            try:
                table.follow(self._ticks, rows.rows() if hasattr(rows, "rows") else rows)
            except Exception:
                # The tick has happened, and its caller must get its changes.
                _LOG.exception("the live table of %s stopped", sink)
                stop()

        def stop() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not follow)
            self._tables = {name: each for name, each in self._tables.items() if each is not table}

        table = LiveTable(sink, schema, LiveRows(append, present, limit), self._ticks, stop)
        self._tables = {**self._tables, sink: table}
        self._listeners += (follow,)
        return table

    def _notify(self, outputs: Mapping[str, Any]) -> None:
        for listener in self._listeners:
            listener(outputs)
