"""Records of tables held by key: each sets or deletes the row of its key.

A source of a keyed table takes rows, which are set, and change data, of which neither rows before a change
nor more than the key of a deleted row are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import singledispatch
from itertools import chain, pairwise
from operator import itemgetter
from typing import Any, ClassVar

from headrace.errors import BadInput
from headrace.expr.row_classes import KeyedRows, Unavailable
from headrace.expr.types import INT64, Field, Row, Schema, StructType
from headrace.expr.value_keys import has_representatives, key_function
from headrace.io.change_data import (
    IMAGES,
    ChangeData,
    Debezium,
    DecodeRecord,
    DeltaChanges,
    Join,
    Operations,
    Upserts,
    build_decoder,
    build_joiner,
    envelope_reader,
    record_schema,
)
from headrace.io.files.file_source import Files
from headrace.io.files.text_values import UnfitValue, shortened, unfit
from headrace.io.in_process import Rows
from headrace.io.source import WEIGHT, BadRecord, Source, set_fields

SET_OR_DELETE = "a key has one row, which a record sets (1) or deletes (-1)"
"""Meaning of a weight in a table with a key."""

ORDERS = "orders the records of a key"
"""Effect of a sequence."""


@dataclass(frozen=True, slots=True)
class RecordBuilder:
    """Builder of records, without positions, from rows in which only the key must be known.

    A record without a sequence, in a table with one, raises `UnfitValue`.

    at: position of the sequence. others: positions beside the key. needed: columns that are never null, with
    their positions.
    """

    keyed: KeyedRows
    key_of: Callable[[Row], Row]
    at: int | None
    others: tuple[int, ...]
    needed: tuple[tuple[int, Field], ...]
    unavailable: Unavailable

    @classmethod
    def of(cls, keyed: KeyedRows) -> RecordBuilder:
        names = keyed.rows.names
        places = [names.index(name) for name in keyed.key]
        (first, *more) = places
        get: Callable[[Row], Row] = itemgetter(*places) if more else lambda row: (row[first],)
        key_type = StructType(keyed.key_fields)
        one = key_function(key_type) if has_representatives(key_type) else None
        return cls(
            keyed,
            get if one is None else lambda row: one(get(row)),
            None if keyed.sequence is None else names.index(keyed.sequence),
            tuple(at for at in range(len(names)) if at not in places),
            tuple((at, f) for at, f in enumerate(keyed.rows.fields) if not f.nullable),
            Unavailable.of(keyed.rows.fields),
        )

    def sets(self, row: Row) -> Row:
        """Build an upsert record."""
        return self._record(self.key_of(row), None, row, None if self.at is None else row[self.at])

    def replaces(self, before: Row | None, row: Row) -> list[Row]:
        """Build the records of an update; non-key columns of the row before may be unknown."""
        if before is None:
            return [self.sets(row)]
        key, sequence = self.key_of(row), None if self.at is None else row[self.at]
        if self.key_of(before) != key:
            return [self.deletes(before, sequence), self.sets(row)]
        return [self._record(key, self.whole_or_none(before), row, sequence)]

    def deletes(self, row: Row, otherwise: Any = None) -> Row:
        """Build a deletion record; non-key columns may be unknown.

        otherwise: its sequence if that of the row is unknown.
        """
        # That of the row comes first: rows that move along within one sequence delete no row of it.
        sequence = otherwise if self.at is None or row[self.at] is None else row[self.at]
        return self._record(self.key_of(row), self.whole_or_none(row), None, sequence)

    def deletes_key(self, key: Row, sequence: Any) -> Row:
        """Build a deletion record from a key alone."""
        return self._record(key, None, None, sequence)

    def _record(self, key: Row, before: Row | None, row: Row | None, sequence: Any) -> Row:
        """Build a record. Raises `UnfitValue` if its sequence is null."""
        if self.at is None:
            return key, before, row
        if sequence is None:
            raise UnfitValue(f"{self.keyed.sequence}: it is null, but {ORDERS}")
        return key, before, row, sequence

    def whole_or_none(self, row: Row) -> Row | None:
        """Return a row; None if only its key is known, or if it lacks a required value."""
        if self.others and all(row[at] is None for at in self.others):
            return None
        if self.unavailable.names(row):
            return None
        return None if self._missing(row) else row

    def check(self, row: Row) -> Row:
        """Return a row unchanged. Raises `UnfitValue` for a null in a non-nullable column."""
        missing = self._missing(row)
        if missing is not None:
            raise UnfitValue(f"{missing.name}: expected {missing.type}, found None")
        return row

    def _missing(self, row: Row) -> Field | None:
        return next((f for at, f in self.needed if row[at] is None), None)


@dataclass(frozen=True, init=False)
class KeyedFiles(ChangeData):
    """Files of records of a keyed table. source: the files, or the change data that reads them, as given."""

    by_key: ClassVar[bool] = True
    source: Files | ChangeData
    keyed: KeyedRows

    def __init__(self, source: Files | ChangeData, keyed: KeyedRows) -> None:
        records = source.records if isinstance(source, ChangeData) else source
        set_fields(self, records=records, source=source, keyed=keyed)


@singledispatch
def record_source(source: object, name: str, keyed: KeyedRows) -> object:
    """Wrap a source for a keyed table, reading it as records; Python rows are returned unchanged.

    Raises `BadInput` for a source whose rows cannot be read by key.
    """
    if not isinstance(source, Source):
        return source
    raise BadInput(
        f"source {name!r} is a table with a key, and cannot read {type(source).__name__}",
        why="Records by key are read from files, from rows in Python and, on Spark, from a Frame of rows.",
        fix="give JsonFiles, CsvFiles, ParquetFiles, or change data in them; or read the records by"
        " flow.source(...) and hold them by upsert(...)",
        source=name,
    )


@record_source.register
def _(source: Rows, name: str, keyed: KeyedRows) -> object:
    return source


@record_source.register
def _(source: Files, name: str, keyed: KeyedRows) -> object:
    return KeyedFiles(source, keyed)


@record_source.register
def _(source: ChangeData, name: str, keyed: KeyedRows) -> object:
    if not isinstance(source.records, Files):
        return record_source.dispatch(object)(source, name, keyed)
    if isinstance(source, Debezium):
        _check_columns(name, source, keyed)
    return KeyedFiles(source, keyed)


def _check_columns(name: str, source: Debezium, keyed: KeyedRows) -> None:
    """Raise `BadInput` if envelope columns are missing from the rows, or the table has no sequence."""
    names = [f.name for f in keyed.rows.fields if f.name not in keyed.key]
    for column, path in source.columns:
        if column not in names or keyed.sequence is None:
            raise BadInput(
                f"source {name!r} reads {column!r} from {path!r} of its envelopes",
                why=f"The columns of its rows beside the key are {', '.join(names) or 'none'}."
                if column not in names
                else "Rows before a change lack it, and without a sequence they are compared.",
                fix=f'flow.table("{name}", ..., sequence="{names[0] if names else column}"), or leave it out',
                source=name,
            )


@record_schema.register
def _(source: KeyedFiles, rows: Schema) -> Schema:
    inner, relaxed = source.source, source.keyed.relaxed
    if isinstance(inner, ChangeData):
        return record_schema(inner, relaxed)
    own = relaxed.position(WEIGHT) is not None
    return relaxed if own else Schema((*relaxed.fields, Field(WEIGHT, INT64, nullable=True)))


@build_decoder.register
def _(source: KeyedFiles, rows: Schema) -> DecodeRecord:
    return _decoder(source.source, RecordBuilder.of(source.keyed))


@singledispatch
def _decoder(source: object, build: RecordBuilder) -> DecodeRecord:
    """Build a converter from a source's records to those of a keyed table."""

    width = len(build.keyed.rows.fields)

    def decode(record: Row | None) -> list[Row]:
        if record is None:
            raise unfit("a row", None)
        row, weight = record[:width], (record[width:] or (1,))[0]
        if weight == -1:
            return [build.deletes(row)]
        if weight not in (1, None):
            raise UnfitValue(f"{WEIGHT}: {SET_OR_DELETE}, found {weight}")
        return [build.sets(build.check(row))]

    return decode


