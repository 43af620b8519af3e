"""Shapes of event-time windows: grids and sessions, as users declare them (`hr.tumbling(col.at, "10s")`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import SourceLocation, WrongType
from headrace.expr.tree import Expr
from headrace.operators.column_arguments import check_expression
from headrace.operators.time_spans import GivenSpan, Span, Unit, shown_span, span_in_unit

if TYPE_CHECKING:
    from headrace.expr.types import DataType


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
