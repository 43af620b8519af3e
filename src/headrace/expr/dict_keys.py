"""Conversion of values to dictionary keys, so that values grouped together by Spark are one key."""

from __future__ import annotations

from functools import partial, singledispatch
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.expr.code_runtime import NAN
from headrace.expr.sort_keys import any_key
from headrace.expr.types import (
    AnyType,
    DataType,
    FloatingType,
    ListType,
    MapType,
    Schema,
    StructType,
    holds_maps,
    parts_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Name = Callable[[str], tuple[str, str]]


def dict_key_source(type: DataType, nullable: bool, source: str, name: Name) -> str:
    """Return the source of the dict key for `source`. `name` binds a value that is used more than once."""
    return _key(type, nullable, source, name)


@singledispatch
def _key(type: DataType, nullable: bool, source: str, name: Name) -> str:
    return source


@_key.register(FloatingType)
def _float(type: FloatingType, nullable: bool, source: str, name: Name) -> str:
    # Canonical NaN is truthy and stays the same; both zeros are falsy.
    if not nullable:
        return f"({source} or 0.0)"
    first, again = name(source)
    return f"({again} if {first} or {again} is None else 0.0)"


@_key.register(AnyType)
def _any(type: AnyType, nullable: bool, source: str, name: Name) -> str:
    return f"x_key({source})"


@_key.register(StructType)
@_key.register(ListType)
@_key.register(MapType)
def _nested(type: DataType, nullable: bool, source: str, name: Name) -> str:
    if holds_maps(type):
        return f"x_key_with_maps({source}, {_shape(type)!r})"
    return f"x_key({source})" if has_representatives(type) else source


def has_representatives(type: DataType) -> bool:
    """Return whether different values of a type are equal, so that one of them represents the others.

    These are zeros, maps with their entries in another order, and values that contain them, as far as the
    type determines it.
    """
    return isinstance(type, FloatingType | MapType) or any(map(has_representatives, parts_of(type)))


def key_function(type: DataType) -> Callable[[Any], Any]:
    """Return a function from values to keys: the representative of those that are equal."""
    shape = _shape(type)
    return nested_key if shape is None else partial(key_with_maps, shape=shape)


def nested_key(value: object) -> object:
    """Convert a nested value to a key: floats at any depth canonical, -0.0 as 0.0. None is unchanged."""
    if type(value) is float:
        return (value or 0.0) if value == value else NAN
    if type(value) is tuple:
        return tuple(map(nested_key, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return value


Shape: TypeAlias = "tuple[Any, ...] | None"
"""Places of the maps in a value: a kind and the shapes of its parts, or None without maps."""


def _shape(type: DataType) -> Shape:
    if not holds_maps(type):
        return None
    if isinstance(type, MapType):
        return ("map", _shape(type.value))
    return ("list" if isinstance(type, ListType) else "struct", *map(_shape, parts_of(type)))


def key_with_maps(value: Any, shape: Shape) -> Any:
    """Convert a nested value to a key, as `nested_key` does, with the entries of maps sorted by key."""
    if value is None or shape is None:
        return nested_key(value)
    if shape[0] == "struct":
        return tuple(map(key_with_maps, value, shape[1:]))
    if shape[0] == "list":
        return tuple(key_with_maps(each, shape[1]) for each in value)
    return sorted_entries((nested_key(key), key_with_maps(each, shape[1])) for key, each in value)


def sorted_entries(entries: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, Any], ...]:
    """Return the entries of a map, sorted by key."""
    return tuple(sorted(entries, key=lambda entry: any_key(entry[0])))


def distinct_entries(entries: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, Any], ...] | None:
    """Return entries with keys as `nested_key` makes them, or None if two keys are equal."""
    listed = [(nested_key(key), value) for key, value in entries]
    made = dict(listed)
    return tuple(made.items()) if len(made) == len(listed) else None


def with_representatives(rows: Sequence[tuple[Any, ...]], schema: Schema) -> Sequence[tuple[Any, ...]]:
    """Replace values in rows that are counted by equality: -0.0 with 0.0, and maps with sorted ones.

    A weight after the columns is kept. Returns rows without floats and maps unchanged.
    """
    columns = [
        (at, key_function(f.type))
        for at, f in enumerate(schema.fields)
        if isinstance(f.type, AnyType) or has_representatives(f.type)
    ]
    if not columns:
        return rows
    made: list[tuple[Any, ...]] = []
    for row in rows:
        values = list(row)
        for at, key in columns:
            values[at] = key(values[at])
        made.append(tuple(values))
    return made


NAMES: dict[str, Any] = {"x_key": nested_key, "x_key_with_maps": key_with_maps}
