"""Changelog sinks: every change of every tick, as Parquet files or CSV files.

    <path>/tick=1/part-*.parquet             columns of the stream, then `weight` (int64)
    <path>/tick=2/part-*.parquet
    <path>/_staging/...                      unpublished ticks

A tick's folder appears atomically, by a rename. Ticks without changes have none. The tick is only in the
folder's name (a column of that name in the files would clash): Spark, DuckDB, Polars and pyarrow all convert
it to an integer column `tick` ("hive partitioning"):

    duckdb   select * from read_parquet('out/tick=*/*.parquet', hive_partitioning = true)
    Polars   pl.scan_parquet("out/tick=*/*.parquet", hive_partitioning=True)
    Spark    spark.read.parquet("out")

The current rows are those whose weights add up to more than 0. With `compact_after`, the folders of old ticks
are merged (`headrace.io.files.compaction`).

**For tasks that write in parallel**: each calls `stage_part(...)` with a unique name (such as the numbers of
shard and attempt) and reports the name; then one process calls `assemble(path, tick, names)` before the
commit and `publish` after it. `recover` discards staged parts that were not assembled.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import BadInput, HeadraceError, SourceLocation, UnwritableSink
from headrace.expr.expression_errors import explains_calls
from headrace.expr.functions import intervals
from headrace.expr.types import (
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    FloatingType,
    IntegerType,
    IntervalType,
    Schema,
    StrType,
    TimestampNtzType,
    TimestampType,
    with_article,
)
from headrace.file_system import FolderLock, local_path, remove_empty, remove_folder, sync_file, sync_folder
from headrace.io.files.compaction import Compactor, aside, check_can_compact
from headrace.io.files.csv_dialect import CsvDialect
from headrace.io.files.csv_files import CsvFiles
from headrace.io.sink import (
    Contents,
    ReadableWriter,
    SinkRequest,
    SinkTarget,
    Writer,
    open_sink,
    other_rows,
    refuse_later_ticks,
    refuse_mid_run_start,
)
from headrace.io.source import WEIGHT, Feed, Guarantee, open_source, refuse_untyped, set_fields
from headrace.tables.version_folders import STAGING, TICK, VersionFolders, tick_folders

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Changelog(SinkTarget):
    """Sink with all changes, one folder per tick, exactly once with a checkpoint.

    path:          created if missing.
    compact_after: number of the latest ticks whose folders stay as they are. Older ones are merged now and
                   then into a few folders with the rows that they add up to. None: all ticks stay.
    """

    guarantee: ClassVar[Guarantee] = Guarantee(
        "exactly once",
        "a tick's folder appears by one rename, and a run that resumes skips existing ones",
    )
    ending: ClassVar[str] = ".parquet"
    """Ending of the names of its files."""
    path: str
    compact_after: int | None = None

    @explains_calls()
    def __init__(self, path: str | os.PathLike[str], compact_after: int | None = None) -> None:
        if compact_after is not None and compact_after < 1:
            raise BadInput(
                f"compact_after is {compact_after}",
                where=[SourceLocation.of_caller()],
                why="The last tick has a folder of its own.",
                fix="give 1 or more, or leave it out to keep the folders of all ticks",
            )
        set_fields(self, path=local_path(path, type(self).__name__), compact_after=compact_after)

    @property
    def destination(self) -> Hashable:
        return "files", os.path.realpath(self.path)

    def write(
        self, file: Path, rows: Sequence[tuple[Any, ...]] | pa.Table, schema: Schema, *, durable: bool
    ) -> None:
        """Write changes, weight last, to a new file."""
        _write_parquet(file, rows, schema, durable=durable)

    def read(self, file: Path, schema: Schema) -> list[tuple[Any, ...]]:
        """Read a file that `write` made. Raises `ValueError` unless its rows are of this schema."""
        from headrace.io.arrow import read_known_part

        return read_known_part(file, schema)


def _write_parquet(
    file: Path, rows: Sequence[tuple[Any, ...]] | pa.Table, schema: Schema, *, durable: bool
) -> None:
    from headrace.io.arrow import write_part

    write_part(file, rows, schema, weighted=True, durable=durable)


def check_columns(sink: str, schema: Schema) -> None:
    """Raise `BadInput` if a stream column has the name of a column that the changelog adds."""
    for name in (WEIGHT, TICK):
        if schema.position(name) is not None:
            raise BadInput(
                f"sink {sink!r}: column {name!r} is reserved in a changelog",
                why="the changelog adds it itself: each row's weight and tick",
                fix=f"rename the column in a select before the sink: `.select(..., other_name=col.{name})`",
                sink=sink,
                column=name,
            )


# --- in parallel tasks ---------------------------------------------------------------


def stage_part(
    path: str | os.PathLike[str],
    tick: int,
    name: str,
    rows: Sequence[tuple[Any, ...]] | pa.Table,
    schema: Schema,
    *,
    durable: bool = True,
    write: Callable[..., None] = _write_parquet,
) -> str:
    """Write changes, weight last, to the staging folder; return the part's name for `assemble`.

    `name` is unique among the tasks and attempts of this tick, and has the ending of the files of `write`.
    """
    folder = Path(path, STAGING, "parts")
    folder.mkdir(parents=True, exist_ok=True)
    staged = f"part-{tick}-{name}"
    write(folder / staged, rows, schema, durable=durable)
    return staged


def assemble(path: str | os.PathLike[str], tick: int, names: Iterable[str], *, durable: bool = True) -> None:
    """Assemble the unpublished folder of a tick from exactly these parts. Idempotent.

    Raises `FileNotFoundError` if a part is missing.
    """
    staging, folder = Path(path, STAGING), assembled(path, tick)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = set(names)
    present = set(os.listdir(folder))
    # Check first, because a superseded driver finds its parts gone, and must not touch its successor's files.
    for name in wanted - present:
        os.rename(staging / "parts" / name, folder / name)
    for name in present - wanted:  # left by a failed attempt
        (folder / name).unlink()
    if durable:
        sync_folder(folder)
        sync_folder(staging)


def assembled(path: str | os.PathLike[str], tick: int) -> Path:
    """Return the path of a tick's assembled, unpublished folder."""
    return tick_folders(Path(path, STAGING)).folder(tick)


