"""Time spans given by users, in the unit of the column or signal they apply to."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from headrace.errors import WrongType
from headrace.expr.time_texts import UNITS, duration, format_duration, too_long_error
from headrace.expr.types import FLOAT64, INT64, INTEGERS, TIMESTAMP, DataType
from headrace.operators.column_arguments import render_argument

if TYPE_CHECKING:
    from headrace.errors import SourceLocation
    from headrace.graph.check_context import CheckContext

Span: TypeAlias = "timedelta | int | float"
"""Difference of two times of a column: a timedelta for timestamps, a number for numbers."""
GivenSpan: TypeAlias = "timedelta | str | int | float"
"""Time span as written by users: "10s", a timedelta, or a number of seconds or of a numeric column's unit."""
Unit: TypeAlias = Literal["us", "ms", "s", "m", "h", "d", "w"]

TIME_TYPES: tuple[DataType, ...] = (TIMESTAMP, *INTEGERS, FLOAT64)
"""Types of columns that may hold event time."""
_MAX_INT64 = 2**63 - 1


def span_in_unit(
    given: object,
    type: DataType,
    unit: Unit | None,
    what: str,
    location: SourceLocation,
    *,
    may_be_zero: bool = False,
) -> Span:
    """Convert a user's span to the unit of a column of `type`, one of `TIME_TYPES`.

    unit: unit of a column of numbers; required to give spans as time.
    what: name of the span in errors, which are `WrongType`.
    """
    if type == TIMESTAMP:
        span: Span = time_span(given, what, location)
    elif isinstance(given, str | timedelta):
        span = _in_units(duration(given), type, unit, what, location)
    else:
        span = _number(given, type, what, location)
    least = timedelta() if isinstance(span, timedelta) else 0
    if span < least or (not may_be_zero and span == least):  # type: ignore[operator]
        raise WrongType(
            f"{what} is {shown_span(span)}",
            where=[location],
            fix="give 0 or more" if may_be_zero else "give more than 0",
        )
    return span


def check_span(span: Span, type: DataType, context: CheckContext, *, may_be_zero: bool = False) -> None:
    """Raise `WrongType` unless a value is a span for a column of `type`."""
    same = span_in_unit(span, type, None, "a span", context.location, may_be_zero=may_be_zero)
    context.require_as_built_by_flow(same, span, "a span is of another type than its column")


def time_span(given: object, what: str, location: SourceLocation) -> timedelta:
    """Convert text, a `timedelta`, or a number of seconds to a span. Raises `WrongType`."""
    if isinstance(given, str | timedelta):
        return duration(given)
    if isinstance(given, int | float) and not isinstance(given, bool) and given - given == 0:
        try:
            return timedelta(seconds=given)
        except OverflowError:
            raise too_long_error(what, render_argument(given), location) from None
    raise WrongType(
        f"{what} needs a span of time, got {render_argument(given)}",
        where=[location],
        fix='write "10s", "5 min", "1h 30m", a timedelta, or a number of seconds',
    )


def _in_units(
    span: timedelta, type: DataType, unit: Unit | None, what: str, location: SourceLocation
) -> int | float:
    if unit is None:
        raise WrongType(
            f"{what} is {format_duration(span)}, and the column holds numbers",
            where=[location],
            why="Nothing says what a 1 in it stands for.",
            fix='say unit="ms", or "s", "us", ...; or give a number as the column has them',
        )
    if unit not in UNITS:
        raise WrongType(
            f"unknown unit {render_argument(unit)}", where=[location], fix=f"one of {', '.join(UNITS)}"
        )
    if type == FLOAT64:
        return span / UNITS[unit]
    count, rest = divmod(span, UNITS[unit])
    if rest:
        raise WrongType(
            f"{what} is {format_duration(span)}, which is not a whole number of {unit}",
            where=[location],
            why=f"The column holds whole numbers of {unit}.",
            fix=f"round it, or let the column count a smaller unit than {unit}",
        )
    return count


def _number(given: object, type: DataType, what: str, location: SourceLocation) -> int | float:
    whole = type != FLOAT64
    if isinstance(given, bool) or not isinstance(given, int if whole else int | float) or given - given != 0:
        raise WrongType(
            f"{what} is {'a whole number' if whole else 'a number'}, got {render_argument(given)}",
            where=[location],
            why=f"The column is {type}: spans are in its own unit.",
            fix='write 10, say, or unit="s" and text such as "10s"',
        )
    if abs(given) > (_MAX_INT64 if whole else sys.float_info.max):
        raise WrongType(
            f"{what} is too large: {render_argument(given)}",
            where=[location],
            why=f"The column is {type}: a span is in its own unit, and fits {INT64 if whole else FLOAT64}.",
            fix='write 10, say, or unit="s" and text such as "10s"',
        )
    return given if whole else float(given)


def shown_span(span: Span) -> str:
    """Format a span for `explain` and errors."""
    return format_duration(span) if isinstance(span, timedelta) else str(span)
