"""Change data capture (CDC): sources that turn database change records into weighted rows.

A CDC record carries the row before the change, the row after it, and the operation. These classes wrap a
source of files of such records (or a Spark `Frame`) into a source for `flow.table`. An update becomes two
rows in the same tick, the old one with weight -1 and the new one with weight 1, if one record has both.

Retractions need the whole old row. Configure the database to log full old rows for updates and deletions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, ClassVar, Self, TypeAlias, cast

from headrace.errors import BadInput
from headrace.expr.row_classes import Unavailable
from headrace.expr.types import STR, DataType, Field, Row, Schema, StructType
from headrace.io.files.file_source import Files
from headrace.io.files.text_values import (
    EPOCH_UNITS,
    EpochUnit,
    UnfitValue,
    epoch_row_restorer,
    shortened,
    unfit,
    with_integer_times,
)
from headrace.io.source import Feed, Reader, Source, dead_letter_folder, open_source, set_fields

DecodeRecord: TypeAlias = Callable[[Row | None], list[Row]]
Join: TypeAlias = Callable[[Iterator[Any], str], Iterator[Any]]
UNAVAILABLE = "__debezium_unavailable_value"
"""Placeholder of a connector, unless it is told another."""
_ENVELOPE = ("before", "after", "op", "payload")


@dataclass(frozen=True)
class ChangeData(Source):
    """Base class of change data sources. records: `JsonFiles(...)` or other files; a `Frame(df)` on Spark."""

    by_key: ClassVar[bool] = False
    """Whether it gives records of a table with a key, not rows with weights."""
    records: Any

    def of(self, records: Any) -> Self:
        """Return a copy that reads other records."""
        made = copy(self)
        set_fields(made, records=records)
        return made


@dataclass(frozen=True, init=False)
class Operations(ChangeData):
    """Change source of flat records with an operation column: `Operations(CsvFiles("in"), "op", "I", "D")`.

    column: name of the operation column, which holds text.
    insert: words for an insertion, one or several.
    delete: words for a deletion. ignore: words of records to skip.

    A record with any other word, or none, is unreadable. Raises `BadInput` for a word with two meanings.
    """

    column: str
    insert: tuple[str, ...]
    delete: tuple[str, ...]
    ignore: tuple[str, ...]

    def __init__(
        self,
        records: Any,
        column: str,
        insert: str | Iterable[str],
        delete: str | Iterable[str],
        ignore: str | Iterable[str] = (),
    ) -> None:
        words = [_words(insert), _words(delete), _words(ignore)]
        twice = [word for word in {w for part in words for w in part} if sum(word in p for p in words) > 1]
        if twice:
            raise BadInput(
                f"the operation {twice[0]!r} has two meanings", fix="name it in one of insert, delete, ignore"
            )
        inserts, deletes, ignored = words
        set_fields(self, records=records, column=column, insert=inserts, delete=deletes, ignore=ignored)


def _words(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


@dataclass(frozen=True, init=False)
class DeltaChanges(Operations):
    """Source of an exported Delta change data feed: `DeltaChanges(ParquetFiles("in"))`.

    Records have a `_change_type`. `DeltaRows` reads a table's own feed, without an export.
    """

    def __init__(self, records: Any) -> None:
        super().__init__(
            records, "_change_type", ("insert", "update_postimage"), ("delete", "update_preimage")
        )


@dataclass(frozen=True, init=False)
class Debezium(ChangeData):
    """Source of Debezium envelopes: `Debezium(JsonFiles("in"))`.

    Envelopes have the fields `before`, `after` and `op`, at the top level or under `payload`.

    epoch: unit of timestamps, "millis", "micros" or "nanos", if times are integers since 1970 (dates in
           days), as set by the connector's `time.precision.mode`. None: times as in other files of this kind.
    columns: columns of the rows that stand in the envelope, with their paths: `{"lsn": "source.lsn"}`. For
           tables with a key and a sequence only, since they are not known of the row before a change.

    unavailable: text in place of large values that an update did not change, as set by the connector's
           `unavailable.value.placeholder`; in its base64 for bytes, and as the only element of a list. The
           value of `before` stands for it, else, in a table with a key, that of the row held. Without
           either, the record is unreadable.

    c, r and u insert the row `after`; u and d delete the row `before`; m (a message) and a tombstone
    (null) are skipped. t (truncate) names no rows, so it is unreadable. Decimals must be written as text
    (`decimal.handling.mode=string`).
    """

    epoch: EpochUnit | None
    columns: tuple[tuple[str, str], ...]
    unavailable: str

    def __init__(
        self,
        records: Any,
        *,
        epoch: EpochUnit | None = None,
        columns: Mapping[str, str] | None = None,
        unavailable: str = UNAVAILABLE,
    ) -> None:
        if type(cast("object", unavailable)) is not str or not unavailable:
            raise BadInput(f"unavailable is {unavailable!r}", fix=f"give a text, such as {UNAVAILABLE!r}")
        if epoch is not None and epoch not in EPOCH_UNITS:
            raise BadInput(
                f"epoch is {epoch!r}", fix=f"give {', '.join(map(repr, EPOCH_UNITS))}, or leave it out"
            )
        given = tuple((columns or {}).items())
        for name, path in given:
            parts = path.split(".")
            within = any(other.startswith(f"{path}.") for _, other in given)
            if within or parts[0] in _ENVELOPE or not all(map(str.isidentifier, parts)):
                raise BadInput(
                    f"column {name!r} is to be found at {path!r} of an envelope",
                    fix='give the names of fields of the envelope: columns={"lsn": "source.lsn"}',
                )
        set_fields(self, records=records, epoch=epoch, columns=given, unavailable=unavailable)


@dataclass(frozen=True)
class Upserts(ChangeData):
    """Source of upserts, as in compacted topics: `Upserts(JsonFiles("in"))`, for tables with a key.

    A record has a `key`, an object with the columns of the key, and a `value`: the row that it sets, which
    may leave out the key's columns, or null, which deletes the row of the key. In a table with a sequence,
    the `key` of a record without a value has it, too.
    """


# --- schema and meaning of records --------------------------------------------------------


@singledispatch
def record_schema(source: ChangeData, rows: Schema) -> Schema:
    """Build the schema of change records from the schema of their rows."""
    raise NotImplementedError(type(source))


@singledispatch
def build_decoder(source: ChangeData, rows: Schema) -> DecodeRecord:
    """Build a decoder from internal records (None for a null record) to weighted rows.

    The decoder raises `UnfitValue`.
    """
    raise NotImplementedError(type(source))


@singledispatch
def build_joiner(source: ChangeData) -> Join | None:
    """Build a joiner of a file's decoded records (see `Feed.joined`); None if they are independent."""
    return None


