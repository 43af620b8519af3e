"""What users write expressions with: `col`, `lit`, `when` and the functions of several values."""

from __future__ import annotations

import datetime
from typing import Any

from penstock.errors import SourceLocation, WrongType
from penstock.expr.annotations import as_type
from penstock.expr.tree import Call, Column, Expr, Literal, operand


class Columns:
    """Columns by attribute (`col.price`) or by item, for any name (`col["unit price"]`)."""

    __slots__ = ("_side",)

    def __init__(self, side: str | None = None) -> None:
        self._side = side

    def __getattr__(self, name: str) -> Column:
        if name.startswith("__"):
            raise AttributeError(name)
        return Column(name, self._side)

    def __getitem__(self, name: str) -> Column:
        return Column(name, self._side)

    def __repr__(self) -> str:
        return self._side or "col"


col = Columns()
"""Columns of the rows at hand."""
left = Columns("left")
"""Columns of the left side, in a join condition."""
right = Columns("right")
"""Columns of the right side, in a join condition."""


def lit(value: object, type: Any = None) -> Literal:
    """A constant. `type` as in `Expr.cast`; needed only for None and for another width or scale."""
    if isinstance(value, Expr):
        raise WrongType(
            f"a constant is needed, got an expression: {value}", where=[SourceLocation.of_caller()]
        )
    if type is None:
        return Literal(value)
    return Literal(value, as_type(type))


class When(Call):
    """A choice that can go on: `.when(condition, value)`, `.otherwise(value)`; null where nothing holds."""

    __slots__ = ()

    def when(self, condition: object, value: object) -> When:
        """A further case, tried where no earlier condition is true."""
        *cases, _ = self.arguments
        return When("when", (*cases, operand(condition), operand(value), Literal(None)))

    def otherwise(self, value: object) -> Call:
        """The value where no condition is true."""
        *cases, _ = self.arguments
        return Call("when", (*cases, operand(value)))


def when(condition: object, value: object) -> When:
    """`value` where `condition` is true: `when(c, v).when(...).otherwise(...)`."""
    return When("when", (operand(condition), operand(value), Literal(None)))


def coalesce(*values: object) -> Call:
    """The first value that is not null."""
    return Call("coalesce", tuple(operand(v) for v in values))


def least(*values: object) -> Call:
    """The least value that is not null; NaN is greatest; null only if all are."""
    return Call("least", tuple(operand(v) for v in values))


def greatest(*values: object) -> Call:
    """The greatest value that is not null; NaN is greatest; null only if all are."""
    return Call("greatest", tuple(operand(v) for v in values))


def concat(*values: object) -> Call:
    """Strings one after the other; null if one is."""
    return Call("concat", tuple(operand(v) for v in values))


def hash(*values: object) -> Call:
    """A 64-bit hash, equal to Spark's `xxhash64`: the same on every engine and machine."""
    return Call("hash", tuple(operand(v) for v in values))


def timestamp(text: str) -> Literal:
    """A constant timestamp from ISO-8601 text; UTC where it names no zone."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise WrongType(f"{text!r} is no timestamp: {error}", where=[SourceLocation.of_caller()]) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return Literal(moment.astimezone(datetime.UTC))


def date(text: str) -> Literal:
    """A constant date from text such as "2001-09-30"."""
    try:
        return Literal(datetime.date.fromisoformat(text))
    except ValueError as error:
        raise WrongType(f"{text!r} is no date: {error}", where=[SourceLocation.of_caller()]) from None
