"""Tables held by key: upserts of records, and the records that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast

from headrace.errors import BadFlow, UnknownColumn, WrongType
from headrace.expr.check import check
from headrace.expr.constructors import struct, when
from headrace.expr.row_classes import KeyedRows
from headrace.expr.tree import Column, Expr
from headrace.expr.types import STR, TIMESTAMP, BoolType, Field, Schema, StructType
from headrace.operators.aggregate.extremes import max as greatest
from headrace.operators.column_arguments import render_argument
from headrace.operators.endpoints import KeyedSource
from headrace.operators.keyed_tables.history import END, START, History, version_fields
from headrace.operators.keyed_tables.upsert import REASON, Misfits, Upsert
from headrace.operators.keyed_tables.upsert_rule import COMMITS, SEQUENCE_TYPES, OnMisfit, UpsertRule
from headrace.operators.time_spans import TIME_TYPES, span_in_unit
from headrace.source_location import caller_at

if TYPE_CHECKING:
    from headrace.errors import SourceLocation
    from headrace.expr.types import DataType
    from headrace.flow.stream_base import AnyStream, Output
    from headrace.operators.time_spans import GivenSpan, Span


P = TypeVar("P")
Key: TypeAlias = "Expr | str"
_ORDERING = "a whole number, a decimal, a date, a time or a text"

OnMisfitName: TypeAlias = Literal["error", "dead_letter", "trust_key"]


def keyed_source(
    name: str, rows: Schema, key: object, sequence: object, location: SourceLocation
) -> KeyedSource:
    """Build the source of the records of a table. Raises `UnknownColumn`, `WrongType`."""
    table = f"table {name!r}"
    if rows.scalar:
        raise WrongType(
            f"{table} holds {rows.fields[0].type}",
            where=[location],
            why="Its rows are found by the values of some of their columns.",
            fix='table("customers", Customer, key="id")',
        )
    names = _key_parts("key", () if key is None else key, str, table, location)
    for each in names:
        _check_column(each, rows, table, location)
    if sequence is not None:
        if not isinstance(sequence, str):
            raise _wrong("sequence", sequence, "the name of a column", location, 'sequence="at"', table)
        found = _check_column(sequence, rows, table, location)
        if not isinstance(found, SEQUENCE_TYPES):
            raise WrongType(
                f"{sequence!r} of {table} is {found}, which is no sequence",
                where=[location],
                why=f"The records of a key are ordered by {_ORDERING}.",
                fix=f"declare {sequence!r} as one of these, or leave out sequence=",
            )
    keyed = KeyedRows(rows, names, sequence)
    return KeyedSource(name, keyed.records, keyed=keyed)


def _check_column(name: str, rows: Schema, table: str, location: SourceLocation) -> DataType:
    """Return the type of a column of a table. Raises `UnknownColumn`."""
    try:
        return check(Column(name), rows).type
    except UnknownColumn as error:
        what = f"{table} has no column {name!r}"
        raise UnknownColumn(what, where=[location], why=error.why, fix=error.fix, **error.facts) from None


def _key_parts(
    argument: str, given: object, kinds: type[P] | tuple[type[P], ...], of: str, location: SourceLocation
) -> tuple[P, ...]:
    """Return the parts of a key. Raises `WrongType` for an empty key or a duplicate part."""
    fix = f'{argument}="id", or {argument}=["shop", "item"]'
    listed = cast("Sequence[object]", given) if isinstance(given, list | tuple) else [given]
    parts = tuple(each for each in listed if isinstance(each, kinds))
    if len(parts) < len(listed):
        wanted = "the name of a column, or a list of names"
        raise _wrong(argument, cast("object", given), wanted, location, fix, of)
    texts = [str(each) for each in parts]
    twice = next((text for text in texts if texts.count(text) > 1), None)
    if not parts or twice is not None:
        raise WrongType(
            f"{argument} of {of} has {'no column' if twice is None else f'{twice} twice'}",
            where=[location],
            why="A record sets or deletes the row of its key, which is the values of these columns.",
            fix=fix,
        )
    return parts


def add_rows(
    records: Output,
    source: KeyedSource,
    on_misfit: OnMisfitName,
    tombstones: GivenSpan | None,
    location: SourceLocation,
) -> AnyStream:
    """Add the upsert of the records of a keyed source. Raises `WrongType` for invalid `tombstones`."""
    keyed = source.keyed
    return add_upsert(
        records,
        [Column("key").field(each) for each in keyed.key],
        row=Column("row"),
        deleted=None,
        before=Column("before") if keyed.sequence is None else None,
        sequence=None if keyed.sequence is None else Column("sequence"),
        on_misfit=on_misfit,
        tombstones=tombstones,
        keyed=source,
        name=None,
        location=location,
    )


def add_upsert(
    stream: Output,
    by: Key | Sequence[Key],
    *,
    row: Expr | None,
    deleted: Expr | None,
    before: Expr | None,
    sequence: Key | None,
    on_misfit: OnMisfitName,
    name: str | None,
    location: SourceLocation,
    tombstones: GivenSpan | None = None,
    keyed: KeyedSource | None = None,
) -> AnyStream:
    """Add an upsert of the records of a stream. Raises `WrongType` for arguments that do not fit.

    keyed: the source of the records, if they are those of a table.
    """
    schema = stream.schema
    rule, rows = _rule(schema, by, row, deleted, before, sequence, on_misfit, location, keyed)
    inputs = (stream,)
    if tombstones is not None:
        order = rule.sequence
        if order is None:
            raise _no_bound("records without a sequence", location)
        rule = replace(rule, tombstones=_kept_for(tombstones, check(order, schema).type, location))
        with caller_at(location):
            inputs = (stream, cast("Any", stream).group_by().agg(highest=greatest(order)))
    output = Schema(rows.fields, schema.row_class if row is None else rows.row_class)
    return stream.flow.add(Upsert(rule), output, inputs, name, location)


def _rule(
    schema: Schema,
    by: Key | Sequence[Key],
    row: Expr | None,
    deleted: Expr | None,
    before: Expr | None,
    sequence: Key | None,
    on_misfit: OnMisfitName,
    location: SourceLocation,
    keyed: KeyedSource | None = None,
) -> tuple[UpsertRule, StructType]:
    """Return the rule for records, and the type of their rows. Raises `WrongType` for invalid arguments."""
    keys = _keys(by, schema, location)
    made, rows = _row(row, schema, location)
    image = None if deleted is None else made
    if deleted is not None:
        if not isinstance(_type_of("deleted", deleted, schema, location), BoolType):
            raise _wrong("deleted", deleted, "true or false", location, 'deleted=col.op == "D"')
        made = when(~deleted | deleted.is_null(), made)
    if before is not None and _type_of("before", before, schema, location) != rows:
        raise _wrong("before", before, f"a row like the one it sets, {rows}", location, "before=col.before")
    order = Column(sequence) if isinstance(sequence, str) else sequence
    if order is not None and not isinstance(_type_of("sequence", order, schema, location), SEQUENCE_TYPES):
        raise _wrong("sequence", order, _ORDERING, location, 'sequence="at"')
    if before is not None and order is not None:
        raise WrongType(
            "upsert is given the row before and a sequence",
            where=[location],
            why="Records with a sequence may come in any order, so the one before may still be missing.",
            fix="leave out one of them",
        )
    rule = UpsertRule(keys, made, before, order, _policy(on_misfit, location))
    if keyed is not None:
        rule = replace(rule, place=Column("place"), table=keyed.name)
    if order is None:
        return rule, rows
    version = order.name if isinstance(order, Column) else None
    if keyed is not None:
        version, image = keyed.keyed.sequence, Column("before")
    in_rows = version if any(version == f.name for f in rows.fields) else None
    return replace(rule, image=image, version=in_rows, commits=version == COMMITS), rows


def _kept_for(given: GivenSpan, type: DataType, location: SourceLocation) -> Span:
    """Return how far behind the highest sequence tombstones are kept. Raises `WrongType`."""
    if type not in TIME_TYPES:
        raise _no_bound(f"records whose sequence is {type}", location)
    if type != TIMESTAMP and isinstance(given, str | timedelta):
        wanted = f"a number of steps of the sequence, which is {type}"
        raise _wrong("tombstones", given, wanted, location, "tombstones=1000")
    return span_in_unit(given, type, None, "tombstones", location, may_be_zero=True)


def _no_bound(of: str, location: SourceLocation) -> WrongType:
    return WrongType(
        f"tombstones= is given for {of}",
        where=[location],
        why="A deleted key is kept until the highest sequence is so far ahead of its own.",
        fix='order the records by a time or a whole number, sequence="at"; or leave out tombstones=',
    )


def add_history(
    stream: Any,
    by: Key | Sequence[Key],
    *,
    sequence: Key,
    row: Expr | None,
    deleted: Expr | None,
    track: Sequence[str] | None,
    on_misfit: OnMisfitName,
    location: SourceLocation,
) -> AnyStream:
    """Add the versions of each key's row. Raises `WrongType` for arguments that do not fit the records."""
    schema: Schema = stream.schema
    if on_misfit == "dead_letter":
        raise _wrong("on_misfit", on_misfit, '"error" or "trust_key"', location, 'on_misfit="error"')
    rule, rows = _rule(schema, by, row, deleted, None, sequence, on_misfit, location)
    names = [f.name for f in rows.fields]
    order = rule.sequence.name if isinstance(rule.sequence, Column) else None
    tracked = [each for each in names if each != order] if track is None else list(track)
    for name in tracked:
        if name not in names:
            raise _wrong("track", name, f"one of {', '.join(names)}", location, f'track=["{names[-1]}"]')
    for name in (START, END):
        if name in names:
            raise _wrong("row", name, "another name, since versions have that column", location, "rename it")
    assert rule.sequence is not None
    output = Schema((*rows.fields, *version_fields(rule.sequence, schema)))
    return stream.flow.add(History(rule, tuple(tracked)), output, (stream,), None, location)


