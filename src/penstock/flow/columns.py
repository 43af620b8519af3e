"""From the arguments of stream methods to columns and schemas."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from typing import Any

from penstock.errors import Place, UnknownRowType, WrongType
from penstock.expr.rows import schema_of
from penstock.expr.tree import Column, Expr
from penstock.expr.types import Schema
from penstock.flow.aggregates import Aggregation


def own_keywords(named: dict[str, Any]) -> tuple[type | None, str | None]:
    """Take a method's own `into` and `name` out of its keyword arguments, all others of which are columns.

    A column may be called so too: its value is an expression or an aggregate,
    never a class or text.
    """
    into = named.pop("into") if isinstance(named.get("into"), type | None) and "into" in named else None
    name = named.pop("name") if isinstance(named.get("name"), str | None) and "name" in named else None
    return into, name


def computed_columns(named: dict[str, Any], place: Place) -> tuple[tuple[str, Expr], ...]:
    """Columns from keyword arguments. Raises `WrongType` for what is no expression."""
    for name, value in named.items():
        if not isinstance(value, Expr):
            raise WrongType(
                f"column {name!r} needs an expression, got {value!r}",
                where=[place],
                fix=_expression_instead(name, value),
                column=name,
            )
    return tuple(named.items())


def _expression_instead(name: str, value: object) -> str:
    if isinstance(value, str):
        return f"{name}=ps.col.{value} for a column, {name}=ps.lit({value!r}) for the text"
    if isinstance(value, Aggregation):
        return f"group_by(...).agg({name}={value})"
    if callable(value):
        return "map() takes functions; a column is computed by an expression such as ps.col.price * 2"
    return f"{name}=ps.lit({value!r})"


def check_aggregations(named: dict[str, Any], place: Place) -> None:
    """Raises `WrongType` for a keyword argument of `agg` that is no aggregate."""
    for name, value in named.items():
        if not isinstance(value, Aggregation):
            raise WrongType(
                f"column {name!r} needs an aggregate, got {value}",
                where=[place],
                fix=f"{name}=ps.max({value}), or another aggregate; or make it a group key",
                column=name,
            )


def named_columns(columns: Sequence[Expr | str], place: Place) -> tuple[tuple[str, Expr], ...]:
    named: list[tuple[str, Expr]] = []
    for column in columns:
        if isinstance(column, str):
            named.append((column, Column(column)))
        elif isinstance(column, Column):
            named.append((column.name, column))
        else:
            raise WrongType(f"a computed column needs a name: {column}", where=[place], fix=f"name={column}")
    return tuple(named)


def all_columns(schema: Schema) -> tuple[Expr, ...]:
    return tuple(Column(n) for n in schema.names)


def as_class(schema: Schema, into: Any, place: Place) -> Schema:
    """`schema` seen as rows of the class `into`, whose columns it must have."""
    wanted = schema_of(into)
    mine = [(f.name, f.type) for f in schema.fields]
    theirs = [(f.name, f.type) for f in wanted.fields]
    loose = [
        f.name for f, w in zip(schema.fields, wanted.fields, strict=False) if f.nullable and not w.nullable
    ]
    if mine != theirs or loose:
        raise WrongType(
            f"the rows do not fit {getattr(into, '__name__', into)}",
            where=[place],
            why=f"they have {schema}, the class has {wanted}.",
            fix="names, types and order must agree; a nullable column needs `| None` in the class, or coalesce()",
        )
    return Schema(wanted.fields, wanted.row_class, wanted.scalar)


def result_schema(function: Callable[..., Any], returns: Any, place: Place, *, many: bool) -> Schema:
    if not callable(function):
        raise WrongType(f"a function is needed, got {function!r}", where=[place])
    if returns is not None:
        return schema_of(returns)
    try:
        annotation = typing.get_type_hints(function).get("return")
    except (NameError, TypeError):
        annotation = None
    if many and annotation is not None:
        arguments = typing.get_args(annotation)
        annotation = arguments[0] if arguments else None
    if annotation is None:
        raise UnknownRowType(
            f"the row type that {getattr(function, '__name__', function)} makes is not known",
            where=[place],
            why="it has no return annotation, and a lambda cannot have one.",
            fix="annotate the function's result, or give returns=RowType",
        )
    return schema_of(annotation)
