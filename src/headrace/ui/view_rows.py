"""Rows of a view, maintained from the changes that a run publishes, page by page and searchable.

The run queues its batches; the server's threads apply them, so that a slow reader costs the run little.
The number of rows in memory is bounded: a full queue is consolidated in place, and a view with too many
distinct rows keeps its latest changes only.
"""

from __future__ import annotations

import json
import os
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import singledispatch
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headrace.engine.live_rows import CurrentRows, Occurrence, number_columns, shown_json
from headrace.expr.types import Row, Schema
from headrace.io.files.changelog import Changelog, CsvChangelog
from headrace.io.files.csv_files import CsvFiles
from headrace.io.files.json_values import object_encoder
from headrace.io.files.table_files import TableFiles
from headrace.io.in_process import Print
from headrace.io.source import Feed, open_source
from headrace.tables.version_folders import tick_folders

if TYPE_CHECKING:
    from headrace.ui.server import JsonObject


MAX_ROWS = 50_000
"""Distinct rows of a view that are kept."""
MAX_PENDING = 4 * MAX_ROWS
"""Queued changes of a view at which the queue is consolidated."""
MAX_TEXT = 2_000
"""Characters of a value that are shown."""
MAX_ASKED = 50_000
"""Characters of a row in a URL about which one can ask: servers refuse requests above 64 KiB."""
PAGE_ROWS = 100
_LATEST = 200


@dataclass
class ViewRows:
    """Rows of one view since the run began.

    changes: number of changes so far. overflow: why rows are missing; empty if none are.
    """

    schema: Schema
    changes: int = 0
    overflow: str = ""
    _pending: list[tuple[int, list[Row]]] = field(default_factory=list[tuple[int, list[Row]]])
    _waiting: int = 0
    _latest: deque[tuple[Row, Occurrence]] = field(default_factory=lambda: deque(maxlen=_LATEST))
    _queue: threading.Lock = field(default_factory=threading.Lock)
    """Guards the fields above. It is not held while rows are applied or searched."""
    _current: CurrentRows = field(default_factory=CurrentRows)
    _applying: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._encode = object_encoder(self.schema.fields)

    def add(self, tick: int, rows: list[Row]) -> None:
        """Queue a tick's changes, weight last. Called by the run."""
        if not rows:
            return
        with self._queue:
            self.changes += len(rows)
            self._latest.extend((row[:-1], Occurrence(row[-1], tick)) for row in rows[-_LATEST:])
            if self.overflow:
                return
            self._waiting += len(rows)
            self._pending.append((tick, rows))
            if self._waiting > MAX_PENDING:
                self._consolidate()

    def _consolidate(self) -> None:
        net = CurrentRows()
        _apply(net, self._pending)
        # So many distinct changes leave more than MAX_ROWS rows, whichever rows there were before.
        if len(net.rows) > 2 * MAX_ROWS:
            self._keep_latest(_too_many())
            return
        self._waiting = len(net.rows)
        self._pending = [(each.tick, [(*row, each.weight)]) for row, each in net.rows.items()]

    def lose(self, why: str) -> None:
        """Keep only the latest changes from now on, for the given reason."""
        with self._queue:
            self._keep_latest(why)

    def _keep_latest(self, why: str) -> None:
        self.overflow = self.overflow or f"{why}: only the latest changes are kept"
        self._pending = []
        self._waiting = 0

    def settle(self) -> None:
        """Apply the queued changes."""
        with self._applying:
            self._settle()

    def _settle(self) -> None:
        with self._queue:
            pending, self._pending, self._waiting = self._pending, [], 0
        _apply(self._current, pending)
        if len(self._current.rows) > MAX_ROWS:
            self.lose(_too_many())
        if self.overflow:
            self._current.rows.clear()

    def page(self, search: str, offset: int) -> dict[str, Any]:
        """Return rows whose JSON contains a text, in any case, newest first."""
        with self._applying:
            self._settle()
            if self.overflow:
                with self._queue:
                    listed = list(reversed(self._latest))
            else:
                # A run that resumed deletes rows that its page has never seen.
                listed = [each for each in reversed(self._current.rows.items()) if each[1].weight > 0]
            found = self._matching(listed, search.casefold())
            rows = list(islice(found, offset, offset + PAGE_ROWS + 1))
        return {
            "columns": list(self.schema.names),
            "numbers": number_columns(self.schema),
            "rows": [self._shown(row, occurrence) for row, occurrence in rows[:PAGE_ROWS]],
            "more": len(rows) > PAGE_ROWS,
            "total": len(listed),
            "changes": self.changes,
            "overflow": self.overflow,
        }

    def _matching(self, rows: list[tuple[Row, Occurrence]], search: str) -> Iterator[tuple[Row, Occurrence]]:
        for row, occurrence in rows:
            if not search or search in self._json(row, occurrence).casefold():
                yield row, occurrence

    def _json(self, row: Row, occurrence: Occurrence) -> str:
        """Encode a row, once, because a search of all rows is repeated with every change of the view."""
        if not occurrence.json:
            occurrence.json = json.dumps(self._encode(row), ensure_ascii=False, default=str)
        return occurrence.json

    def _shown(self, row: Row, occurrence: Occurrence) -> dict[str, Any]:
        whole = self._json(row, occurrence)
        return {
            "values": [_shortened(shown_json(value)) for value in self._encode(row).values()],
            # The row as a question to `why` travels in an address.
            "json": whole if len(quote(whole[: MAX_ASKED + 1])) <= MAX_ASKED else None,
            "weight": occurrence.weight,
            "tick": occurrence.tick,
        }


