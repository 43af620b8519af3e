"""Opaque functions for random flows: the same answer for equal rows, on every engine."""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from headrace.expr.types import Field, Schema
from headrace.operators.map import VectorisedFunction


def weigh(value: Any) -> int:
    """0, 1 or 2 for any value; the same for equal ones, so the sign of zero says nothing."""
    if value is None:
        return 0
    if isinstance(value, float):
        return 1 if math.isnan(value) or value > 0 else 2 if value < 0 else 0
    if isinstance(value, bool | int):
        return abs(value) % 3
    if isinstance(value, str | bytes | list | tuple):
        return len(value) % 3
    return 1


def class_of(fields: Sequence[Field]) -> Any:
    """A row class with these columns."""
    annotated: list[tuple[str, Any]] = []
    for f in fields:
        plain: Any = Annotated[Any, f.type]
        annotated.append((f.name, plain | None if f.nullable else plain))
    return typing.NamedTuple("Made", annotated)  # type: ignore[misc]


def _column(schema: Schema, name: str) -> Callable[[Any], Any]:
    if schema.scalar:
        return lambda row: row
    return lambda row: getattr(row, name)


def keeping(schema: Schema, name: str) -> Callable[[Any], bool]:
    """A predicate that drops rows by one of their columns."""
    column = _column(schema, name)
    return lambda row: weigh(column(row)) != 1


def picking(schema: Schema, kept: Any) -> Callable[[Any], Any]:
    """A function to rows of the class `kept`, whose columns `schema` has."""
    picked = [_column(schema, name) for name in kept._fields]
    return lambda row: kept(*(column(row) for column in picked))


class Together(VectorisedFunction):
    """A function of a row, called with all rows of a tick at once."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, row: Any) -> Any:
        return self.function(row)

    def of_rows(self, rows: list[Any]) -> list[object]:
        return [self.function(row) for row in rows]


def doubling(schema: Schema, same: Any, name: str) -> Callable[[Any], list[Any]]:
    """A function to no, one or two copies of a row, by one of its columns; `same` has all of them."""
    column, copy = _column(schema, name), picking(schema, same)
    return lambda row: [copy(row)] * weigh(column(row))
