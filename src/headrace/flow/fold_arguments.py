"""Conversion of fold method arguments to operator parameters and schemas."""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from enum import Enum
from types import BuiltinFunctionType, FunctionType
from typing import Any, cast

from headrace.errors import BadRow, SourceLocation, UnknownRowType, WrongType
from headrace.expr.check import check, check_ordered
from headrace.expr.row_classes import computed_schema, from_user, schema_of
from headrace.expr.tree import Column, Expr, Ordering
from headrace.expr.types import Field, Schema, StructType, is_row_class
from headrace.operators.aggregate.aggregation import Aggregation
from headrace.operators.column_arguments import named_columns, render_argument

Keys = tuple[tuple[str, Expr], ...]


def check_function(what: str, function: object, location: SourceLocation) -> None:
    """Raise `WrongType` unless a value is callable."""
    if isinstance(function, Expr | Aggregation) or not callable(function):
        raise WrongType(
            f"{what} needs a function of what is accumulated and a row, got {render_argument(function)}",
            where=[location],
            fix="aggregates stand in group_by(...).agg(...)"
            if isinstance(function, Expr | Aggregation)
            else "lambda accumulated, row: ..., or a function of two arguments",
        )


def check_lattice(what: str, lattice: object, location: SourceLocation) -> None:
    """Raise `WrongType` unless a value is a lattice, including all lattices that it is composed of."""
    from headrace.lattice import Lattice

    if not isinstance(lattice, Lattice):
        raise WrongType(
            f"{what} needs a lattice, got {render_argument(lattice)}",
            where=[location],
            fix="one of headrace.lattice: Max(), SetUnion(), Pair(Max(), Min())",
        )
    for part in lattice.parts:
        check_lattice(type(lattice).__name__, part, location)


def check_numbering(start: object, index: object, location: SourceLocation) -> None:
    """Raise `WrongType` for an invalid start or column name of `enumerate`."""
    if not isinstance(start, int) or isinstance(start, bool) or not -(2**63) <= start < 2**63:
        raise WrongType(
            f"enumerate begins with a whole number of 64 bits, got {render_argument(start)}",
            where=[location],
            fix="start=1",
        )
    if not isinstance(index, str):
        raise WrongType(
            f"enumerate needs the name of a column, got {render_argument(index)}",
            where=[location],
            fix='index="number"',
        )


def accumulated_schema(function: Callable[..., Any], returns: Any, init: object) -> Schema:
    """Return the accumulated value's schema: given, annotated, or derived from `init`; else any value."""
    if returns is not None:
        return schema_of(returns)
    annotated = _returned(function)
    if annotated is not None:
        return _schema_or_any(annotated)
    return _schema_or_any(type(init() if callable(init) else init))


def scanned_schema(function: Callable[..., Any], returns: Any) -> Schema:
    """Return the row type of a scan's output: given or annotated; otherwise any value."""
    if returns is not None:
        return schema_of(returns)
    pair = _returned_pair(function)
    return schema_of(object) if pair is None else _schema_or_any(pair[1])


def carried_schema(function: Callable[..., Any], carries: Any, init: object) -> Schema:
    """Return the type of the value that a scan carries: given, annotated, or derived from `init`."""
    if carries is not None:
        return schema_of(carries)
    pair = _returned_pair(function)
    if pair is not None:
        return _schema_or_any(pair[0])
    kind = type(init() if callable(init) else init)
    return _schema_or_any(kind) if is_row_class(kind) else schema_of(object)


def _returned_pair(function: Callable[..., Any]) -> tuple[Any, Any] | None:
    """Return the element types of a pair in a return annotation."""
    returned = _returned(function)
    for option in (returned, *typing.get_args(returned)):
        if typing.get_origin(option) is tuple and len(typing.get_args(option)) == 2:
            first, second = typing.get_args(option)
            return first, second
    return None


def _returned(function: Callable[..., Any]) -> Any:
    try:
        return typing.get_type_hints(function, include_extras=True).get("return")
    except (NameError, TypeError):
        return None


def _schema_or_any(type_: Any) -> Schema:
    """Return the schema of an inferred type; the schema of any value if a column cannot have that type."""
    try:
        return schema_of(type_)
    except UnknownRowType:
        return schema_of(object)


