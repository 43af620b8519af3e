"""Sources on Spark as DataFrames of a common schema, so that their union is one query.

The common schema is that of `headrace.spark.ticks.intake`. Input that arrives over time is a streaming
DataFrame; input that is complete in the first tick is a static one.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial, singledispatch
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import BadInput, UnreadableSource, WrongType
from headrace.expr.spark_columns import null_within, quoted
from headrace.expr.types import Rows
from headrace.io import Rows as GivenRows
from headrace.io import Source
from headrace.io.arrow import arrow_schema
from headrace.io.change_data import ChangeData, refuse_rows_only
from headrace.io.delta import DeltaRows, check_delta, versions_of
from headrace.io.files.file_reader import open_format
from headrace.io.files.file_source import WHOLE, FilePart, Files, Listing, PendingFile
from headrace.io.in_process import ArrowTable, TickTime
from headrace.io.source import WEIGHT, Feed
from headrace.operators.endpoints import SourceOperator
from headrace.spark.placing.pushdown import NativeChain, apply_native_chain
from headrace.spark.sources.arrivals import (
    Arrivals,
    BatchArrivals,
    FileArrivals,
    FoundInput,
    Positions,
    TimeArrivals,
)
from headrace.spark.sources.tick_input import Located
from headrace.spark.ticks.intake import Spooled, Taken, read_file, tagged_rows
from headrace.spark.ticks.plan import Input

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

    from headrace.engine.engine import Engine
    from headrace.expr.types import Schema
    from headrace.io.versioned_tables import SourceVersions


# --- names of streaming sources -------------------------------------------------------------------

# Names let Spark add or remove sources of a query across restarts. Without them, it identifies sources by
# position and rejects a different number of them. Spark requires names for all sources or none, and a user's
# DataFrame has the name given by the user, if any. So a checkpoint has source names only if all of its
# sources are Headrace's own.


_SETTINGS = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}


_setting = RLock()
"""Lock of these settings: runs in several threads may share a session."""


@contextmanager
def named_sources_enabled(spark: SparkSession, named: bool) -> Iterator[None]:
    """Enable names for streaming sources and queries inside a block, and restore the setting afterwards."""
    if not named:
        yield
        return
    with _setting:
        before = {key: spark.conf.get(key, None) for key in _SETTINGS}
        for key, value in _SETTINGS.items():
            spark.conf.set(key, value)
        try:
            yield
        finally:
            for key, value in before.items():
                if value is None:
                    spark.conf.unset(key)
                else:
                    spark.conf.set(key, value)


def spark_name(source: str) -> str:
    """Return a name valid in Spark, unique for each source name."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", source)
    return source if plain == source else f"{plain}_{zlib.crc32(source.encode()):08x}"


_PART, _LEAST_PART = 1 << 24, 1 << 20
"""Bytes of a file that a task reads, if the file has several times as many: at most, and at least."""


@dataclass(frozen=True, eq=False)
class Frame(Source):
    """A DataFrame as a source: a streaming one, or a static one read in the first tick.

    every_run: a static one has new rows in each run: it is read in the first tick of every run, not only in
               the first one of a checkpoint. What was read before is for the caller to know.

    Its columns are found by name and must have the types that the flow declares;
    further columns are left out. For a table source a column `weight`, a long,
    is each row's weight; without it each row comes once.
    """

    frame: DataFrame
    every_run: bool = False


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """An opened source of a run.

    frame:    its rows, of a source that Spark reads.
    batch:    its rows, of a run without Spark, in the form of the union.
    located:  what the driver has found of a source that is read whole.
    static:   all of it comes with the first tick, or the first one of every run.
    arrivals: what the driver finds for one tick after another.
    """

    input: Input
    frame: DataFrame | None = None
    batch: pa.RecordBatch | None = None
    located: tuple[Located, ...] = ()
    static: bool = False
    every_run: bool = False
    arrivals: Arrivals | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """Parameters for opening a source on Spark.

    spark:   None for a run in this process.
    spool:   folder for given rows on their way to tasks.
    positions: how far the source was read, see `headrace.io.source`.
    resumed: whether the run resumes from a committed tick. read: whether earlier ticks have read this source.
    skip:    files to leave out, as absolute paths.
    native:  for a DataFrame, the source's node and those behind it that run natively on Spark.
    named:   whether streaming sources of this checkpoint have names.
    tasks:   number of tasks that run at a time.
    """

    spark: SparkSession | None
    engine: Engine
    name: str
    operator: SourceOperator
    tag: int
    spool: Path
    follow: bool
    positions: MutableMapping[Any, Any]
    resumed: bool = False
    read: bool = False
    skip: frozenset[str] = frozenset()
    native: NativeChain = ()
    named: bool = False
    tasks: int = 1

    @property
    def session(self) -> SparkSession:
        """Session by which a source is read. Raises `BadInput` in a run without one."""
        if self.spark is None:
            raise BadInput(
                f"source {self.name!r} is read by Spark, and the run is to be without it",
                fix='give it as ArrowTable(...), or leave out way="here"',
                source=self.name,
            )
        return self.spark

    def reader(self) -> DataStreamReader:
        """Return Spark's stream reader for this source."""
        reader = self.session.readStream
        return reader.name(spark_name(self.name)) if self.named else reader

    @property
    def append(self) -> bool:
        return self.engine.program.source_append[self.name]

    def input(self, reading: Any) -> Input:
        live = self.engine.columns_read(self.name)
        return Input(self.name, self.operator.schema, self.append, reading, live=live)


