"""Changelog sink in CSV files: like `headrace.io.files.changelog`, with a header in each part.

`CsvFiles("out/tick=*/*.csv")` with the same options reads them back into a table source. CSV has one text for
null: the first null word, or an empty field. A text of a nullable column that equals it is read back as null.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.atomic_files import sync_file
from headrace.errors import BadInput, HeadraceError, UnwritableSink
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
from headrace.io.files.changelog import Changelog, ChangelogWriter
from headrace.io.files.csv_dialect import CsvDialect
from headrace.io.files.csv_files import CsvFiles
from headrace.io.sink import SinkRequest, Writer, open_sink
from headrace.io.source import WEIGHT, Feed, open_source, set_fields

if TYPE_CHECKING:
    import pyarrow as pa


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
