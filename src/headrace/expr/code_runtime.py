"""Runtime functions called by generated code.

All of them are in `headrace.expr.compile_python.RUNTIME`; every name starts with `x_`. Unless their
docstring says otherwise, functions receive only non-null values. They raise `EvaluationError`.
"""

from __future__ import annotations

import struct
from ctypes import c_float
from datetime import UTC, datetime
from decimal import Decimal
from math import nextafter
from typing import Any, NoReturn

from headrace.errors import EvaluationError

NAN = float("nan")
"""Only NaN object that rows may hold, so that tuples with NaN compare and hash equal."""


def float32(value: float) -> float:
    """Round to 32 bits; beyond them is infinity."""
    return c_float(value).value if value == value else NAN


def float32_of_exact(value: int | Decimal) -> float:
    """Round an exact number to 32 bits, once."""
    try:
        near = float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    if (
        near != value
        and near - near == 0.0
        and struct.unpack("<Q", struct.pack("<d", near))[0] & _REST == _HALF
    ):
        # Rounded to 64 bits first, it would seem to lie half-way.
        near = nextafter(near, float("inf") if value > near else float("-inf"))
    return float32(near)


_REST, _HALF = (1 << 29) - 1, 1 << 28
"""The bits of a float that a shorter one lacks, and which of them are set half-way between two."""


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def raise_overflow(value: object, type: str) -> NoReturn:
    """Raise for a result out of range of its type.

    The error's fact `beyond_years` is whether Spark has the value: a time outside the years 1 to 9999.
    """
    years = type in ("date", "timestamp")
    raise EvaluationError(f"overflow: {value} does not fit {type}", beyond_years=years)


def utf8(text: str) -> bytes:
    """Return a text as UTF-8. Raises for halves of characters, which only Python's texts can hold."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise EvaluationError(
            f"a text holds {half!r}, half of a character, and has no bytes",
            fix="replace it where the rows are made: text.encode(errors='replace').decode()",
        ) from None


def raise_zero_division() -> NoReturn:
    """Raise for a division by zero."""
    raise EvaluationError("division by zero")


NAMES: dict[str, Any] = {
    "x_utf8": utf8,
    "x_nan": NAN,
    "x_f32": float32,
    "x_f32_of_exact": float32_of_exact,
    "x_epoch": EPOCH,
    "x_overflow": raise_overflow,
    "x_zero_division": raise_zero_division,
}
