"""Entry points for writing expressions: `col`, `lit`, `when` and functions of several values."""

from __future__ import annotations

import datetime
from typing import Any

from headrace.errors import SourceLocation, WrongType
from headrace.expr.annotations import as_type
from headrace.expr.call_errors import explains_calls
from headrace.expr.tree import Call, Column, Expr, Literal, operand


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
"""Columns of the current rows."""
left = Columns("left")
"""Columns of the left side, in a join condition."""
right = Columns("right")
"""Columns of the right side, in a join condition."""


def lit(value: object, type: Any = None) -> Literal:
    """Make a constant. `type`, as in `Expr.cast`, is needed only for None or for another width or scale."""
    if isinstance(value, Expr):
        raise WrongType(
            f"a constant is needed, got an expression: {value}", where=[SourceLocation.of_caller()]
        )
    if type is None:
        return Literal(value)
    return Literal(value, as_type(type))


class When(Call):
    """Conditional expression that may be extended by `.when(condition, value)` or `.otherwise(value)`."""

    __slots__ = ()

    def when(self, condition: object, value: object) -> When:
        """Add a case, tried if no earlier condition is true."""
        *cases, _ = self.arguments
        return When("when", (*cases, operand(condition), operand(value), Literal(None)))

    def otherwise(self, value: object) -> Call:
        """End the expression with the value for rows without a true condition."""
        *cases, _ = self.arguments
        return Call("when", (*cases, operand(value)))


@explains_calls("write when(condition, value).otherwise(other)")
def when(condition: object, value: object) -> When:
    """Choose `value` where `condition` is true: `when(c, v).when(...).otherwise(...)`."""
    return When("when", (operand(condition), operand(value), Literal(None)))


def coalesce(*values: object) -> Call:
    """First value that is not null."""
    return Call("coalesce", tuple(operand(v) for v in values))


def least(*values: object) -> Call:
    """Least value that is not null; NaN is greatest. Null only if all values are null."""
    return Call("least", tuple(operand(v) for v in values))


def greatest(*values: object) -> Call:
    """Greatest value that is not null; NaN is greatest. Null only if all values are null."""
    return Call("greatest", tuple(operand(v) for v in values))


def concat(*values: object) -> Call:
    """Concatenation of strings; null if any of them is null."""
    return Call("concat", tuple(operand(v) for v in values))


def struct(**fields: object) -> Call:
    """Struct of named values, shown as a row of these columns. It is never null itself."""
    return Call("struct", tuple(operand(v) for v in fields.values()), (tuple(fields),))


def array(*values: object) -> Call:
    """List of values of one type, in order. It is never null itself."""
    return Call("array", tuple(operand(v) for v in values))


def hash(*values: object) -> Call:
    """64-bit hash, equal to Spark's `xxhash64`: the same on every engine and machine."""
    return Call("hash", tuple(operand(v) for v in values))


def timestamp(text: str) -> Literal:
    """Timestamp constant from ISO-8601 text; UTC if no zone is given."""
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise WrongType(f"{text!r} is not a timestamp: {error}", where=[SourceLocation.of_caller()]) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return Literal(moment.astimezone(datetime.UTC))


def date(text: str) -> Literal:
    """Date constant from text such as "2001-09-30"."""
    try:
        return Literal(datetime.date.fromisoformat(text))
    except ValueError as error:
        raise WrongType(f"{text!r} is not a date: {error}", where=[SourceLocation.of_caller()]) from None