def add_misfits(stream: Output, name: str | None, location: SourceLocation) -> AnyStream:
    """Add the records that the upsert `stream` leaves out. Raises `BadFlow` for any other stream."""
    node = stream.flow.node(stream.node_id)
    operator = node.operator
    if not isinstance(operator, Upsert) or operator.rule.on_misfit is not OnMisfit.DEAD_LETTER:
        raise BadFlow(
            "misfits() is asked of a stream that sets no records aside",
            where=[node.location, location],
            why='They are the records that upsert(on_misfit="dead_letter") leaves out.',
            fix="keep what upsert(...) gives, and ask that for misfits()",
        )
    records = stream.output_of(node.inputs[0])
    if REASON in records.schema.names:
        raise BadFlow(
            f"the records have a column {REASON!r} of their own",
            where=[location],
            why="misfits() puts the reason under that name.",
            fix="rename the column before the upsert",
        )
    schema = Schema((*records.schema.fields, Field(REASON, STR)))
    inputs = (records, *map(stream.output_of, node.inputs[1:]))
    return stream.flow.add(Misfits(operator.rule), schema, inputs, name, location)


def _keys(by: object, schema: Schema, location: SourceLocation) -> tuple[Expr, ...]:
    parts: tuple[Expr | str, ...] = _key_parts("by", by, (Expr, str), "the records", location)
    keys = tuple(Column(each) if isinstance(each, str) else each for each in parts)
    for each in keys:
        _type_of("by", each, schema, location)
    return keys


