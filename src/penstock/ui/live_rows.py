"""Current rows of a view, maintained from the changes that a run publishes.

The run only appends its batches to a queue. The server's thread consolidates them, so a slow page costs the
run nothing but memory, and that is bounded: a view that outgrows the limits keeps its latest changes only.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeAlias

from penstock.expr.types import Schema
from penstock.io.files.json_values import object_encoder

Row: TypeAlias = tuple[Any, ...]

MAX_ROWS = 50_000
"""Distinct rows of a view that are kept."""
MAX_PENDING = 200_000
"""Changes of a view that may wait for the server's thread."""
PAGE_ROWS = 100
_LATEST = 200


@dataclass(slots=True)
class _Kept:
    """A row with its multiplicity, and the last tick that changed it."""

    row: Row
    weight: int
    tick: int


@dataclass
class LiveRows:
    """Rows of one view since the run began.

    changes: number of changes so far. overflow: why rows are missing; empty if none are.
    """

    schema: Schema
    changes: int = 0
    overflow: str = ""
    _pending: deque[tuple[int, list[Row]]] = field(default_factory=deque[tuple[int, list[Row]]])
    _waiting: int = 0
    _rows: dict[object, _Kept] = field(default_factory=dict[object, _Kept])
    _latest: deque[tuple[int, Row]] = field(default_factory=lambda: deque(maxlen=_LATEST))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, tick: int, rows: list[Row]) -> None:
        """Queue a tick's changes, weight last. Called by the run."""
        if not rows:
            return
        with self._lock:
            self.changes += len(rows)
            self._waiting += len(rows)
            self._pending.append((tick, rows))
            if self._waiting > MAX_PENDING and not self.overflow:
                self._overflow(f"more than {MAX_PENDING:,} changes came faster than the page took them")
            if self.overflow:
                self._keep_latest()

    def _overflow(self, why: str) -> None:
        self.overflow = f"{why}: only the latest changes are kept"
        self._rows.clear()

    def _keep_latest(self) -> None:
        while self._pending:
            tick, rows = self._pending.popleft()
            self._latest.extend((tick, row) for row in rows[-_LATEST:])
        self._waiting = 0

    def settle(self) -> None:
        """Consolidate the queued changes."""
        while self._pending:
            with self._lock:
                if not self._pending:
                    return
                tick, rows = self._pending.popleft()
                self._waiting -= len(rows)
                self._latest.extend((tick, row) for row in rows[-_LATEST:])
                if not self.overflow:
                    self._apply(tick, rows)

    def _apply(self, tick: int, rows: list[Row]) -> None:
        kept = self._rows
        for change in rows:
            key = _key(change[:-1])
            there = kept.get(key)
            if there is None:
                kept[key] = _Kept(change[:-1], change[-1], tick)
            elif there.weight + change[-1]:
                there.weight += change[-1]
                there.tick = tick
            else:
                del kept[key]
        if len(kept) > MAX_ROWS:
            self._overflow(f"the view has more than {MAX_ROWS:,} distinct rows")

    def page(self, search: str, offset: int) -> dict[str, Any]:
        """Return rows whose JSON contains a text, in any case, newest first."""
        self.settle()
        encode = object_encoder(self.schema.fields)
        with self._lock:
            kept = [(each.row, each.weight, each.tick) for each in self._rows.values()]
            latest = [(row[:-1], row[-1], tick) for tick, row in reversed(self._latest)]
        kept.sort(key=lambda each: -each[2])
        listed = latest if self.overflow else kept
        found = _matching(listed, encode, search.casefold())
        rows = list(islice(found, offset, offset + PAGE_ROWS + 1))
        return {
            "columns": list(self.schema.names),
            "rows": rows[:PAGE_ROWS],
            "more": len(rows) > PAGE_ROWS,
            "total": len(listed),
            "changes": self.changes,
            "overflow": self.overflow,
        }


def _matching(
    rows: list[tuple[Row, int, int]], encode: Callable[[Row], dict[str, Any]], search: str
) -> Iterator[dict[str, Any]]:
    for row, weight, tick in rows:
        record = encode(row)
        text = json.dumps(record, ensure_ascii=False, default=str)
        if not search or search in text.casefold():
            values = [shown_json(value) for value in record.values()]
            yield {"values": values, "json": text, "weight": weight, "tick": tick}


def shown_json(value: Any) -> str | None:
    """Format a value of JSON as text; JavaScript would round large numbers."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _key(row: Row) -> object:
    try:
        hash(row)
    except TypeError:
        return repr(row)
    return row