@record_schema.register
def _(source: Operations, rows: Schema) -> Schema:
    if rows.position(source.column) is not None:
        return rows
    return Schema((*rows.fields, Field(source.column, STR, nullable=True)))


@record_schema.register
def _(source: Upserts, rows: Schema) -> Schema:
    known = StructType(tuple(replace(f, nullable=True) for f in rows.fields))
    return Schema((Field("key", known, nullable=True), Field("value", known, nullable=True)))


@build_decoder.register
def _(source: Operations, rows: Schema) -> DecodeRecord:
    weights = {
        **dict.fromkeys(source.insert, 1),
        **dict.fromkeys(source.delete, -1),
        **dict.fromkeys(source.ignore, 0),
    }
    at = record_schema(source, rows).names.index(source.column)
    width = len(rows.fields)
    known = ", ".join(map(repr, weights))

    def decode(record: Row | None) -> list[Row]:
        if record is None:
            raise unfit("a record", None)
        weight = weights.get(record[at])
        if weight is None:
            raise UnfitValue(f"{source.column}: {shortened(repr(record[at]))} is not one of {known}")
        return [(*record[:width], weight)] if weight else []

    return decode


def row_fields(source: Debezium, rows: Schema) -> tuple[Field, ...]:
    """Build the fields of the `before` and `after` images, with times in their written form."""
    if source.epoch is None:
        return rows.fields
    return tuple(replace(f, type=with_integer_times(f.type)) for f in rows.fields)


@record_schema.register
def _(source: Debezium, rows: Schema) -> Schema:
    image = StructType(row_fields(source, rows))
    types = {f.name: f.type for f in image.fields}
    beside = _nested_fields([(path.split("."), types[name]) for name, path in source.columns])
    envelope = (
        Field("before", image, nullable=True),
        Field("after", image, nullable=True),
        Field("op", STR, nullable=True),
        *beside,
    )
    return Schema((*envelope, Field("payload", StructType(envelope), nullable=True)))


def _nested_fields(paths: Sequence[tuple[list[str], DataType]]) -> tuple[Field, ...]:
    """Build nullable fields that hold values of these types at these paths."""
    below: dict[str, list[tuple[list[str], DataType]]] = {}
    for (first, *rest), type_ in paths:
        below.setdefault(first, []).append((rest, type_))
    return tuple(
        Field(name, found[0][1] if not found[0][0] else StructType(_nested_fields(found)), nullable=True)
        for name, found in below.items()
    )


def _value_at(fields: Sequence[Field], path: list[str]) -> Callable[[Row], Any]:
    """Build a function from a row of these fields to the value at a path; null if there is none."""
    at = next(number for number, f in enumerate(fields) if f.name == path[0])
    if len(path) == 1:
        return lambda row: row[at]
    below = fields[at].type
    assert isinstance(below, StructType)
    deeper = _value_at(below.fields, path[1:])
    return lambda row: None if row[at] is None else deeper(row[at])


