"""Conversion of frozen dataclasses to plain data and back, for statuses, which gain fields over time."""

from __future__ import annotations

import dataclasses
import types
import typing
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar, cast

from headrace.compute.errors import BadMessage

T = TypeVar("T")


def to_plain(value: object) -> Any:
    """Convert dataclasses to dicts by field, and enums to their values, also within tuples."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return tuple(to_plain(each) for each in cast("tuple[object, ...]", value))
    return value


def from_plain(wanted: type[T], plain: object) -> T:
    """Convert plain data back to a dataclass. Unknown fields are ignored; raises `BadMessage` for a missing
    required field."""
    try:
        return _made(wanted, plain)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise BadMessage(
            f"what was sent is no {wanted.__name__}",
            why=f"{type(error).__name__}: {error}",
            fix="use a client of the version of the controller",
            field=wanted.__name__,
        ) from error


@lru_cache(maxsize=64)
def _hints(wanted: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(wanted)


def _made(wanted: Any, plain: Any) -> Any:
    origin = typing.get_origin(wanted)
    if origin is tuple:
        of = typing.get_args(wanted)[0]
        return tuple(_made(of, each) for each in plain)
    if origin in (types.UnionType, typing.Union):
        inner = [of for of in typing.get_args(wanted) if of is not types.NoneType]
        return None if plain is None else _made(inner[0], plain)
    if dataclasses.is_dataclass(wanted):
        hints = _hints(cast("type[Any]", wanted))
        return cast("Any", wanted)(
            **{name: _made(hints[name], plain[name]) for name in hints if name in plain}
        )
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        return wanted(plain)
    return plain
