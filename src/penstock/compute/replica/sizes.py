"""How many bytes rows have, for the limits: about what they take in a message, alike on all replicas."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from typing import Any

from penstock.compute.protocol.responses import Counted, Row

_OVERHEAD = 8
"""Of a row: its count."""
_FIXED: dict[type, int] = {bool: 1, int: 8, float: 8, type(None): 1, Decimal: 16, date: 8}
_VARIABLE = 4
"""Of a value of no fixed size: its length."""


def row_size(row: Row) -> int:
    """The bytes of a row with its count."""
    size = _OVERHEAD
    for value in row:
        size += _FIXED.get(value.__class__) or _size(value)
    return size


def rows_size(rows: Iterable[Counted]) -> int:
    """The bytes of rows, each counted once."""
    return sum(row_size(row) for row, _ in rows)


def _size(value: Any) -> int:
    if isinstance(value, str | bytes):
        return _VARIABLE + len(value)
    if isinstance(value, tuple | frozenset):
        return _VARIABLE + sum(_FIXED.get(v.__class__) or _size(v) for v in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType, reportUnknownMemberType]
    return 8