@_decoder.register(Operations)
def _operations_decoder(source: Operations, build: RecordBuilder) -> DecodeRecord:
    weighted = build_decoder(source, build.keyed.relaxed)

    def changed(change: Row) -> Row:
        row, weight = change[:-1], change[-1]
        return build.sets(build.check(row)) if weight > 0 else build.deletes(row)

    return lambda record: list(map(changed, weighted(record)))


@_decoder.register
def _(source: Upserts, build: RecordBuilder) -> DecodeRecord:
    fields = build.keyed.rows.fields
    places = [at for at, field in enumerate(fields) if field.name in build.keyed.key]

    def decode(record: Row | None) -> list[Row]:
        key, value = record or (None, None)
        if key is None:
            raise UnfitValue("key: it is null or missing")
        for at in places:
            if key[at] is None and not fields[at].nullable:
                raise UnfitValue(f"key: {fields[at].name} is null or missing")
            if value is not None and value[at] not in (None, key[at]):
                raise UnfitValue(
                    f"value: its {fields[at].name} is {shortened(repr(value[at]))}, not that of the key"
                )
        if value is None:
            return [build.deletes(key)]
        whole = (key[at] if at in places else each for at, each in enumerate(value))
        return [build.sets(build.check(tuple(whole)))]

    return decode


