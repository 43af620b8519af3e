"""Change data: records that say what became of a row, as rows with weights.

A database that tells its changes writes records: the row as it was, the row
as it is, and what was done. Wrapped in one of these, a source of files (or on
Spark a `Frame`) of such records is a source for `flow.table`. An update is two
rows, the old one with weight -1 and the new one with 1; in one tick where one record tells both.

A record is no key: what goes must be named in full, so the database has to
write the old row of an update and of a deletion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, Self, TypeAlias

from penstock.errors import BadInput
from penstock.expr.types import STR, Field, Schema, StructType
from penstock.io.epoch import EPOCH_UNITS, EpochUnit, from_epoch, in_epoch
from penstock.io.files import Files
from penstock.io.source import Feed, Reader, Source, dead_letter_folder, open_source
from penstock.io.text_values import Unfit, shortened, unfit

Row: TypeAlias = tuple[Any, ...]
Decode: TypeAlias = Callable[[Row | None], list[Row]]


@dataclass(frozen=True)
class ChangeData(Source):
    """Base of the forms of change data. records: `JsonFiles(...)` or other files; a `Frame(df)` on Spark."""

    records: Any

    def of(self, records: Any) -> Self:
        """The same form of other records."""
        made = copy(self)
        object.__setattr__(made, "records", records)
        return made


@dataclass(frozen=True, init=False)
class Operations(ChangeData):
    """Flat records with a column that says what was done: `Operations(CsvFiles("in"), "op", "I", "D")`.

    column: its name; text.
    insert: the words that mean that the row comes, one or several.
    delete: those that mean that it goes. ignore: those of records to leave out.

    Any other word, and none, is a row that cannot be read. Raises `BadInput` for a word with two meanings.
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
        object.__setattr__(self, "records", records)
        object.__setattr__(self, "column", column)
        for name, part in zip(("insert", "delete", "ignore"), words):
            object.__setattr__(self, name, part)


def _words(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


@dataclass(frozen=True, init=False)
class DeltaChanges(Operations):
    """Records as a Delta change data feed has them, with `_change_type`: `DeltaChanges(ParquetFiles("in"))`.

    For a feed that somebody exported; `DeltaRows` reads the feed of a table itself.
    """

    def __init__(self, records: Any) -> None:
        super().__init__(
            records, "_change_type", ("insert", "update_postimage"), ("delete", "update_preimage")
        )


@dataclass(frozen=True, init=False)
class Debezium(ChangeData):
    """Debezium's envelopes, `before`, `after` and `op`, also under `payload`: `Debezium(JsonFiles("in"))`.

    epoch: times are whole numbers since 1970: dates in days, timestamps in "millis", "micros" or "nanos",
           as the connector's `time.precision.mode` says. None: as in other files of this kind.

    c, r and u bring the row `after`, u and d take back the row `before`; m (a message) and a
    tombstone (null) bring nothing. t (truncate) names no rows, so it cannot be read. Decimals must be
    written as text (`decimal.handling.mode=string`).
    """

    epoch: EpochUnit | None

    def __init__(self, records: Any, *, epoch: EpochUnit | None = None) -> None:
        if epoch is not None and epoch not in EPOCH_UNITS:
            raise BadInput(
                f"epoch is {epoch!r}", fix=f"give {', '.join(map(repr, EPOCH_UNITS))}, or leave it out"
            )
        object.__setattr__(self, "records", records)
        object.__setattr__(self, "epoch", epoch)


# --- what a record looks like, and what it means -----------------------------------------


@singledispatch
def record_schema(source: ChangeData, rows: Schema) -> Schema:
    """The columns of a record whose rows have the columns `rows`."""
    raise NotImplementedError(type(source))


@singledispatch
def decoder(source: ChangeData, rows: Schema) -> Decode:
    """What makes weighted rows of an internal record (None: a record that is null). It raises `Unfit`."""
    raise NotImplementedError(type(source))


@record_schema.register
def _(source: Operations, rows: Schema) -> Schema:
    if rows.position(source.column) is not None:
        return rows
    return Schema((*rows.fields, Field(source.column, STR, nullable=True)))


@decoder.register
def _(source: Operations, rows: Schema) -> Decode:
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
            raise Unfit(f"{source.column}: {shortened(repr(record[at]))} is none of {known}")
        return [(*record[:width], weight)] if weight else []

    return decode


def row_fields(source: Debezium, rows: Schema) -> tuple[Field, ...]:
    """The columns of `before` and `after`, times as they are written."""
    if source.epoch is None:
        return rows.fields
    return tuple(replace(f, type=in_epoch(f.type)) for f in rows.fields)


@record_schema.register
def _(source: Debezium, rows: Schema) -> Schema:
    image = StructType(row_fields(source, rows))
    envelope = (
        Field("before", image, nullable=True),
        Field("after", image, nullable=True),
        Field("op", STR, nullable=True),
    )
    return Schema((*envelope, Field("payload", StructType(envelope), nullable=True)))


_NOT_TOLD = "the database must write old rows whole (PostgreSQL: REPLICA IDENTITY FULL)"
IMAGES: dict[str, tuple[bool, bool]] = {
    "c": (False, True),
    "r": (False, True),
    "u": (True, True),
    "d": (True, False),
    "m": (False, False),
}
"""Per operation of Debezium: whether it takes back `before`, and whether it brings `after`."""


@decoder.register
def _(source: Debezium, rows: Schema) -> Decode:
    restore = from_epoch(rows.fields, source.epoch) if source.epoch else None

    def image(found: Row | None, name: str, op: str, weight: int) -> Row:
        if found is None:
            why = f"; {_NOT_TOLD}" if weight < 0 else ""
            raise Unfit(f"{name}: it is null or missing, and op {op!r} needs it{why}")
        return (*(found if restore is None else restore(found)), weight)

    def decode(record: Row | None) -> list[Row]:
        if record is None:
            return []
        before, after, op = record[3] or record[:3]
        if op not in IMAGES:
            raise Unfit(f"op: {shortened(repr(op))} is none of {', '.join(map(repr, IMAGES))}")
        goes, comes = IMAGES[op]
        found = [image(before, "before", op, -1)] if goes else []
        return [*found, image(after, "after", op, 1)] if comes else found

    return decode


# --- opened --------------------------------------------------------------------------------


def refuse_rows_only(source: ChangeData, name: str, append: bool) -> None:
    """Raises `BadInput` where the flow's source takes no row back."""
    if append:
        raise BadInput(
            f"source {name!r} is given change data, and takes no row back",
            why=f"{type(source).__name__} brings rows with weights, those that go with -1.",
            fix=f'declare it as flow.table("{name}", ...)',
            source=name,
        )


@open_source.register
def _(source: ChangeData, feed: Feed) -> Reader:
    refuse_rows_only(source, feed.name, feed.append)
    if not isinstance(source.records, Files):
        raise BadInput(
            f"source {feed.name!r}: {type(source).__name__} cannot read {type(source.records).__name__}",
            fix=f"give {type(source).__name__}(JsonFiles(...)), CsvFiles or ParquetFiles; "
            "a Frame is for Spark alone",
            source=feed.name,
        )
    feed.reserved()
    records = replace(
        feed,
        schema=record_schema(source, feed.schema),
        append=True,
        decode=decoder(source, feed.schema),
    )
    return open_source(source.records, records)


@dead_letter_folder.register
def _(source: ChangeData) -> str | None:
    return dead_letter_folder(source.records)
