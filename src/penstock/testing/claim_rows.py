"""Rows on which users' functions are tried: the same ones in every run, the simplest first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from functools import singledispatch
from itertools import pairwise
from random import Random
from typing import Any, TypeAlias

from penstock.expr.decimal_arithmetic import DecimalSpec
from penstock.expr.row_classes import row_class
from penstock.expr.types import (
    AnyType,
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float64Type,
    Int32Type,
    Int64Type,
    ListType,
    Schema,
    StrType,
    StructType,
    TimestampType,
)

Pool: TypeAlias = Sequence[Any]
"""Values to draw from, the simplest first."""

_INTEGERS = (0, 1, -1, 2, 3, -2, 7, 10, -5, 100, 64)
_TEXTS = ("", "a", "b", "ab", "ba", "A", "ä")
_KINDS: tuple[Pool, ...] = (
    _INTEGERS,
    _TEXTS,
    ((), (0,), (1,), (2,), (0, 1), (1, 0), (2, 2, 1)),
    tuple((key, n) for n in (0, 1, 2, -1) for key in ("", "a", "b")),
    tuple(map(frozenset, ((), (0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2, 3)))),
    tuple(map(frozenset, ((), [("a", 1)], [("a", 2)], [("b", 1)], [("a", 3), ("b", 0)]))),
)
"""Of columns that may hold anything: a function takes one kind of values, and fails on the others."""
_ROWS = 50


def pools(schema: Schema) -> Sequence[Pool]:
    """Rows as users see them. Those of one pool are such as one function may take."""
    kinds = _KINDS if any(_holds_any(f.type) for f in schema.fields) else _KINDS[:1]
    return [rows(schema, kind) for kind in kinds]


def rows(schema: Schema, kind: Pool = _INTEGERS) -> Pool:
    """Rows of a schema. kind: values of columns that may hold anything."""
    cells = [_cells(field, kind) for field in schema.fields]
    if schema.scalar:
        return cells[0]
    make, random = row_class(schema), Random(0)
    most = max(map(len, cells))
    reach = [2 + at * most // _ROWS for at in range(_ROWS)]
    drawn = [[random.choice(pool[:some]) for pool in cells] for some in reach]
    return [make(*values) for values in ([pool[0] for pool in cells], *drawn)]


def _cells(field: Field, kind: Pool) -> Pool:
    if isinstance(field.type, AnyType):
        return kind
    found = values(field.type, kind)
    # Not the first: what fails on null is to be told apart from what fails on all.
    return (*found[:3], None, *found[3:]) if field.nullable else found


def _holds_any(type_: DataType) -> bool:
    if isinstance(type_, ListType):
        return _holds_any(type_.element)
    if isinstance(type_, StructType):
        return any(_holds_any(f.type) for f in type_.fields)
    return isinstance(type_, AnyType)


@singledispatch
def values(type_: DataType, kind: Pool) -> Pool:
    """Values of a column. kind: values of columns inside it that may hold anything."""
    raise NotImplementedError(f"no values to try of {type_}")


@values.register(Int32Type)
@values.register(Int64Type)
def _int(type_: DataType, kind: Pool) -> Pool:
    return _INTEGERS


@values.register
def _any(type_: AnyType, kind: Pool) -> Pool:
    return kind


@values.register
def _bool(type_: BoolType, kind: Pool) -> Pool:
    return (False, True)


@values.register
def _float(type_: Float64Type, kind: Pool) -> Pool:
    # 0.1, 0.2 and 0.3 tell orders of adding apart.
    special = (float("inf"), float("-inf"), float("nan"))
    return (0.0, 1.0, -1.5, 0.1, 0.2, 0.3, 2.0, 10.0, 1e16, *special)


@values.register
def _decimal(type_: DecimalType, kind: Pool) -> Pool:
    step, bound = DecimalSpec.of(type_).step, DecimalSpec.of(type_).bound
    found = (step * n for n in (0, 1, -1, 2, 3, 10, -25, 100))
    return tuple(value if value else abs(value) for value in found if -bound < value < bound)


@values.register
def _str(type_: StrType, kind: Pool) -> Pool:
    return _TEXTS


@values.register
def _bytes(type_: BytesType, kind: Pool) -> Pool:
    return (b"", b"a", b"b", b"\xff")


@values.register
def _date(type_: DateType, kind: Pool) -> Pool:
    return (date(2001, 1, 1), date(2001, 1, 2), date(1969, 12, 31))


@values.register
def _timestamp(type_: TimestampType, kind: Pool) -> Pool:
    days = (datetime(2001, 1, 1), datetime(2001, 1, 2), datetime(1969, 12, 31, 23, 59, 59, 999_999))
    return tuple(day.replace(tzinfo=UTC) for day in days)


@values.register
def _list(type_: ListType, kind: Pool) -> Pool:
    cells = _cells(Field("element", type_.element, type_.nullable), kind)
    return [[], *([cell] for cell in cells), *(list(pair) for pair in pairwise(cells))]


@values.register
def _struct(type_: StructType, kind: Pool) -> Pool:
    return rows(Schema(type_.fields, type_.row_class), kind)
