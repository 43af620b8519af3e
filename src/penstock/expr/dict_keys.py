"""Conversion of values to dictionary keys, so that values grouped together by Spark are one key."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any

from penstock.expr.code_runtime import NAN
from penstock.expr.types import AnyType, DataType, Float64Type, ListType, Schema, StructType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Name = Callable[[str], tuple[str, str]]


def dict_key_source(type: DataType, nullable: bool, source: str, name: Name) -> str:
    """Return the source of the dict key for `source`. `name` binds a value that is used more than once."""
    return _key(type, nullable, source, name)


@singledispatch
def _key(type: DataType, nullable: bool, source: str, name: Name) -> str:
    return source


@_key.register(Float64Type)
def _float(type: Float64Type, nullable: bool, source: str, name: Name) -> str:
    # Canonical NaN is truthy and stays the same; both zeros are falsy.
    if not nullable:
        return f"({source} or 0.0)"
    first, again = name(source)
    return f"({again} if {first} or {again} is None else 0.0)"


@_key.register(AnyType)
def _any(type: AnyType, nullable: bool, source: str, name: Name) -> str:
    return f"x_key({source})"


@_key.register(StructType)
def _struct(type: StructType, nullable: bool, source: str, name: Name) -> str:
    return f"x_key({source})" if holds_floats(type) else source


@_key.register(ListType)
def _list(type: ListType, nullable: bool, source: str, name: Name) -> str:
    return f"x_key({source})" if holds_floats(type) else source


def holds_floats(type: DataType) -> bool:
    """Return whether values of a type are floats or contain them, as far as the type determines it."""
    if isinstance(type, StructType):
        return any(holds_floats(f.type) for f in type.fields)
    return holds_floats(type.element) if isinstance(type, ListType) else isinstance(type, Float64Type)


def nested_key(value: object) -> object:
    """Convert a nested value to a key: floats at any depth canonical, -0.0 as 0.0. None is unchanged."""
    if type(value) is float:
        return (value or 0.0) if value == value else NAN
    if type(value) is tuple:
        return tuple(map(nested_key, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return value


def with_one_zero(rows: Sequence[tuple[Any, ...]], schema: Schema) -> Sequence[tuple[Any, ...]]:
    """Replace -0.0 with 0.0 in rows that are counted by equality. Returns rows without floats unchanged.

    A weight after the columns is kept.
    """
    columns = [
        at for at, f in enumerate(schema.fields) if isinstance(f.type, AnyType) or holds_floats(f.type)
    ]
    if not columns:
        return rows
    made: list[tuple[Any, ...]] = []
    for row in rows:
        values = list(row)
        for at in columns:
            values[at] = nested_key(values[at])
        made.append(tuple(values))
    return made


NAMES: dict[str, Any] = {"x_key": nested_key}