def _row(given: Expr | None, schema: Schema, location: SourceLocation) -> tuple[Expr, StructType]:
    """Return the row that a record sets, with its type. Default: all columns of the record."""
    row = struct(**{each: Column(each) for each in schema.names}) if given is None else given
    rows = _type_of("row", row, schema, location)
    if not isinstance(rows, StructType):
        raise _wrong("row", row, "a struct", location, "row=hr.struct(id=col.id, name=col.name)")
    return row, rows


def _type_of(what: str, given: object, schema: Schema, location: SourceLocation) -> Any:
    if not isinstance(given, Expr):
        raise _wrong(what, given, "an expression", location, f"{what}=col.{what}")
    return check(given, schema).type


def _policy(given: object, location: SourceLocation) -> OnMisfit:
    try:
        return OnMisfit(given)
    except ValueError:
        known = ", ".join(f'"{each.value}"' for each in OnMisfit)
        raise _wrong("on_misfit", given, f"one of {known}", location, 'on_misfit="error"') from None


def _wrong(
    what: str, given: object, wanted: str, location: SourceLocation, fix: str, of: str = "the records"
) -> WrongType:
    # The text of a set differs from run to run.
    shown = "a set" if isinstance(given, set | frozenset) else render_argument(given)
    return WrongType(f"{what} of {of} is {shown}, not {wanted}", where=[location], fix=fix)
