"""Conversion of stream method arguments to columns and schemas."""

from __future__ import annotations

import inspect
import types
import typing
from typing import Any

from headrace.errors import SourceLocation, UnknownRowType, WrongType
from headrace.expr.expression_errors import check_function
from headrace.expr.expression_text import constant_text
from headrace.expr.row_classes import schema_of
from headrace.expr.tree import Column, Expr
from headrace.expr.types import Schema
from headrace.operators.aggregate.aggregation import Aggregation
from headrace.operators.over.window_function import Over

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ANY_VALUE: Schema = schema_of(object)
"""Schema of a function's results, whose type is not known before it runs."""


def split_own_keywords(named: dict[str, Any]) -> tuple[type | None, str | None]:
    """Split a method's own `into` and `name` from keyword arguments that are columns.

    Columns may have these names, too: their values are expressions or aggregates, never classes or text.
    """
    into = named.pop("into") if isinstance(named.get("into"), type | None) and "into" in named else None
    name = named.pop("name") if isinstance(named.get("name"), str | None) and "name" in named else None
    return into, name


def computed_columns(named: dict[str, Any], location: SourceLocation) -> tuple[tuple[str, Expr], ...]:
    """Convert keyword arguments to columns. Raises `WrongType` for values other than expressions."""
    for name, value in named.items():
        if not isinstance(value, Expr):
            raise WrongType(
                f"column {name!r} needs an expression, got {render_argument(value)}",
                where=[location],
                fix=_expression_instead(name, value),
                column=name,
            )
    return tuple(named.items())


def _expression_instead(name: str, value: object) -> str:
    if isinstance(value, str) and not value.isidentifier():
        return f"{name}=hr.lit({value!r}) for the text; hr.concat(hr.col.one, hr.lit('!')) joins texts"
    if isinstance(value, str):
        return f"{name}=hr.col.{value} for a column, {name}=hr.lit({value!r}) for the text"
    if isinstance(value, Over):
        return f"with_columns({name}=...), which adds it to the rows"
    if isinstance(value, Aggregation):
        return f"group_by(...).agg({name}=...)"
    if (method := uncalled_method(value)) is not None:
        return f"call the method: {method}(...)"
    if callable(value):
        return "compute it by an expression such as hr.col.price * 2; functions of whole rows go to map()"
    return f"{name}=hr.lit({value!r})"


def check_no_positional(what: str, unnamed: Sequence[object], example: str, location: SourceLocation) -> None:
    """Raise `WrongType` for a positional argument of a method that takes only named columns."""
    if unnamed:
        raise WrongType(
            f"{what} by name, got {render_argument(unnamed[0])}",
            where=[location],
            why="What is computed has no name of its own.",
            fix=f"give it one, by keyword: {example}",
        )


_OF_GROUP_BY = {
    "emit": 'group_by(..., window=..., emit="updates").agg(...)',
    "window": 'group_by(..., window=hr.tumbling(hr.col.at, "10s")).agg(...)',
}


def check_aggregations(named: dict[str, Any], location: SourceLocation) -> None:
    """Raise `WrongType` unless every keyword argument of `agg` is an aggregate."""
    for name, value in named.items():
        if name in _OF_GROUP_BY and not isinstance(value, Aggregation | Expr):
            raise WrongType(
                f"{name}= is an argument of group_by, and is given to agg",
                where=[location],
                why="group_by makes the groups, windows among them; agg takes the columns of their rows.",
                fix=_OF_GROUP_BY[name],
                column=name,
            )
        if not isinstance(value, Aggregation):
            raise WrongType(
                f"column {name!r} needs an aggregate, got {render_argument(value)}",
                where=[location],
                why="A group has one row in the answer, and any number of rows to make it of.",
                fix=f"{name}=hr.max(...), say; what all rows of a group share can be a key of group_by(...)",
                column=name,
            )
        for argument in value.arguments():
            check_expression(f"{str(value).partition('(')[0]} of column {name!r}", argument, location)


def check_no_emit(named: dict[str, Any], location: SourceLocation) -> None:
    """Raise `WrongType` for `emit` on groups without windows, unless a key has that name."""
    if not isinstance(named.get("emit"), Expr | None):
        raise WrongType(
            f"emit= says when windows answer, and this group_by has none: {render_argument(named['emit'])}",
            where=[location],
            why="Other groups answer in each tick in which they change.",
            fix=_OF_GROUP_BY["emit"],
        )


def check_name(what: str, name: object, location: SourceLocation) -> None:
    """Raise `WrongType` unless a name is a string."""
    if not isinstance(name, str) or not name:
        raise WrongType(
            f"the name of a {what} is text, got {render_argument(name)}",
            where=[location],
            fix='flow.sink("name", stream)' if what == "sink" else f'"my {what}", say',
        )


def check_expression(what: str, value: object, location: SourceLocation) -> None:
    """Raise `WrongType` unless a value is an expression."""
    if not isinstance(value, Expr):
        column = value if isinstance(value, str) else "price"
        raise WrongType(
            f"{what} needs an expression, got {render_argument(value)}",
            where=[location],
            fix=f"hr.col.{column}",
        )


