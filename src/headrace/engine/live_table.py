"""Widget of a live table, for Jupyter and marimo. Imported when an engine is first watched."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anywidget
import traitlets

from headrace.engine.live_rows import LiveRow, LiveRows
from headrace.pull.pipeline_runtime import running_loop
from headrace.shown import text_of, values_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.expr.types import Schema

SECONDS_BETWEEN_UPDATES = 0.1


class LiveTable(anywidget.AnyWidget):  # type: ignore[misc]
    """Table of a sink's rows that follows an engine (see `Engine.watch`).

    table: what is shown, as plain data: title, columns, rows, and how many there are.
    """

    _esm = Path(__file__).with_name("live_table.js")
    table: Any = traitlets.Dict().tag(sync=True)

    def __init__(
        self, name: str, schema: Schema, rows: LiveRows, since: int, stop: Callable[[], object]
    ) -> None:
        self._name = name
        self._columns = schema.names
        self._rows = rows
        self._since = self._tick = since
        self._stop = stop
        self._show = RateLimited(self._update, SECONDS_BETWEEN_UPDATES)
        super().__init__()
        self._update()

    def follow(self, tick: int, changes: Sequence[tuple[Any, ...]]) -> None:
        """Apply the changes of a tick. Called by the engine."""
        self._tick = tick
        self._rows.apply(changes)
        self._show()

    def show_up_to(self, limit: int) -> None:
        """Change the number of rows to show."""
        self._rows.limit = limit
        self._show()

    def close(self) -> None:
        """Stop following the engine."""
        self._stop()
        super().close()

    def _update(self) -> None:
        rows = [_plain(row) for row in self._rows.take()]
        self.table = {
            "title": f"{self._name}, tick {self._tick:,}",
            "columns": list(self._columns),
            "rows": rows,
            "note": self._note(sum(1 for row in rows if row["copies"])),
        }

    def _note(self, shown: int) -> str:
        rows = "1 row" if self._rows.count == 1 else f"{self._rows.count:,} rows"
        more = f", {shown:,} shown" if shown < self._rows.count else ""
        return rows + more + (f"; rows changed since tick {self._since:,}" if self._since else "")

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Add the current table as HTML to the widget, for exports and front ends without widgets."""
        shown = super()._repr_mimebundle_(**options)  # pyright: ignore
        made = cast("tuple[dict[str, Any], dict[str, Any]] | None", shown)
        if made is not None:
            made[0]["text/html"] = self._html()
        return made

    def _html(self) -> str:
        self._show.serve_waiting()
        # As for all that notebooks show, by name: engines know nothing of notebooks.
        html: str = import_module("headrace.notebook").live_html(self.table)
        return html

    def __repr__(self) -> str:
        self._show.serve_waiting()
        heading = "  ".join(self._columns)
        shown: Mapping[str, Any] = self.table
        lines = ["  ".join(row["cells"]) for row in shown["rows"] if row["copies"]]
        return "\n".join([shown["title"], heading, *lines, shown["note"]])


def _plain(row: LiveRow) -> dict[str, Any]:
    return {
        "change": row.change,
        "copies": row.copies,
        "cells": [text_of(value) for value in values_of(row.row)],
    }


class RateLimited:
    """Rate limiter: calls `action` at most once per `between` seconds in a running event loop (Jupyter).

    A request that comes too early is served later, by the loop. Without one, every request is served at once.
    """

    def __init__(
        self, action: Callable[[], object], between: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._action = action
        self._between = between
        self._clock = clock
        self._last: float | None = None
        self._requested = False
        self._scheduled = False

    def __call__(self) -> None:
        """Request a call."""
        now = self._clock()
        wait = 0.0 if self._last is None else self._last + self._between - now
        loop = running_loop() if wait > 0 else None
        if loop is None:
            self._serve(now)
            return
        self._requested = True
        if not self._scheduled:
            self._scheduled = True
            loop.call_later(wait, self._late)

    def serve_waiting(self) -> None:
        """Immediately serve a request that is waiting for the event loop."""
        if self._requested:
            self._serve(self._clock())

    def _serve(self, now: float) -> None:
        self._requested = False
        self._last = now
        self._action()

    def _late(self) -> None:
        self._scheduled = False
        if self._requested:
            self()
