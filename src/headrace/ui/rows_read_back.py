"""Rows of a run that its page reads back from files: of sinks that Spark's tasks write, and dead letters."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import singledispatch
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from headrace.expr.types import Schema
from headrace.io.files.changelog import Changelog, CsvChangelog
from headrace.io.files.csv_files import CsvFiles
from headrace.io.files.table_files import TableFiles
from headrace.io.in_process import Print
from headrace.io.source import Feed, open_source
from headrace.tables.version_folders import tick_folders
from headrace.ui.view_rows import MAX_ROWS, Row, ViewRows

if TYPE_CHECKING:
    from headrace.ui.page import Json

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


def current_rows(sink: TableFiles, schema: Schema, search: str, offset: int) -> Json:
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


def latest_dead_letters(source: str, folder: Path) -> Json:
    """Read the newest rows set aside for a source, at most `MAX_LETTERS`, newest tick first."""
    files = sorted(folder.glob(f"tick=*-{_literal(quote(source, safe=''))}.jsonl"), key=_tick, reverse=True)
    rows: list[Json] = []
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
