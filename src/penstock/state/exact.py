"""Values of any type in state: stored only if they come back as what they were.

A store knows sequences and mappings, and no classes: a list comes back as a tuple, and so
does a NamedTuple. Where a column says its type, the value is made of it again; where it may
be anything, what would come back as something else is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from types import NoneType
from typing import Any, cast

from penstock.errors import NotPlainData

_SINGLE = frozenset({NoneType, bool, int, float, str, bytes, Decimal, date, datetime})
_MANY = (tuple, frozenset)


@dataclass(frozen=True, slots=True)
class Exact:
    """An entry of state with values of any type, which must not come back as others."""

    value: Any


def check_exact(value: object) -> None:
    """Raises `NotPlainData` for a value that would come back from a store as another.

    What no store takes at all is left to the codec.
    """
    kind = type(value)
    if kind in _SINGLE:
        return
    if kind in _MANY:
        for part in cast("tuple[object, ...]", value):
            check_exact(part)
    elif kind is dict:
        for key, part in cast("dict[object, object]", value).items():
            check_exact(key)
            check_exact(part)
    elif isinstance(value, (list, dict, bytearray, *_SINGLE, *_MANY)):
        _refuse(value)


def _refuse(value: object) -> None:
    kind = type(value)
    plain = {*_SINGLE, *_MANY, dict}
    stored_as = {list: tuple, bytearray: bytes}.get(kind) or next(c for c in kind.__mro__ if c in plain)
    raise NotPlainData(
        f"a {kind.__name__} cannot be stored where any value may stand: {value!r:.100}",
        why=f"It would come back as a {stored_as.__name__} when the run goes on.",
        fix="say its type: returns= of a fold, carries= of a scan, or the function's return annotation;\n"
        "or keep numbers, text, tuples, dicts and frozensets, which come back as they are",
        type=kind.__name__,
    )
