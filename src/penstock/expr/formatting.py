"""From values to text, as Spark's casts to string write them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from penstock.errors import EvaluationError

_LEAST_PLAIN = 1e-3
_GREATEST_PLAIN = 1e7


def of_bool(value: bool) -> str:
    return "true" if value else "false"


def of_float(value: float) -> str:
    """The shortest digits that read back as `value`, laid out as Java does: 1.0E20, 0.001, Infinity."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    size = abs(value)
    if size == 0.0 or _LEAST_PLAIN <= size < _GREATEST_PLAIN:
        return repr(value)
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        mantissa, _, exponent = _scientific(value).partition("e")
    if "." not in mantissa:
        # Java shows two digits at least: of all pairs that read back, the nearest.
        nearest = f"{value:.1e}"
        mantissa = nearest.partition("e")[0] if float(nearest) == value else f"{mantissa}.0"
    return f"{mantissa}E{int(exponent)}"


def _scientific(value: float) -> str:
    for digits in range(17):
        shown = f"{value:.{digits}e}"
        if float(shown) == value:
            return shown
    return f"{value:.17e}"


def of_timestamp(value: datetime) -> str:
    """year-month-day hour:minute:second in UTC, with as much of a fraction as there is."""
    shown = value.replace(tzinfo=None).isoformat(" ")
    return shown.rstrip("0") if value.microsecond else shown


def of_bytes(value: bytes) -> str:
    """The text that UTF-8 bytes say."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError(f"{value[:20]!r} is no UTF-8 text") from None


NAMES: dict[str, Any] = {
    "x_str_of_bool": of_bool,
    "x_str_of_float": of_float,
    "x_str_of_timestamp": of_timestamp,
    "x_str_of_bytes": of_bytes,
}
