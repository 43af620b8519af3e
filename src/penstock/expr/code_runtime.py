"""Runtime functions called by generated code.

All of them are in `penstock.expr.compile_python.RUNTIME`; every name starts with `x_`. Unless their
docstring says otherwise, functions receive only non-null values. They raise `EvaluationError`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NoReturn

from penstock.errors import EvaluationError

NAN = float("nan")
"""Only NaN object that rows may hold, so that tuples with NaN compare and hash equal."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def raise_overflow(value: object, type: str) -> NoReturn:
    """Raise for a result out of range of its type.

    The error's fact `beyond_years` is whether Spark has the value: a time outside the years 1 to 9999.
    """
    years = type in ("date", "timestamp")
    raise EvaluationError(f"overflow: {value} does not fit {type}", beyond_years=years)


def raise_zero_division() -> NoReturn:
    """Raise for a division by zero."""
    raise EvaluationError("division by zero")


NAMES: dict[str, Any] = {
    "x_nan": NAN,
    "x_epoch": EPOCH,
    "x_overflow": raise_overflow,
    "x_zero_division": raise_zero_division,
}