def publish(path: str | os.PathLike[str], tick: int, *, durable: bool = True) -> None:
    """Publish an assembled tick. Does nothing if the tick is already published or had no changes."""
    folder, ticks = assembled(path, tick), tick_folders(path)
    if ticks.folder(tick).is_dir():
        remove_folder(folder)
    elif folder.is_dir():
        ticks.publish(tick, folder, durable=durable)


def recover(path: str | os.PathLike[str], tick: int, *, durable: bool = True) -> None:
    """Publish the committed `tick` if a crash left it assembled, and delete everything else unpublished."""
    publish(path, tick, durable=durable)
    remove_folder(Path(path, STAGING))
    remove_folder(aside(Path(path)))


# --- in one process ------------------------------------------------------------------


class ChangelogWriter(ReadableWriter):
    """Sink writer of a changelog in a single process."""

    def __init__(self, target: Changelog, request: SinkRequest) -> None:
        check_columns(request.name, request.schema)
        self._target = target
        self._path = Path(target.path)
        self._compact_after = target.compact_after
        self._request = request
        self._lock: FolderLock | None = None
        self._compactor: Compactor | None = None
        self._prepared = 0

    def recover(self, tick: int) -> None:
        name, durable = self._request.name, self._request.durable
        refuse_mid_run_start(name, self._path, tick, self._path.is_dir())
        self._path.mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock.take(Path(os.path.realpath(self._path)))
        if self._lock is None:
            raise BadInput(
                f"sink {name!r}: {self._path} is being compacted",
                why="A compaction replaces the folder, and a tick written now would be lost.",
                fix="wait until it ends",
                sink=name,
                path=str(self._path),
            )
        refuse_later_ticks(name, self._path, tick_folders(self._path).latest() or 0, tick)
        recover(self._path, tick, durable=durable)
        if self._compact_after is not None:
            check_can_compact(self._lock)
            # A rewind returns to a tick between two folders.
            keep = max(self._compact_after, self._request.keep_ticks - 1)
            self._compactor = Compactor(self._lock, keep, durable=durable)

    def prepare(self, tick: int, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            part = stage_part(
                self._path,
                tick,
                f"0{self._target.ending}",
                rows,
                self._request.schema,
                durable=self._request.durable,
                write=self._target.write,
            )
            self.assemble(tick, [part])

    def assemble(self, tick: int, names: Iterable[str]) -> None:
        if tick_folders(self._path).folder(tick).is_dir():
            # Another run has begun to write there since. Its tick would be taken for this one, which is lost.
            refuse_later_ticks(self._request.name, self._path, tick, tick - 1)
        assemble(self._path, tick, names, durable=self._request.durable)
        self._prepared = tick

    def publish(self, tick: int) -> None:
        publish(self._path, tick, durable=self._request.durable)
        if self._compactor is not None:
            if self._prepared == tick:
                self._compactor.published(tick)
            self._compactor.compact_if_due(tick)

    def contents(self) -> Contents | None:
        ticks = tick_folders(self._path)
        return Contents(ticks.latest() or 0, self._rows(ticks)) if self._path.is_dir() else None

    def _rows(self, ticks: VersionFolders) -> Iterator[tuple[Any, ...]]:
        for file in (f for tick in ticks.numbers() for f in sorted(ticks.folder(tick).iterdir())):
            if file.name.startswith((".", "_")):
                continue
            try:
                if file.suffix != self._target.ending:
                    raise ValueError(f"It is no {self._target.ending} file.")
                yield from self._target.read(file, self._request.schema)
            except ValueError as error:
                raise other_rows(self._request.name, file, str(error)) from error

    def close(self) -> None:
        # With a checkpoint, a committed but unpublished tick stays there for `recover`.
        if self._request.durable:
            remove_empty(self._path / STAGING / "parts", self._path / STAGING)
        else:
            remove_folder(self._path / STAGING)
        if self._compactor is not None:
            self._compactor.close()
        if self._lock is not None:
            self._lock.release()


@open_sink.register
def _(sink: Changelog, request: SinkRequest) -> Writer:
    refuse_untyped(request.schema, f"sink {request.name!r}, a changelog")
    return ChangelogWriter(sink, request)


# --- CSV files, with a header each ----------------------------------------------------------------

# `CsvFiles("out/tick=*/*.csv")` with the same options reads them back into a table source. CSV has one text
# for null: the first null word, or an empty field. A text of a nullable column that equals it is read back
# as null.


@dataclass(frozen=True, init=False)
class CsvChangelog(Changelog):
    """Sink with all changes as CSV files, one folder per tick, exactly once with a checkpoint.

    path:    created if missing.
    dialect: form of the files: `CsvChangelog("out", CsvDialect(sep=";", encoding="cp1252"))`.
    """

    ending: ClassVar[str] = ".csv"
    dialect: CsvDialect

    def __init__(self, path: str | os.PathLike[str], dialect: CsvDialect | None = None) -> None:
        super().__init__(path)
        set_fields(self, dialect=dialect or CsvDialect())

    def write(
        self, file: Path, rows: Sequence[tuple[Any, ...]] | pa.Table, schema: Schema, *, durable: bool
    ) -> None:
        if not isinstance(rows, Sequence):
            from headrace.io.arrow import table_to_rows

            rows = table_to_rows(rows, schema, weighted=True)
        null = self.dialect.null[0] if self.dialect.null else ""
        to_text = [text_of(f.type) for f in schema.fields]
        try:
            with file.open("w", encoding=self.dialect.encoding, newline="") as out:
                write = self.dialect.writer(out)
                if self.dialect.header:
                    write.writerow([*schema.names, WEIGHT])
                for *values, weight in rows:
                    texts = [null if v is None else text(v) for text, v in zip(to_text, values, strict=True)]
                    write.writerow([*texts, str(weight)])
        except (UnicodeError, csv.Error) as error:
            raise UnwritableSink(
                f"{self.path} cannot hold a row as CSV",
                why=str(error),
                fix="use the encoding utf-8, and a quote or an escape",
                path=self.path,
            ) from error
        if durable:
            sync_file(file)

    def read(self, file: Path, schema: Schema) -> list[tuple[Any, ...]]:
        form = {name: getattr(self.dialect, name) for name in CsvDialect.__slots__}
        wanted = [*schema.names, WEIGHT]
        try:
            first = next(self.dialect.reader([file.read_text(self.dialect.encoding).encode()]), [])
            if self.dialect.header and first != wanted:
                raise ValueError(f"it has {', '.join(first)}; the sink has {', '.join(wanted)}")
            with closing(
                open_source(CsvFiles(file, **form), Feed("changes", schema, append=False))
            ) as reader:
                batch = reader.read(None)
        except csv.Error as error:
            raise ValueError(str(error)) from error
        except HeadraceError as error:
            raise ValueError(error.why or error.what) from error
        return [] if batch is None else batch.rows


@singledispatch
def text_of(data_type: DataType) -> Callable[[Any], str]:
    """Build the inverse of `text_values.parser_of`. Raises TypeError for types without a text form."""
    raise TypeError(f"{data_type} cannot be written as text")


@text_of.register(IntegerType)
@text_of.register(StrType)
@text_of.register(DateType)
def _(data_type: DataType) -> Callable[[Any], str]:
    return str


@text_of.register
def _(data_type: BoolType) -> Callable[[Any], str]:
    return lambda value: "true" if value else "false"


@text_of.register
def _(data_type: FloatingType) -> Callable[[Any], str]:
    spelled = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return lambda value: spelled.get(repr(value)) or repr(value)


@text_of.register
def _(data_type: DecimalType) -> Callable[[Any], str]:
    return lambda value: f"{value:f}"


@text_of.register
def _(data_type: BytesType) -> Callable[[Any], str]:
    return lambda value: value.decode()


@text_of.register
def _(data_type: TimestampType) -> Callable[[Any], str]:
    return lambda value: value.replace(tzinfo=None).isoformat(" ") + "Z"


@text_of.register
def _(data_type: IntervalType) -> Callable[[Any], str]:
    return intervals.writer_of(data_type)


@text_of.register
def _(data_type: TimestampNtzType) -> Callable[[Any], str]:
    return lambda value: value.isoformat(" ")


@open_sink.register
def _(sink: CsvChangelog, request: SinkRequest) -> Writer:
    for field in request.schema.fields:
        try:
            text_of(field.type)
        except TypeError:
            raise BadInput(
                f"sink {request.name!r}: column {field.name!r} is {with_article(field.type)}, "
                "which CSV cannot hold",
                fix="write a changelog (Parquet), or the column as text with a select before the sink",
                sink=request.name,
                column=field.name,
            ) from None
    return ChangelogWriter(sink, request)
