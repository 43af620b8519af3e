"""Watching an engine: listeners called after each tick, and live tables of sinks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.engine.change import unknown_sink
from headrace.engine.live_rows import LiveRows
from headrace.errors import BadInput, SourceLocation
from headrace.requirements import require_package

if TYPE_CHECKING:
    from headrace.engine.live_table import LiveTable
    from headrace.engine.program import Program
    from headrace.expr.types import Schema

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