def check_init(what: str, init: object, schema: Schema, location: SourceLocation) -> None:
    """Raise `WrongType` for an `init` that does not fit the accumulated type or cannot be compared."""
    value = init() if callable(init) else init
    try:
        from_user(schema, what="init")([value])
    except BadRow as error:
        raise WrongType(
            f"{what} cannot begin with {render_argument(value)}: it accumulates {schema}",
            where=[location],
            why=error.why,
            fix="give returns= the type of what the function gives, and an init of that type",
        ) from None
    if _is_one_object(value):
        raise WrongType(
            f"{what} cannot begin with {render_argument(value)}: "
            f"its class {type(value).__name__} compares by identity",
            where=[location],
            why="What was accumulated is compared with what was sent before, and an object that the\n"
            "function alters is the same object still: it would never be sent again.",
            fix="accumulate plain data (numbers, a NamedTuple), and let the function make a new value;\n"
            "or give the class an __eq__ and a __hash__, and never alter its objects",
        )


def _is_one_object(value: object) -> bool:
    """Return whether a value is mutable or equal only to itself."""
    kind = type(value)
    if value is None or isinstance(value, Enum | type | FunctionType | BuiltinFunctionType):
        return False
    return kind.__eq__ is object.__eq__ and kind.__hash__ is object.__hash__


def key_columns(what: str, by: object, schema: Schema, location: SourceLocation) -> Keys:
    """Convert a name, a column, or several of them to named key columns."""
    listed = cast("Sequence[object]", by) if isinstance(by, list | tuple) else [by]
    keys = named_columns(listed, location)
    for _, expr in keys:
        check(expr, schema)
    if not keys and what.endswith("_keyed"):
        raise WrongType(
            f"{what} needs a key",
            where=[location],
            fix=f'{what}("word", ...); without keys it is {what.removesuffix("_keyed")}()',
        )
    return keys


def item_column(what: str, value: object, schema: Schema, location: SourceLocation, keys: Keys = ()) -> Expr:
    """Return the expression of the folded item: the given one, or the only non-key column."""
    if isinstance(value, Expr):
        check(value, schema)
        return value
    if isinstance(value, str):
        check(Column(value), schema)
        return Column(value)
    if value is not None:
        raise WrongType(
            f"{what} folds a column, got {render_argument(value)}",
            where=[location],
            fix='value="price", or an expression',
        )
    rest = [n for n in schema.names if n not in {name for name, _ in keys}]
    if len(rest) != 1:
        raise WrongType(
            f"{what} cannot choose what to fold: {len(rest)} columns are not keys",
            where=[location],
            why=f"The rows have {schema}.",
            fix='say it: value="price", or an expression',
        )
    return Column(rest[0])


def value_column_type(schema: Schema, name: str) -> Schema:
    """Return the type of a single value as the type of a column."""
    (field, *more) = schema.fields
    if schema.scalar:
        return Schema((Field(name, field.type, field.nullable),), scalar=True)
    return Schema((Field(name, StructType((field, *more), schema.row_class)),), scalar=True)


def with_columns_before(
    keys: Keys, fields: Sequence[Field], schema: Schema, location: SourceLocation
) -> Schema:
    """Return the schema of key columns followed by others."""
    columns = [Field(n, (typed := check(e, schema)).type, typed.nullable) for n, e in keys]
    columns.extend(fields)
    names = [f.name for f in columns]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise WrongType(
            f"column {twice[0]!r} is made twice",
            where=[location],
            fix='give one of them another name: select() before, or into="...", index="..."',
            column=twice[0],
        )
    return computed_schema(tuple(columns))


def parse_orderings(
    by: object, schema: Schema, location: SourceLocation
) -> tuple[Ordering | Callable[..., object], ...]:
    """Convert one or several sort keys to orderings."""
    found: list[Ordering | Callable[..., object]] = []
    for one in cast("Sequence[object]", by) if isinstance(by, list | tuple) else [by]:
        ordering = Ordering(Column(one)) if isinstance(one, str) else one
        ordering = Ordering(ordering) if isinstance(ordering, Expr) else ordering
        if isinstance(ordering, Ordering):
            check_ordered(ordering.expr, schema)
        elif not callable(ordering):
            raise WrongType(
                f"sort needs columns, expressions or functions of a row, got {render_argument(one)}",
                where=[location],
                fix='sort("price"), sort(hr.col.price.desc()), sort(lambda row: row.price)',
            )
        found.append(ordering)
    return tuple(found)
