"""Rows of sinks that tasks on Spark write, read back from the sinks' files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.io.delivery.atomic_files import tick_folder
from penstock.io.files.changelog import Changelog
from penstock.io.files.table_files import TableFiles
from penstock.io.in_process import Print
from penstock.ui.live_rows import MAX_ROWS, LiveRows, Row

if TYPE_CHECKING:
    from penstock.expr.types import Schema
    from penstock.ui.page import Json


def changes_of_tick(sink: Changelog, tick: int, schema: Schema) -> Iterator[list[Row]]:
    """Yield the published changes of a tick, weight last, file by file."""
    # Only with Spark, and arrow takes time to load.
    from penstock.io.arrow import read_part

    folder = Path(sink.path, tick_folder(tick))
    for file in sorted(folder.glob("*.parquet")):
        yield read_part(file, schema)


def current_rows(sink: TableFiles, schema: Schema, search: str, offset: int) -> Json:
    """Return a page of the newest published version of a table, as `LiveRows.page` does."""
    from penstock.io.arrow import read_part

    version = Path(os.path.realpath(Path(sink.path, "current")))
    tick = version.name.rpartition("=")[2]
    view = LiveRows(schema)
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
