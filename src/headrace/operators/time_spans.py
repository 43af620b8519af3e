"""Time spans and shapes of event-time windows, as users declare them (`hr.tumbling(col.at, "10s")`).

A span is in the unit of the column or signal that it applies to.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from headrace.errors import SourceLocation, WrongType
from headrace.expr.time_texts import UNITS, duration, format_duration, too_long_error
from headrace.expr.tree import Expr
from headrace.expr.types import FLOAT64, INT64, INTEGERS, TIMESTAMP, DataType
from headrace.operators.column_arguments import check_expression, render_argument

if TYPE_CHECKING:
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


@dataclass(frozen=True, slots=True)
class Grid:
    """Windows of fixed size that begin at every multiple of `every`, offset by `offset` from 1970 or 0.

    Windows exclude their end. Every time is in at least one, since `every` is at most `size`.
    """

    size: Span
    every: Span
    offset: Span | None = None

    @property
    def tumbles(self) -> bool:
        """Whether each time belongs to exactly one window."""
        return self.size == self.every

    def __str__(self) -> str:
        offset = "" if self.offset is None else f" from {shown_span(self.offset)}"
        if self.tumbles:
            return f"tumbling {shown_span(self.size)}{offset}"
        return f"sliding {shown_span(self.size)} every {shown_span(self.every)}{offset}"


@dataclass(frozen=True, slots=True)
class Sessions:
    """Session windows: rows of one key less than `gap` apart share a window."""

    gap: Span

    def __str__(self) -> str:
        return f"sessions apart by {shown_span(self.gap)}"


Shape: TypeAlias = Grid | Sessions


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows over a time column, as declared by users for `group_by(window=...)`.

    given: spans by name, as written by users.
    """

    time: Expr
    given: dict[str, GivenSpan]
    unit: Unit | None

    def shape(self, type: DataType, location: SourceLocation) -> Shape:
        """Convert the windows to the unit of a time of `type`. Raises `WrongType` for unsuitable spans."""
        if "gap" in self.given:
            return Sessions(span_in_unit(self.given["gap"], type, self.unit, "the gap of sessions", location))
        size = span_in_unit(self.given["size"], type, self.unit, "the size of windows", location)
        every, offset = size, None
        if "every" in self.given:
            every = span_in_unit(self.given["every"], type, self.unit, "the step between windows", location)
        if "offset" in self.given:
            offset = span_in_unit(
                self.given["offset"], type, self.unit, "the offset of windows", location, may_be_zero=True
            )
        if every > size:  # type: ignore[operator]
            raise WrongType(
                f"windows of {shown_span(size)} begin every {shown_span(every)}",
                where=[location],
                why="A row between two of them would be in none, and be lost without a word.",
                fix="let every be no more than size, and filter() the rows that shall not count",
            )
        return Grid(size, every, offset or None)


def tumbling(
    time: Expr, size: GivenSpan, *, offset: GivenSpan | None = None, unit: Unit | None = None
) -> Windows:
    """Adjacent windows of fixed size: each time belongs to exactly one.

    time:   the column with the watermark, or a non-decreasing expression over it.
    size:   length of each window: "10s", a timedelta, or a number if the time is a number.
    offset: start of the first window, relative to 1970-01-01T00:00Z or 0, the default.
    unit:   unit of a time that is a number, if spans are given as time: "ms".
    """
    return _windows(time, unit, size=size, offset=offset)


def sliding(
    time: Expr,
    size: GivenSpan,
    every: GivenSpan,
    *,
    offset: GivenSpan | None = None,
    unit: Unit | None = None,
) -> Windows:
    """Overlapping windows that begin at every multiple of `every`; a time belongs to `size / every` of them.

    Other arguments are as in `tumbling`.
    """
    return _windows(time, unit, size=size, every=every, offset=offset)


def session(time: Expr, gap: GivenSpan, *, unit: Unit | None = None) -> Windows:
    """Session windows: rows of one key less than `gap` apart share a window.

    A window begins with its first row and ends `gap` after its last. A row that arrives between two windows
    can merge them. Other arguments are as in `tumbling`.
    """
    return _windows(time, unit, gap=gap)


def _windows(time: Expr, unit: Unit | None, **given: GivenSpan | None) -> Windows:
    check_expression("the time of windows", time, SourceLocation.of_caller())
    return Windows(time, {name: span for name, span in given.items() if span is not None}, unit)