def _shortened(text: str | None) -> str | None:
    return text if text is None or len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _too_many() -> str:
    return f"the view has more than {MAX_ROWS:,} distinct rows"


def _apply(rows: CurrentRows, batches: list[tuple[int, list[Row]]]) -> None:
    for tick, changes in batches:
        for change in changes:
            rows.change(change[:-1], change[-1], tick)


# --- rows read back from files of sinks ---------------------------------------------


MAX_LETTERS = 200
_MAX_LETTER_FILES = 50


@singledispatch
def changes_of_tick(sink: object, tick: int, schema: Schema) -> Iterator[list[Row]]:
    """Yield the published changes of a tick, weight last; nothing if the sink is not a changelog."""
    return iter(())


@changes_of_tick.register
def _(sink: Changelog, tick: int, schema: Schema) -> Iterator[list[Row]]:
    # Only with Spark, and arrow takes time to load.
    from headrace.io.arrow import read_part

    folder = tick_folders(sink.path).folder(tick)
    for file in sorted(folder.glob("*.parquet")):
        yield read_part(file, schema)


@changes_of_tick.register
def _(sink: CsvChangelog, tick: int, schema: Schema) -> Iterator[list[Row]]:
    folder = tick_folders(sink.path).folder(tick)
    if not any(folder.glob("*.csv")):
        return
    form = sink.dialect
    files = CsvFiles(
        folder, sep=form.sep, quote=form.quote, escape=form.escape, encoding=form.encoding,
        header=form.header, null=form.null,
    )  # fmt: skip
    reader = open_source(files, Feed("changes", schema, append=False))
    try:
        while (batch := reader.read(None)) is not None:
            yield batch.rows
    finally:
        reader.close()


def current_rows(sink: TableFiles, schema: Schema, search: str, offset: int) -> JsonObject:
    """Return a page of the newest published version of a table, as `ViewRows.page` does."""
    from headrace.io.arrow import read_part

    version = Path(os.path.realpath(Path(sink.path, "current")))
    tick = version.name.rpartition("=")[2]
    view = ViewRows(schema)
    count = 0
    for file in sorted(version.glob("*.parquet")):
        rows = read_part(file, schema, weighted=False)
        view.add(int(tick), [(*row, 1) for row in rows])
        count += len(rows)
        if count > MAX_ROWS:
            break
    return view.page(search, offset)


def why_rows_are_elsewhere(sink: object) -> str:
    """Return why the rows of a sink of a run on Spark cannot be shown; empty if they can."""
    if isinstance(sink, Print | Changelog | TableFiles):
        return ""
    return f"Spark's tasks write {type(sink).__name__} themselves. Look at its rows where they are written."


def latest_dead_letters(source: str, folder: Path) -> JsonObject:
    """Read the newest rows set aside for a source, at most `MAX_LETTERS`, newest tick first."""
    files = sorted(folder.glob(f"tick=*-{_literal(quote(source, safe=''))}.jsonl"), key=_tick, reverse=True)
    rows: list[JsonObject] = []
    for file in files[:_MAX_LETTER_FILES]:
        try:
            with file.open(encoding="utf-8") as lines:
                some = islice(lines, MAX_LETTERS - len(rows))
                rows += [{"tick": _tick(file), **json.loads(line)} for line in some]
        except (OSError, ValueError) as error:
            rows.append({"tick": _tick(file), "reason": f"{file.name} cannot be read: {error}"})
        if len(rows) >= MAX_LETTERS:
            break
    return {"folder": str(folder), "files": len(files), "rows": rows}


def _literal(name: str) -> str:
    return name.replace("[", "[[]")


def _tick(file: Path) -> int:
    number = file.name.partition("=")[2].partition("-")[0]
    return int(number) if number.isdecimal() else 0