def named_columns(columns: Sequence[object], location: SourceLocation) -> tuple[tuple[str, Expr], ...]:
    """Convert positional arguments to columns. Raises `WrongType` for an expression without a name."""
    named: list[tuple[str, Expr]] = []
    for column in columns:
        if isinstance(column, str):
            named.append((column, Column(column)))
        elif isinstance(column, Column):
            named.append((column.name, column))
        elif isinstance(column, Expr):
            raise WrongType(
                f"a computed column needs a name: {column}",
                where=[location],
                fix="give it one, by keyword: its_name=...",
            )
        else:
            raise WrongType(
                f"columns are names and expressions, got {render_argument(column)}",
                where=[location],
                fix='"price", hr.col.price, or double=hr.col.price * 2',
            )
    return tuple(named)


def uncalled_method(value: object) -> str | None:
    """Return the text of an uncalled method of an expression, such as `x.is_null`; None for other values."""
    owner = getattr(value, "__self__", None)
    return f"{owner}.{getattr(value, '__name__', '')}" if isinstance(owner, Expr) else None


def render_argument(value: object) -> str:
    """Render a wrong argument for an error."""
    if isinstance(value, Expr):
        return f"the expression {value}"
    if isinstance(value, Aggregation):
        return f"the aggregate {value}"
    if isinstance(value, Over):
        return f"the window function {value}"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if (method := uncalled_method(value)) is not None:
        return f"the method {method}"
    if callable(value):
        return f"the function {getattr(value, '__name__', type(value).__name__)}"
    text = constant_text(value)
    return text if len(text) <= _LONGEST else f"a {type(value).__name__}"


_LONGEST = 40


def all_columns(schema: Schema) -> tuple[Expr, ...]:
    return tuple(Column(n) for n in schema.names)


def with_row_class(schema: Schema, into: Any, location: SourceLocation) -> Schema:
    """Return `schema` with rows of class `into`. Raises if their columns differ."""
    wanted = schema_of(into)
    mine = [(f.name, f.type) for f in schema.fields]
    theirs = [(f.name, f.type) for f in wanted.fields]
    loose = [
        f.name for f, w in zip(schema.fields, wanted.fields, strict=False) if f.nullable and not w.nullable
    ]
    if mine != theirs or loose:
        raise WrongType(
            f"the rows do not fit {getattr(into, '__name__', into)}",
            where=[location],
            why=f"They have {schema},\nthe class has {wanted}.",
            fix="names, types and order must agree; null needs `| None` in the class, or coalesce() before",
        )
    return Schema(wanted.fields, wanted.row_class, wanted.scalar)


def result_schema(
    what: str,
    function: Callable[..., Any],
    returns: Any,
    location: SourceLocation,
    *,
    many: bool,
    maybe: bool = False,
) -> Schema:
    """Return the row type of a function's result or, with `many`, of the result's elements.

    maybe: None does not count as a row, so that `RowType | None` makes rows of RowType.

    Raises `WrongType` unless it is a function, `UnknownRowType` if its type is unknown.
    """
    if isinstance(function, Expr) or not callable(function):
        raise WrongType(
            f"{what} needs a function, got {render_argument(function)}",
            where=[location],
            fix="columns are computed from expressions by select(...) and with_columns(...)",
        )
    if inspect.iscoroutinefunction(function):
        raise WrongType(
            f"{what} needs a plain function, got the coroutine function {function.__name__}",
            where=[location],
            why="A tick awaits nothing: its rows would be coroutines.",
            fix="make it a plain `def`; await the outside world in a source, or in a sink of headrace.pull",
        )
    check_function(what, function, ("row",), location)
    if returns is not None:
        return schema_of(returns)
    try:
        annotation = typing.get_type_hints(function, include_extras=True).get("return")
    except (NameError, TypeError):
        annotation = None
    if annotation is None:
        raise _unknown_result(function, "It has no return annotation that can be read.", location, many)
    if many:
        items = typing.get_args(annotation)
        if not items:
            raise _unknown_result(function, "Its return annotation does not name the items.", location, many)
        annotation = items[0]
    return schema_of(_without_none(annotation) if maybe else annotation)


def _without_none(annotation: Any) -> Any:
    if typing.get_origin(annotation) not in (typing.Union, types.UnionType):
        return annotation
    return typing.Union[tuple(part for part in typing.get_args(annotation) if part is not type(None))]  # noqa: UP007


def _unknown_result(
    function: Callable[..., Any], why: str, location: SourceLocation, many: bool
) -> UnknownRowType:
    name = getattr(function, "__name__", type(function).__name__)
    is_lambda = name == "<lambda>"
    return UnknownRowType(
        f"the row type that {'the lambda' if is_lambda else name} makes is not known",
        where=[location],
        why="A lambda cannot be annotated." if is_lambda else why,
        fix=f"give returns=RowType, or use a function declared -> {'list[RowType]' if many else 'RowType'}",
    )
