"""Start of a tick in a task: conversion of tagged-union rows to rows of each source.

    tag int, path string, place bigint, row_0 struct<...>, ...

`tag` is the number of the source. A source whose input the driver finds sends locations (paths of files,
versions of a table), which are read here by the readers of `headrace.io`: so a file means the same on both
engines, errors and dead letters included. Any other DataFrame sends its rows, in the column of its tag. Below
0 there is nothing to read: an `ENDED` row says by its path which operator is to hear that its sources have
ended.

The rows of a source have an order: of locations that of their places, of a DataFrame that in which Spark
hands out its partitions.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import BadRow
from headrace.expr.types import Rows
from headrace.io.arrow import table_to_rows
from headrace.io.change_data import ChangeData
from headrace.io.files.file_reader import ColumnMismatch, open_format, read_columns, read_rows
from headrace.io.files.file_source import Files
from headrace.io.source import BadRecord, Feed, open_source
from headrace.spark.sources.arrivals import decoded_location, part_at, read_batch
from headrace.spark.ticks.plan import Input
from headrace.state.codec import decode

_compute: Any = pc
ENDED = -2
_BATCHES_OF_A_PARTITION = 1 << 23
_ROWS_GATHERED = 200_000
"""Number of rows of a source that are enough to be run together."""

Tagged: TypeAlias = tuple[int, str | None, int | None]
"""Row of the tagged union without a row of a DataFrame: tag, path, place."""

_TAGGED = pa.schema([("tag", pa.int32()), ("path", pa.string()), ("place", pa.int64())])


@dataclass(frozen=True, slots=True)
class Spooled:
    """Python rows, in files that the driver wrote, one per batch."""


@dataclass(frozen=True, slots=True)
class SpooledTimes:
    """Python rows of several times, spooled by the driver; a file holds pairs of time number and rows."""


@dataclass(slots=True)
class Taken:
    """Input read by a task so far: row counts per source, rows set aside, and columns that were widened."""

    rows: dict[str, int] = field(default_factory=dict[str, int])
    bad: list[tuple[str, BadRecord]] = field(default_factory=list[tuple[str, BadRecord]])
    widened: set[ColumnMismatch] = field(default_factory=set[ColumnMismatch])


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Rows for a source, or an end notification for an operator.

    place: position in the source's order. checked: whether each value is known to be as declared.
    """

    name: str
    place: int
    rows: Rows | pa.Table
    checked: bool = False