class Preimage(list[Row]):
    """The row before an update, whose postimage is the next record of the file."""


class Postimage(list[Row]):
    """The record that sets the row after an update."""


@_decoder.register
def _(source: DeltaChanges, build: RecordBuilder) -> DecodeRecord:
    decode_operation = _operations_decoder(source, build)
    at = record_schema(source, build.keyed.relaxed).names.index(source.column)
    width = len(build.keyed.rows.fields)

    def decode(record: Row | None) -> list[Row]:
        kind = None if record is None else record[at]
        if record is not None and kind == "update_preimage":
            return Preimage([record[:width]])
        made = decode_operation(record)
        return Postimage(made) if kind == "update_postimage" else made

    return decode


@build_joiner.register
def _(source: KeyedFiles) -> Join | None:
    return _join_images(RecordBuilder.of(source.keyed)) if isinstance(source.source, DeltaChanges) else None


def _join_images(build: RecordBuilder) -> Join:
    """Build the joiner of each update's two images into one record, in place of the second image."""

    def join(records: Iterator[Any], path: str) -> Iterator[Any]:
        before: Row | None = None
        for number, (record, following) in enumerate(pairwise(chain(records, [None])), 1):
            if isinstance(record, Preimage):
                (before,) = record
                yield [] if isinstance(following, Postimage) else unpaired(before, path, number)
                continue
            if isinstance(record, Postimage):
                [(_, _, row, *_)] = record
                record = build.replaces(before, row)
            before = None
            yield record

    def unpaired(before: Row, path: str, number: int) -> BadRecord:
        text = str(dict(zip(build.keyed.rows.names, before, strict=True)))
        why = "_change_type: the record after an 'update_preimage' is not its 'update_postimage'"
        return BadRecord(path, number, why, shortened(text, 200))

    return join


@_decoder.register
def _(source: Debezium, build: RecordBuilder) -> DecodeRecord:
    read = envelope_reader(source, build.keyed.relaxed)
    hint = (
        f'the position in the log dates deletions by key: columns={{"{build.keyed.sequence}": "source.lsn"}}'
    )

    def decode(record: Row | None) -> list[Row]:
        if record is None:
            return []
        op, before, after = read(record)
        deletes, sets = IMAGES[op]
        if sets:
            if after is None:
                raise UnfitValue(f"after: it is null or missing, but op {op!r} needs it")
            return build.replaces(before if deletes else None, build.check(after))
        if not deletes:
            return []
        if before is None:
            raise UnfitValue(f"before: it is null or missing, but op {op!r} needs the key of the row")
        try:
            return [build.deletes(before)]
        except UnfitValue as problem:
            raise UnfitValue(f"before: {problem}; {hint}") from None

    return decode
