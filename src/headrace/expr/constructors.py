"""Entry points for writing expressions: `col`, `lit`, `when` and functions of several values."""

from __future__ import annotations

import datetime
import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from headrace.errors import SourceLocation, WrongType
from headrace.expr.expression_errors import explains_calls
from headrace.expr.tree import Column, Expr, FunctionCall, Literal, operand
from headrace.expr.types import as_type


class ColumnNamespace:
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


col = ColumnNamespace()
"""Columns of the current rows."""
left = ColumnNamespace("left")
"""Columns of the left side, in a join condition."""
right = ColumnNamespace("right")
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


class When(FunctionCall):
    """Conditional expression that may be extended by `.when(condition, value)` or `.otherwise(value)`."""

    __slots__ = ()

    def when(self, condition: object, value: object) -> When:
        """Add a case, tried if no earlier condition is true."""
        *cases, _ = self.arguments
        return When("when", (*cases, operand(condition), operand(value), Literal(None)))

    def otherwise(self, value: object) -> FunctionCall:
        """End the expression with the value for rows without a true condition."""
        *cases, _ = self.arguments
        return FunctionCall("when", (*cases, operand(value)))


@explains_calls("write when(condition, value).otherwise(other)")
def when(condition: object, value: object) -> When:
    """Choose `value` where `condition` is true: `when(c, v).when(...).otherwise(...)`."""
    return When("when", (operand(condition), operand(value), Literal(None)))


def coalesce(*values: object) -> FunctionCall:
    """First value that is not null."""
    return FunctionCall("coalesce", tuple(operand(v) for v in values))


def least(*values: object) -> FunctionCall:
    """Least value that is not null; NaN is greatest. Null only if all values are null."""
    return FunctionCall("least", tuple(operand(v) for v in values))


def greatest(*values: object) -> FunctionCall:
    """Greatest value that is not null; NaN is greatest. Null only if all values are null."""
    return FunctionCall("greatest", tuple(operand(v) for v in values))


def concat(*values: object) -> FunctionCall:
    """Concatenation of strings; null if any of them is null."""
    return FunctionCall("concat", tuple(operand(v) for v in values))


def struct(**fields: object) -> FunctionCall:
    """Struct of named values, shown as a row of these columns. It is never null itself."""
    return FunctionCall("struct", tuple(operand(v) for v in fields.values()), (tuple(fields),))


def array(*values: object) -> FunctionCall:
    """List of values of one type, in order. It is never null itself."""
    return FunctionCall("array", tuple(operand(v) for v in values))


def hash(*values: object) -> FunctionCall:
    """64-bit hash, equal to Spark's `xxhash64`: the same on every engine and machine."""
    return FunctionCall("hash", tuple(operand(v) for v in values))


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


# --- functions within expressions, applied to the elements of a list: `transform(col.xs, lamb -----

# A user's function is called once, with variables, while the expression is built. The tree holds what it
# returned: a call of "lambda" with the names of the variables, which are calls of "variable".


_IN_USE: ContextVar[tuple[str, ...]] = ContextVar("names of the variables around", default=())


def variable(name: str) -> FunctionCall:
    """Return a variable of an enclosing lambda."""
    return FunctionCall("variable", (), (name,))


def lambda_of(body: object, names: tuple[str, ...]) -> FunctionCall:
    """Build a lambda over the named variables."""
    return FunctionCall("lambda", (operand(body),), (names,))


def is_lambda(expr: Expr) -> bool:
    """Return whether an expression is a lambda."""
    return isinstance(expr, FunctionCall) and expr.function == "lambda"


def lambda_from(function: Callable[..., object], most: int, what: str) -> FunctionCall:
    """Convert a Python function of at most `most` arguments to a lambda, by calling it once.

    Raises `WrongType` if it takes others. what: the function that it is given to.
    """
    names = _parameters(function)
    if names is None or not 1 <= len(names) <= most:
        raise WrongType(
            f"{what} needs a function of {'an argument' if most == 1 else f'1 to {most} arguments'}",
            where=[SourceLocation.of_caller()],
            why="It is called with an expression for each of them, while the flow is built.",
            fix=f"{what}(col.xs, lambda x: x + 1)",
        )
    with _fresh(names) as fresh:
        return lambda_of(function(*map(variable, fresh)), fresh)


def _parameters(function: object) -> tuple[str, ...] | None:
    if not callable(function):
        return None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # builtins have none
        return None
    # One with a default is no variable: lambda x, k=k: x * k.
    needed = [p for p in parameters if p.default is inspect.Parameter.empty]
    return tuple(p.name for p in needed) if all(p.kind in positional for p in needed) else None


@contextmanager
def _fresh(names: tuple[str, ...]) -> Generator[tuple[str, ...]]:
    """Yield names like the given ones that no enclosing lambda uses."""
    around = _IN_USE.get()
    fresh = fresh_names(names, around)
    token = _IN_USE.set((*around, *fresh))
    try:
        yield fresh
    finally:
        _IN_USE.reset(token)


def fresh_names(names: tuple[str, ...], around: tuple[str, ...]) -> tuple[str, ...]:
    """Return names like the given ones that differ from all names in `around`."""
    made: list[str] = []
    for name in names:
        while name in around or name in made:
            name += "_"
        made.append(name)
    return tuple(made)