def tagged_batch(rows: Sequence[Tagged]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    arrays = [pa.array(list(column), f.type) for column, f in zip(columns, _TAGGED, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_TAGGED)


def tagged_rows(tag: int, rows: pa.StructArray) -> pa.RecordBatch:
    """Return rows of a source in the form of the tagged union, with the column of this source alone."""
    count = len(rows)
    tags, paths = pa.array([tag] * count, pa.int32()), pa.nulls(count, pa.string())
    columns = [tags, paths, pa.nulls(count, pa.int64()), rows]
    return pa.RecordBatch.from_arrays(columns, names=[*_TAGGED.names, f"row_{tag}"])


def read_inputs(
    batches: Iterable[pa.RecordBatch],
    inputs: tuple[Input, ...],
    taken: Taken,
    partition: int = 0,
    columns: Container[str] = (),
    gathered: Container[str] = (),
) -> Iterator[FilePiece]:
    """Read a task's input, one file or batch at a time.

    columns: sources whose rows stay in columns if they arrive in columns. gathered: those of these whose
    batches are read together, since their rows are summed up.

    Raises `BadRow` and `UnreadableSource`.
    """
    waiting: dict[int, list[FilePiece]] = {}
    for number, batch in enumerate(batches):
        tags = batch.column("tag").to_pylist()
        paths = batch.column("path").to_pylist()
        places = batch.column("place").to_pylist()
        for tag, path, place in zip(tags, paths, places, strict=True):
            if tag == ENDED:
                yield FilePiece(path, 0, [(True,)])
            elif tag >= 0 and path is not None:
                location, table = decoded_location(path), None
                if inputs[tag].name in columns:
                    table = read_table(inputs[tag].reading, location, inputs[tag], taken)
                if table is not None:
                    yield replace(_counted(inputs[tag], place, table, taken), checked=True)
                    continue
                for at, rows in _placed(inputs[tag], location, place, taken):
                    yield _counted(inputs[tag], at, rows, taken)
        for tag in sorted(set(tags)):
            if tag < 0 or inputs[tag].reading is not None:
                continue
            rows = table = _frame_table(batch, tag, inputs[tag])
            if inputs[tag].name not in columns:
                rows = table_to_rows(table, inputs[tag].schema, weighted=not inputs[tag].append)
            piece = _counted(inputs[tag], partition * _BATCHES_OF_A_PARTITION + number, rows, taken)
            if piece.name not in gathered:
                yield piece
                continue
            waiting.setdefault(tag, []).append(piece)
            if sum(len(each.rows) for each in waiting[tag]) >= _ROWS_GATHERED:
                yield _together(waiting.pop(tag))
    yield from map(_together, waiting.values())


def _together(pieces: list[FilePiece]) -> FilePiece:
    tables: Any = [piece.rows for piece in pieces]
    return FilePiece(pieces[0].name, pieces[0].place, pa.concat_tables(tables))


def _placed(source: Input, location: str, place: int, taken: Taken) -> Iterator[tuple[int, Rows]]:
    if isinstance(source.reading, SpooledTimes):
        yield from ((at, list(rows)) for at, rows in decode(Path(location).read_bytes()))
        return
    yield place, read_file(source.reading, location, source, taken)


def _counted(source: Input, place: int, rows: Rows | pa.Table, taken: Taken) -> FilePiece:
    taken.rows[source.name] = taken.rows.get(source.name, 0) + len(rows)
    return FilePiece(source.name, place, rows)


@singledispatch
def read_file(reading: object, location: str, source: Input, taken: Taken) -> Rows:
    """Read all rows at one location of a source."""
    raise NotImplementedError(type(reading))


@read_file.register
def _(reading: Files, location: str, source: Input, taken: Taken) -> Rows:
    path, part = part_at(location)
    feed = Feed(source.name, source.schema, append=source.append, live=source.live)
    file_format = open_format(reading, feed)
    batch = read_rows(file_format, path, part, set_aside=reading.dead_letter is not None)
    taken.widened.update(file_format.widened.values())
    taken.bad.extend((source.name, record) for record in batch.bad)
    return batch.rows


@singledispatch
def read_table(reading: object, location: str, source: Input, taken: Taken) -> pa.Table | None:
    """Read one location of a source into columns; None if it has no columnar form.

    Raises `BadRow` and `UnreadableSource`.
    """
    return None


@read_table.register
def _(reading: Files, location: str, source: Input, taken: Taken) -> pa.Table | None:
    path, part = part_at(location)
    feed = Feed(source.name, source.schema, append=source.append, live=source.live)
    set_aside = reading.dead_letter is not None
    file_format = open_format(reading, feed)
    table, bad = read_columns(file_format, path, part, set_aside=set_aside)
    taken.widened.update(file_format.widened.values())
    taken.bad.extend((source.name, record) for record in bad)
    return table


def _rows_of_file(file: Files | ChangeData, source: Input, taken: Taken) -> Rows:
    feed = Feed(source.name, source.schema, append=source.append, live=source.live)
    reader = open_source(file, feed)
    try:
        batch = reader.read(None)
    finally:
        reader.close()
    if batch is None:
        return []
    taken.bad.extend((source.name, record) for record in batch.bad)
    return batch.rows


@read_file.register
def _(reading: ChangeData, location: str, source: Input, taken: Taken) -> Rows:
    return _rows_of_file(reading.of(replace(reading.records, path=location)), source, taken)


@read_file.register
def _(reading: Spooled, location: str, source: Input, taken: Taken) -> Rows:
    return read_batch(Path(location))


def _frame_table(batch: pa.RecordBatch, tag: int, source: Input) -> pa.Table:
    column = batch.column(f"row_{tag}")
    mine = _compute.equal(batch.column("tag"), tag)
    struct = column.filter(mine)
    if not struct.type.num_fields:
        # A table without columns would not know how many rows it has.
        return pa.table({"": pa.nulls(len(struct))})
    table = pa.Table.from_arrays(struct.flatten(), names=[f.name for f in struct.type])
    for f in source.schema.fields:
        if not f.nullable and table.column(f.name).null_count:
            at = table.column(f.name).is_null().to_pylist().index(True)
            raise BadRow(
                f"source {source.name!r}: column {f.name!r} of its DataFrame is null",
                why=f"the flow declares {f}; the row is {table.slice(at, 1).to_pylist()[0]!r}.",
                fix=f"declare the column as nullable ({f.name}: ... | None), or filter such rows out",
                source=source.name,
                column=f.name,
            )
    return table
