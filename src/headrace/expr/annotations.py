"""Conversion of Python annotations to column types."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, TypeAlias, cast

from headrace.errors import SourceLocation, UnknownRowType
from headrace.expr.types import (
    ANY,
    BOOL,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT64,
    INTEGERS,
    INTERVAL,
    INTERVALS,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    AnyType,
    DataType,
    DecimalType,
    Field,
    Float32Type,
    Int8Type,
    Int16Type,
    Int32Type,
    ListType,
    MapType,
    StructType,
    TimestampNtzType,
    holds_any,
    holds_maps,
)

Int8: TypeAlias = Annotated[int, Int8Type()]
Int16: TypeAlias = Annotated[int, Int16Type()]
Int32: TypeAlias = Annotated[int, Int32Type()]
Float32: TypeAlias = Annotated[float, Float32Type()]
TimestampNtz: TypeAlias = Annotated[datetime, TimestampNtzType()]

_PLAIN: dict[object, DataType] = {
    bool: BOOL,
    int: INT64,
    float: FLOAT64,
    Decimal: DecimalType(),
    str: STR,
    bytes: BYTES,
    date: DATE,
    datetime: TIMESTAMP,
    timedelta: INTERVAL,
    object: ANY,
    Any: ANY,
}
_NAMES: dict[str, DataType] = {
    "bool": BOOL,
    "int": INT64,
    **{str(each): each for each in INTEGERS},
    "float": FLOAT64,
    "float32": FLOAT32,
    "float64": FLOAT64,
    "str": STR,
    "bytes": BYTES,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "interval": INTERVAL,
    **{str(each): each for each in INTERVALS},
    "any": ANY,
}
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\)")
_MAX_PRECISION = 38


def as_type(wanted: Any) -> DataType:
    """Convert an annotation, a `DataType` or a name ("int32", "decimal(12,2)") to a type.

    Raises `UnknownRowType` for anything else.
    """
    if isinstance(wanted, DataType):
        return _valid(wanted)
    if isinstance(wanted, str):
        decimal = _DECIMAL.fullmatch(wanted)
        if decimal is not None:
            return _valid(DecimalType(int(decimal[1]), int(decimal[2])))
        if wanted in _NAMES:
            return _NAMES[wanted]
        raise _unknown(f"unknown type {wanted!r}", "")
    return as_field("", wanted).type


def _valid(wanted: DataType) -> DataType:
    if isinstance(wanted, DecimalType) and not (
        1 <= wanted.precision <= _MAX_PRECISION and 0 <= wanted.scale <= wanted.precision
    ):
        raise UnknownRowType(
            f"{wanted} is not a decimal type",
            where=[SourceLocation.of_caller()],
            why="the precision is 1 to 38 digits, and the scale at most that.",
        )
    return wanted


def as_field(name: str, annotation: Any) -> Field:
    """Convert an annotation to a column. Raises `UnknownRowType`."""
    nullable = False
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        options = typing.get_args(annotation)
        rest = [o for o in options if o is not types.NoneType]
        if len(rest) != 1 or len(rest) == len(options):
            raise _unknown(f"a column cannot be one of several types: {annotation}", name)
        nullable, annotation = True, rest[0]
    if typing.get_origin(annotation) is Annotated:
        base, *marks = typing.get_args(annotation)
        declared = next((_valid(m) for m in marks if isinstance(m, DataType)), None)
        if declared is not None:
            return Field(name, declared, nullable)
        inner = as_field(name, base)
        return Field(name, inner.type, nullable or inner.nullable)
    type = _type_of(name, annotation)
    # None is an object, too.
    return Field(name, type, nullable or isinstance(type, AnyType))


def _type_of(name: str, annotation: Any) -> DataType:
    try:
        plain = _PLAIN.get(annotation)
    except TypeError:
        plain = None
    if plain is not None:
        return plain
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list or origin is Sequence or (origin is tuple and arguments[1:] == (...,)):
        element = as_field(name, arguments[0])
        return ListType(element.type, element.nullable)
    if origin is dict or origin is Mapping:
        return _map_type(name, annotation, *arguments)
    if is_row_class(annotation):
        return StructType(fields_of(annotation), annotation)
    raise _unknown(f"{getattr(annotation, '__name__', annotation)} is not a column type", name)


def _map_type(name: str, annotation: Any, key: Any, value: Any) -> MapType:
    keys, values = as_field(name, key), as_field(name, value)
    if keys.nullable or holds_maps(keys.type) or holds_any(keys.type) or _is_unhashable(key):
        raise _unknown(f"the keys of {annotation} cannot be {key}", name)
    if holds_any(values.type):
        raise _unknown(f"the values of {annotation} are of any type", name)
    return MapType(keys.type, values.type, values.nullable)


def _is_unhashable(key: Any) -> bool:
    return (typing.get_origin(key) or key) is list or getattr(key, "__hash__", None) is None


def is_row_class(annotation: Any) -> bool:
    """Return whether a value is a `NamedTuple` class or a dataclass."""
    if not isinstance(annotation, type):
        return False
    return dataclasses.is_dataclass(annotation) or (
        issubclass(annotation, tuple) and hasattr(cast("Any", annotation), "_fields")
    )


def fields_of(row_class: type) -> tuple[Field, ...]:
    """Return the columns of a `NamedTuple` or dataclass. Raises `UnknownRowType`."""
    try:
        hints = typing.get_type_hints(row_class, include_extras=True)
    except (NameError, TypeError) as error:
        raise UnknownRowType(
            f"the annotations of {row_class.__name__} cannot be read: {error}",
            where=[SourceLocation.of_caller()],
            why="with `from __future__ import annotations` a name must be known in the module.",
            fix="define the row classes at module level",
        ) from error
    if dataclasses.is_dataclass(row_class):
        names = tuple(f.name for f in dataclasses.fields(row_class))
    else:
        names = cast("tuple[str, ...]", cast("Any", row_class)._fields)
    missing = [n for n in names if n not in hints]
    called = cast("Any", row_class).__name__
    if missing or not names:
        raise UnknownRowType(
            f"{called} has no type for {missing[0]!r}" if missing else f"{called} is empty",
            where=[SourceLocation.of_caller()],
            fix="write a NamedTuple or a dataclass with an annotation for each field",
        )
    return tuple(as_field(n, hints[n]) for n in names)


def _unknown(what: str, name: str) -> UnknownRowType:
    return UnknownRowType(
        f"{what} (column {name!r})" if name else what,
        where=[SourceLocation.of_caller()],
        why="Columns are bool, int, Int8, Int16, Int32, float, Float32, Decimal, str, bytes, date,\n"
        "datetime, TimestampNtz, timedelta, lists of these, maps (dict[str, int]),\n"
        "and nested NamedTuples or dataclasses.",
        fix="for a null write `T | None`; for digits `Annotated[Decimal, DecimalType(12, 2)]`",
    )
