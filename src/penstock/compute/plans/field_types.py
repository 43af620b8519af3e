"""Whether a value is of the kind that a field of an operator declares."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any, cast

from penstock.compute.plans.registry import CHOICE_NAMES, RECORD_NAMES
from penstock.expr.tree import Expr
from penstock.expr.types import DataType, Schema

_UNIONS = (typing.Union, types.UnionType)


def fits(value: object, hint: Any) -> bool:
    """Whether a value is what an annotation says; of numbers and text exactly that, no subclass."""
    if hint is object:
        return _is_plain(value)
    if hint is None or hint is type(None):
        return value is None
    origin = typing.get_origin(hint)
    if origin in _UNIONS:
        return any(fits(value, option) for option in typing.get_args(hint))
    if origin is tuple:
        return type(value) is tuple and _items_fit(cast("tuple[object, ...]", value), typing.get_args(hint))
    if origin is Callable:
        return callable(value)
    if isinstance(hint, type) and issubclass(hint, Expr | DataType | Enum):
        return isinstance(value, hint)
    # A base such as `Aggregation` stands for all that is registered of it.
    return type(value) is hint or (type(value) in RECORD_NAMES and isinstance(value, hint))


def _items_fit(value: tuple[object, ...], hints: tuple[Any, ...]) -> bool:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(fits(item, hints[0]) for item in value)
    return len(value) == len(hints) and all(map(fits, value, hints))


def _is_plain(value: object) -> bool:
    """Whether it is a value that users give, not a part of an operator."""
    if isinstance(value, tuple | frozenset):
        return all(map(_is_plain, cast("tuple[object, ...]", value)))
    parts = type(value) in RECORD_NAMES or type(value) in CHOICE_NAMES
    return not parts and not isinstance(value, Expr | DataType | Schema)