@singledispatch
def has_own_name(source: object) -> bool:
    """Return whether a source is a stream created elsewhere, which may already have a name."""
    return False


@has_own_name.register
def _(source: Frame) -> bool:
    return source.frame.isStreaming


@has_own_name.register
def _(source: ChangeData) -> bool:
    return has_own_name(source.records)


@singledispatch
def sends_rows(source: object) -> bool:
    """Return whether Spark reads a source itself, so that its rows arrive in a DataFrame."""
    return False


@singledispatch
def source_frame(source: object, opening: Opening, schema: Schema) -> DataFrame:
    """Return the DataFrame of a source read by Spark, with at least the columns of `schema`."""
    raise NotImplementedError(type(source))


@sends_rows.register
def _(source: Frame) -> bool:
    return True


@source_frame.register(Frame)
def _(source: Frame, opening: Opening, schema: Schema) -> DataFrame:
    return source.frame


@singledispatch
def open_on_spark(source: object, opening: Opening) -> OpenedSource:
    """Open a source as a DataFrame. Raises `BadInput` if it is no source, `UnreadableSource` if missing."""
    if sends_rows(source):
        return to_union_schema(source_frame(source, opening, opening.operator.schema), opening)
    raise BadInput(
        f"source {opening.name!r} is {type(source).__name__}, which is no source on Spark",
        fix="give JsonFiles(...), CsvFiles(...), ParquetFiles(...), Frame(dataframe), Rows(...) or rows",
        source=opening.name,
    )


@open_on_spark.register
def _(source: Files, opening: Opening) -> OpenedSource:
    return _open_files(source, source, opening)


@open_on_spark.register
def _(source: ChangeData, opening: Opening) -> OpenedSource:
    if isinstance(source.records, Files):
        refuse_rows_only(source, opening.name, opening.append)
        return _open_files(source.records, source, opening)
    return open_on_spark.dispatch(object)(source, opening)


def _open_files(files: Files, reading: Files | ChangeData, opening: Opening) -> OpenedSource:
    listing = Listing(opening.name, os.path.abspath(files.path), opening.skip)
    bounded = opening.operator.bounded
    divide, count = _division(reading, opening)
    found = FileArrivals(
        listing,
        opening.positions,
        None if bounded else files.files_per_tick,
        divide,
        count,
        may_be_none=opening.resumed or (opening.follow and not bounded),
    )
    return open_arrivals(opening, reading, found)