OLD_ROWS = "the database must write whole old rows (PostgreSQL: REPLICA IDENTITY FULL)"
IMAGES: dict[str, tuple[bool, bool]] = {
    "c": (False, True),
    "r": (False, True),
    "u": (True, True),
    "d": (True, False),
    "m": (False, False),
}
"""Map from Debezium operations to whether each deletes `before` and whether it inserts `after`."""


def envelope_reader(source: Debezium, rows: Schema) -> Callable[[Row], tuple[str, Row | None, Row | None]]:
    """Build a function from an envelope to its operation and both images; it raises `UnfitValue`.

    What an image does not tell is marked as `Unavailable` does.
    """
    restore = epoch_row_restorer(rows.fields, source.epoch) if source.epoch else None
    given_marks, marks = Unavailable.of(rows.fields, source.unavailable), Unavailable.of(rows.fields)
    fields = record_schema(source, rows).fields
    beside = [(rows.names.index(name), _value_at(fields, path.split("."))) for name, path in source.columns]

    def image(found: Row | None, envelope: Row) -> Row | None:
        if found is not None:
            found = given_marks.mark(found, marks)
        if found is not None and beside:
            values = list(found)
            for at, value_of in beside:
                values[at] = value_of(envelope)
            found = tuple(values)
        return found if found is None or restore is None else restore(found)

    def read(record: Row) -> tuple[str, Row | None, Row | None]:
        envelope = record[-1] or record[:-1]
        before, after, op = envelope[:3]
        if op not in IMAGES:
            raise UnfitValue(f"op: {shortened(repr(op))} is not one of {', '.join(map(repr, IMAGES))}")
        goes, comes = image(before, envelope), image(after, envelope)
        # Of a row that is known by its key alone, all else is null.
        return op, goes, comes if goes is None else _filled(comes, goes, marks)

    return read


def _filled(after: Row | None, before: Row, marks: Unavailable) -> Row | None:
    """Fill in the unknown values of an image from the image before."""
    known = marks.marks if after is not None else ()
    return Unavailable(tuple(each for each in known if before[each[0]] is not None)).fill(after, before)


@build_decoder.register
def _(source: Debezium, rows: Schema) -> DecodeRecord:
    read, marks = envelope_reader(source, rows), Unavailable.of(rows.fields)

    def image(found: Row | None, name: str, op: str, weight: int) -> Row:
        if found is None:
            why = f"; {OLD_ROWS}" if weight < 0 else ""
            raise UnfitValue(f"{name}: it is null or missing, but op {op!r} needs it{why}")
        unknown = marks.names(found)
        if unknown:
            raise UnfitValue(
                f"{name}: {unknown[0]}: the record does not tell the value ({source.unavailable}), which "
                f"did not change; only a table with a key holds it, flow.table(..., key=...); else {OLD_ROWS}"
            )
        return (*found, weight)

    def decode(record: Row | None) -> list[Row]:
        if record is None:
            return []
        op, before, after = read(record)
        deletes, inserts = IMAGES[op]
        found = [image(before, "before", op, -1)] if deletes else []
        return [*found, image(after, "after", op, 1)] if inserts else found

    return decode


# --- opened --------------------------------------------------------------------------------


def refuse_rows_only(source: ChangeData, name: str, append: bool) -> None:
    """Raise `BadInput` if the flow's source is append-only, or the records are useless without a key."""
    if isinstance(source, Upserts):
        raise BadInput(
            f"source {name!r} gets upserts, and is no table with a key",
            why="They do not tell the rows that they replace and delete.",
            fix=f'declare it as flow.table("{name}", ..., key="id")',
            source=name,
        )
    if append and not source.by_key:
        raise BadInput(
            f"source {name!r} gets change data, but is append-only",
            why=f"{type(source).__name__} brings rows with weights, -1 for deletions.",
            fix=f'declare it as flow.table("{name}", ...)',
            source=name,
        )
    if isinstance(source, Debezium) and source.columns:
        raise BadInput(
            f"source {name!r} reads columns of envelopes, and is no table with a key",
            why="A row is taken back as it was, and of the row before a change those columns are not known.",
            fix=f'declare it as flow.table("{name}", ..., key="id", sequence="{source.columns[0][0]}")',
            source=name,
        )


@open_source.register
def _(source: ChangeData, feed: Feed) -> Reader:
    refuse_rows_only(source, feed.name, feed.append)
    if not isinstance(source.records, Files):
        raise BadInput(
            f"source {feed.name!r}: {type(source).__name__} cannot read {type(source.records).__name__}",
            fix=f"give {type(source).__name__}(JsonFiles(...)), CsvFiles or ParquetFiles; "
            "a Frame works only on Spark",
            source=feed.name,
        )
    feed.refuse_weight_column()
    records = replace(
        feed,
        schema=record_schema(source, feed.schema),
        append=True,
        decode=build_decoder(source, feed.schema),
        joined=build_joiner(source),
        live=None,
        placed=source.by_key,
    )
    return open_source(source.records, records)


@dead_letter_folder.register
def _(source: ChangeData) -> str | None:
    return dead_letter_folder(source.records)
