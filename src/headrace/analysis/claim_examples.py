"""Examples for claims: generated rows, and the search for a small counterexample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import singledispatch
from itertools import pairwise
from random import Random
from typing import Any, TypeAlias, TypeVar

from headrace.expr.code_runtime import DecimalSpec, float32
from headrace.expr.row_classes import row_class
from headrace.expr.types import (
    AnyType,
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float32Type,
    Float64Type,
    IntegerType,
    IntervalType,
    ListType,
    MapType,
    Schema,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
    holds_any,
)

Pool: TypeAlias = Sequence[Any]
"""Values to draw from, simplest first."""

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
"""Values for `any` columns by kind, since a function usually accepts one kind and fails on the others."""
_ROWS = 50


def pools(schema: Schema) -> Sequence[Pool]:
    """Group example rows, in user form, into pools that one function can accept."""
    kinds = _KINDS if any(holds_any(f.type) for f in schema.fields) else _KINDS[:1]
    return [rows(schema, kind) for kind in kinds]


def rows(schema: Schema, kind: Pool = _INTEGERS) -> Pool:
    """Generate example rows of a schema. kind: values of columns of any type."""
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
    # Not first, so that functions failing on null differ from those that always fail.
    return (*found[:3], None, *found[3:]) if field.nullable else found


@singledispatch
def values(type_: DataType, kind: Pool) -> Pool:
    """List example values of a column. kind: values of nested columns of any type."""
    raise NotImplementedError(f"no values to try of {type_}")


@values.register
def _int(type_: IntegerType, kind: Pool) -> Pool:
    return _INTEGERS


@values.register
def _any(type_: AnyType, kind: Pool) -> Pool:
    return kind


@values.register
def _bool(type_: BoolType, kind: Pool) -> Pool:
    return (False, True)


@values.register
def _float(type_: Float64Type, kind: Pool) -> Pool:
    # The sum of 0.1, 0.2 and 0.3 depends on the order.
    special = (float("inf"), float("-inf"), float("nan"))
    return (0.0, 1.0, -1.5, 0.1, 0.2, 0.3, 2.0, 10.0, 1e16, *special)


@values.register
def _float32(type_: Float32Type, kind: Pool) -> Pool:
    return tuple(map(float32, values(Float64Type(), kind)))


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
def _timestamp_ntz(type_: TimestampNtzType, kind: Pool) -> Pool:
    return (datetime(2001, 1, 1), datetime(2001, 1, 2), datetime(1969, 12, 31, 23, 59, 59, 999_999))


@values.register
def _interval(type_: IntervalType, kind: Pool) -> Pool:
    return (timedelta(), timedelta(days=1), timedelta(days=-2))


@values.register
def _list(type_: ListType, kind: Pool) -> Pool:
    cells = _cells(Field("element", type_.element, type_.nullable), kind)
    return [[], *([cell] for cell in cells), *(list(pair) for pair in pairwise(cells))]


@values.register
def _map(type_: MapType, kind: Pool) -> Pool:
    keys = values(type_.key, kind)
    cells = _cells(Field("value", type_.value, type_.nullable), kind)
    pairs = list(zip(keys, cells, strict=False))
    return [{}, *({key: cell} for key, cell in pairs), dict(pairs[:2])]


@values.register
def _struct(type_: StructType, kind: Pool) -> Pool:
    return rows(Schema(type_.fields, type_.row_class), kind)


T = TypeVar("T")
EXAMPLES = 1000
"""Default number of examples."""


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """Outcome of a function call: a value or the exception raised.

    Values compare as in the engine: NaN equals itself.
    """

    value: Any = None
    error: Exception | None = None

    @classmethod
    def of(cls, function: Callable[..., Any], *arguments: Any) -> CallOutcome:
        try:
            return cls(function(*arguments))
        except Exception as error:
            return cls(error=error)

    def agrees(self, other: CallOutcome) -> bool:
        """Whether two outcomes are equal. All exceptions count as equal."""
        if self.error is not None or other.error is not None:
            return self.error is not None and other.error is not None
        return _one_nan(self.value) == _one_nan(other.value)

    def __str__(self) -> str:
        if self.error is not None:
            return f"raises {type(self.error).__name__}: {self.error}"
        return f"is {self.value!r}"


def _one_nan(value: Any) -> Any:
    return "nan" if isinstance(value, float) and value != value else value


def find_list(
    pool: Sequence[T], refutes: Callable[[list[T]], bool], least: int, most: int, count: int = EXAMPLES
) -> list[T] | None:
    """Find a short list of simple members of `pool` that refutes a claim, or None after `count` tries.

    pool: simplest first. least, most: limits on the length of a list.
    """
    for items in _lists(pool, least, most, count):
        if refutes(items):
            return _simplest(pool, items, refutes, least)
    return None


def _lists(pool: Sequence[T], least: int, most: int, count: int) -> Iterator[list[T]]:
    """Generate lists from simple to complex, with growing lengths and a growing choice of pool members."""
    random = Random(0)
    for at in range(count):
        reach = min(len(pool), 2 + at * len(pool) // count)
        longest = least + at * (most - least + 1) // count
        yield [pool[random.randrange(reach)] for _ in range(random.randint(least, longest))]


def _simplest(pool: Sequence[T], items: list[T], refutes: Callable[[list[T]], bool], least: int) -> list[T]:
    """Minimize a refuting list: no member can be removed or replaced with a simpler one."""
    while True:
        for simpler in _simpler(pool, items, least):
            if refutes(simpler):
                items = simpler
                break
        else:
            return items


def _simpler(pool: Sequence[T], items: list[T], least: int) -> Iterator[list[T]]:
    if len(items) > least:
        yield from ([*items[:at], *items[at + 1 :]] for at in range(len(items)))
    for at, item in enumerate(items):
        place = next(n for n, member in enumerate(pool) if member is item)
        yield from ([*items[:at], member, *items[at + 1 :]] for member in pool[:place])