def _division(
    reading: Files | ChangeData, opening: Opening
) -> tuple[Callable[[PendingFile], list[FilePart]], Callable[[PendingFile, FilePart], int | None]]:
    """Return two functions: one splits a file into parts, one counts the rows of a part."""
    if not isinstance(reading, Files):
        return lambda file: [WHOLE], lambda file, part: None
    file_format = open_format(reading, Feed(opening.name, opening.operator.schema, append=opening.append))
    tasks = opening.tasks

    def parts(file: PendingFile) -> list[FilePart]:
        # What cannot be read here, a task will name.
        with suppress(OSError, EOFError, zlib.error, UnreadableSource):
            # Two for each task, so that tasks end at about the same time.
            size = max(_LEAST_PART, min(_PART, file.size // (2 * tasks)))
            if file.size >= 2 * size:
                return file_format.parts(Path(file.path), size)
        return [WHOLE]

    return parts, lambda file, part: file_format.count(Path(file.path), part)


def open_arrivals(opening: Opening, reading: Any, arrivals: Arrivals) -> OpenedSource:
    """Open a source whose input the driver discovers. A bounded one is read in full in the first tick.

    reading: how tasks read a location.
    """
    if opening.operator.bounded:
        found = [] if opening.read else arrivals.take_all()
        located = tuple((opening.tag, at, place) for place, at in enumerate(found))
        return OpenedSource(opening.input(reading), located=located, static=True)
    return OpenedSource(opening.input(reading), arrivals=arrivals)


@open_on_spark.register
def _(source: GivenRows, opening: Opening) -> OpenedSource:
    return _open_rows(source.batches, opening)


@open_on_spark.register(Iterable)
def _(source: Iterable[Any], opening: Opening) -> OpenedSource:
    return _open_rows([source], opening)


@open_on_spark.register
def _(source: TickTime, opening: Opening) -> OpenedSource:
    convert = partial(opening.engine.internal_rows, opening.name)
    times = TimeArrivals(source, convert, opening.spool, opening.positions, follow=opening.follow)
    return open_arrivals(opening, Spooled(), times)


def _open_rows(batches: Iterable[Iterable[Any]], opening: Opening) -> OpenedSource:
    convert = partial(opening.engine.internal_rows, opening.name)
    return open_arrivals(
        opening, Spooled(), BatchArrivals(batches, convert, opening.spool, opening.positions)
    )


@open_on_spark.register
def _(source: ArrowTable, opening: Opening) -> OpenedSource:
    import pyarrow as pa

    table, schema = source.table, arrow_schema(opening.operator.schema, weighted=not opening.append)
    if WEIGHT in schema.names and WEIGHT not in table.column_names:
        table = table.append_column(WEIGHT, pa.array([1] * len(table), pa.int64()))
    for wanted in schema:
        if wanted.name not in table.column_names or table.schema.field(wanted.name).type != wanted.type:
            there = wanted.name in table.column_names
            raise WrongType(
                f"source {opening.name!r}: its table has "
                + (
                    f"{wanted.name!r} as {table.schema.field(wanted.name).type}"
                    if there
                    else f"no column {wanted.name!r}"
                ),
                why=f"the flow declares it as {wanted.type}.",
                fix="cast the column, or change the row type of the flow's source",
                source=opening.name,
                column=wanted.name,
            )
    rows = table.select(schema.names).combine_chunks().to_struct_array()
    made = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    batch = tagged_rows(opening.tag, made)
    return OpenedSource(opening.input(None), batch=batch, static=True, every_run=True)


@open_on_spark.register
def _(source: Frame, opening: Opening) -> OpenedSource:
    return replace(to_union_schema(source.frame, opening), every_run=source.every_run)


def to_union_schema(found: DataFrame, opening: Opening) -> OpenedSource:
    """Convert a DataFrame to the schema of the union. Raises `WrongType` for columns that do not fit."""
    from pyspark.sql import functions as f

    checked = found.select(*_checked_columns(found, opening))
    made = apply_native_chain(checked, opening.native, weighted=not opening.append)
    row = f.struct(*(f.col(quoted(name)) for name in made.columns)).alias(f"row_{opening.tag}")
    tag, none = f.lit(opening.tag).alias("tag"), f.lit(None)
    frame = made.select(tag, none.cast("string").alias("path"), none.cast("long").alias("place"), row)
    sent = Input(opening.name, opening.native[-1].schema, opening.append, None)
    return OpenedSource(sent, frame, static=not found.isStreaming)


def _checked_columns(frame: DataFrame, opening: Opening) -> list[Any]:
    from pyspark.sql import functions as f

    from headrace.expr.spark_columns import spark_type

    found = {field.name: field.dataType for field in frame.schema.fields}
    columns: list[Any] = []
    for field in opening.operator.schema.fields:
        wanted = spark_type(field.type)
        there = found.get(field.name)
        if there is None or there.simpleString() != wanted.simpleString():
            raise WrongType(
                f"source {opening.name!r}: its DataFrame has "
                + (
                    f"no column {field.name!r}"
                    if there is None
                    else f"{field.name!r} as {there.simpleString()}"
                ),
                why=f"the flow declares {field}, which is {wanted.simpleString()} on Spark.",
                fix="select and cast in the DataFrame, or change the row type of the flow's source",
                source=opening.name,
                column=field.name,
            )
        column = f.col(quoted(field.name))
        if len(opening.native) > 1 and not field.nullable:
            column = _never_null(column, opening.name, field.name)
        inside = None if there == wanted else null_within(field.type, column)
        if inside is not None:
            message = (
                f"P201 BadRow: source {opening.name!r}: column {field.name!r} of its DataFrame holds a null"
            )
            column = f.when(inside, f.raise_error(f.lit(message))).otherwise(column)
        columns.append(column.alias(field.name))
    if not opening.append:
        given = WEIGHT in found
        weight = _never_null(f.col(WEIGHT), opening.name, WEIGHT) if given else f.lit(1)
        columns.append(weight.cast("long").alias(WEIGHT))
    return columns


def _never_null(column: Any, source: str, name: str) -> Any:
    # Where Spark goes on with the rows, a null must be found before; `ticks.errors` knows this text.
    from pyspark.sql import functions as f

    message = f"P201 BadRow: source {source!r}: column {name!r} of its DataFrame is null"
    return f.when(column.isNull(), f.raise_error(f.lit(message))).otherwise(column)


# --- the union ----------------------------------------------------------------------------


UnionShape: TypeAlias = "dict[str, Any]"


def union_columns(opened: Iterable[OpenedSource]) -> UnionShape:
    """Extra columns of the union, one per source read by Spark, with their types."""
    return {
        f"row_{tag}": source.frame.schema[f"row_{tag}"].dataType
        for tag, source in enumerate(opened)
        if source.frame is not None and source.input.reading is None
    }


def union_of(frames: Iterable[DataFrame], shape: UnionShape) -> DataFrame | None:
    """Return the union of the frames of all sources, or None without any."""
    from pyspark.sql import functions as f

    whole: DataFrame | None = None
    for frame in frames:
        missing = {name: f.lit(None).cast(kind) for name, kind in shape.items() if name not in frame.columns}
        filled = frame.withColumns(missing) if missing else frame
        same = filled.select("tag", "path", "place", *shape)
        whole = same if whole is None else whole.union(same)
    return whole


VERSION = "version"
_WHOLE, _CHANGES = "whole", "changes"


@dataclass(frozen=True, slots=True)
class VersionReading:
    """Reading of a location: all rows of a version, or the changes it made."""

    table: DeltaRows


class VersionArrivals(Arrivals):
    """Versions of a table, at most `per_tick` in a tick: the first one in full, later ones as changes."""

    def __init__(self, versions: SourceVersions, positions: Positions, per_tick: int | None) -> None:
        self._versions = versions
        self._positions = positions
        self._per_tick = per_tick
        self._newest = -1
        self.look()

    def look(self) -> None:
        newest = self._versions.newest()
        if newest != self._newest:
            self._newest, self.newest = newest, time.time()

    def take(self) -> list[FoundInput]:
        found: list[str] = []
        last: int | None = self._positions.get(VERSION)
        while self._per_tick is None or len(found) < self._per_tick:
            if last is None:
                last = self._versions.first()
                found.append(f"{_WHOLE}:{last}")
            elif last < self._newest:
                last += 1
                found.append(f"{_CHANGES}:{last}")
            else:
                break
        if found:
            self._positions[VERSION] = last
        return [*map(FoundInput, found)]

    def take_all(self) -> list[FoundInput]:
        # A bounded source is one version.
        return self.take()

    @property
    def waiting(self) -> int:
        last: int | None = self._positions.get(VERSION)
        return max(0, self._newest - (self._versions.first() - 1 if last is None else last))


@open_on_spark.register
def _(source: DeltaRows, opening: Opening) -> OpenedSource:
    check_delta(source, f"source {opening.name!r}", opening.operator.schema)
    feed = Feed(opening.name, opening.operator.schema, append=opening.append)
    feed.refuse_weight_column()
    versions = versions_of(source, feed)
    per_tick = 1 if opening.operator.bounded else source.versions_per_tick
    return open_arrivals(
        opening, VersionReading(source), VersionArrivals(versions, opening.positions, per_tick)
    )


@read_file.register
def _(reading: VersionReading, location: str, source: Input, taken: Taken) -> Rows:
    what, _, version = location.partition(":")
    versions = versions_of(reading.table, Feed(source.name, source.schema, append=source.append))
    return versions.rows(int(version)) if what == _WHOLE else versions.changes(int(version))
