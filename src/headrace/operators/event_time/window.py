"""Window operator: aggregates per group and event-time window, on a grid or of sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from headrace.errors import SourceLocation, WrongType
from headrace.expr.check import check
from headrace.expr.constructors import col
from headrace.expr.tree import Expr, columns_of
from headrace.expr.types import Field
from headrace.graph.node import Operator
from headrace.graph.operator_declarations import (
    WHOLE,
    Facts,
    KeyedSlot,
    Need,
    Placement,
    Port,
    SessionSlots,
    SliceSlots,
    calendar_slots,
    place_by_key,
)
from headrace.lowering.examples import Examples
from headrace.operators import aggregates
from headrace.operators.aggregates import aggregated, count
from headrace.operators.column_arguments import check_expression
from headrace.operators.time_spans import (
    TIME_TYPES,
    GivenSpan,
    Span,
    Unit,
    check_span,
    shown_span,
    span_in_unit,
)
from headrace.operators.unservable import EVENT_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from headrace.expr.types import DataType, Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.operators.aggregates import Aggregation


# --- event-time windows as data: `hr.tumbling(col.at, "10s")` and the like ------------------------


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


# --- window operator: aggregate per group and event-time window -----------------------------------


START, END = "window_start", "window_end"
"""Columns that identify the window of a row."""


class Emit(Enum):
    """Time of a window's emission: once its end is behind the watermark, or in every tick that changes it."""

    CLOSE = "close"
    UPDATES = "updates"


def count_in_windows(pairs: Any, windows: Windows, emit: str) -> Any:
    """Build an example: the count and the sum of `Pair`s per window of their first column."""
    timed = pairs.watermark(col.a, lateness=0)
    return timed.group_by(window=windows, emit=emit).agg(n=count(), sum=aggregates.sum(col.b))


@dataclass(frozen=True, slots=True)
class Window(Operator):
    """One row per group and window: the keys, the window's start and end, the aggregates.

    A window exists while it has rows. It closes when the watermark reaches its end: from then on no row can
    fall into it, and its state is dropped.

    CLOSE: a window is emitted once, when it closes; windows are ordered by end, and with equal ends by their
    first rows. So the output is a stream of plain rows, equal and in the same order for every cut into ticks.
    UPDATES: like an aggregate, each tick retracts old results and emits new ones; closing a window makes its
    result final, and emits nothing.

    A tick without rows and without a new watermark emits nothing.

    On a grid, rows are added up by slice, a span in which no window begins or ends; windows are merged from
    their slices, when they close or once per tick.

    >>> import headrace as hr
    >>> from headrace import col
    >>> from headrace.testing import show
    >>> def counts(at):
    ...     on_time = at.watermark(col.value, lateness=2)
    ...     return on_time.group_by(window=hr.tumbling(col.value, 10)).agg(n=hr.count())
    >>> show(counts, at=[1, 11, 9, 12, 25])
    + (window_start=0, window_end=10, n=2)
    + (window_start=10, window_end=20, n=2)
    """

    kind: ClassVar[str] = "window"
    examples: ClassVar[Examples] = {
        "sliding": lambda x, y: count_in_windows(x, sliding(col.a, 3, 1), "close"),
        "per key": lambda x, y: (
            x.watermark(col.a, lateness=0).group_by("b", window=tumbling(col.a, 2)).agg(n=count())
        ),
        "session": lambda x, y: count_in_windows(x, session(col.a, 1), "close"),
        "session updates": lambda x, y: count_in_windows(x, session(col.a, 1), "updates"),
    }
    merges_equal: ClassVar[bool] = True
    keys: tuple[tuple[str, Expr], ...]
    time: Expr
    shape: Shape
    aggregations: tuple[tuple[str, Aggregation], ...]
    emit: Emit

    def ports(self) -> tuple[Port, ...]:
        return (
            Port("rows", blocking=True, why="a further row could fall into a window that closes"),
            Port("watermark", blocking=True, why="it may rise further", completeness=True),
        )

    def output(self, context: CheckContext) -> Columns:
        time = check(self.time, context.input)
        context.require(time.type in TIME_TYPES and not time.nullable, "windows are of what is no time")
        match self.shape:
            case Sessions(gap):
                check_span(gap, time.type, context)
            case Grid(size, every, offset):
                for span in (size, every, *(() if offset is None else (offset,))):
                    check_span(span, time.type, context)
                context.require(not every > size, "times lie between windows")  # type: ignore[operator]
        context.require_watermark(1, self.time, 0)
        borders = (Field(START, time.type), Field(END, time.type))
        return aggregated(context, self.keys, borders, self.aggregations)

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        exprs = (expr for _, expr in self.expressions())
        return {name for expr in exprs for name in columns_of(expr)}, set(inputs[1].names)

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        return self, output.fields

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (dict(self.keys), {})

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        if isinstance(self.shape, Sessions):
            return dict.fromkeys(("sessions", "calendar", "due"), SessionSlots(KeyedSlot()))
        groups = KeyedSlot(of_pair=True)
        if self.emit is Emit.UPDATES or self.shape.tumbles:
            return {"groups": groups, **calendar_slots("", groups)}
        return {"groups": groups, **dict.fromkeys(("calendar", "counts", "due"), SliceSlots(groups))}

    def placement(self) -> Placement:
        return place_by_key(tuple(expr for _, expr in self.keys), None) if self.keys else WHOLE

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "a window is closed for good, and what it answered could not be changed any more",
                "put the windows before what takes rows back",
            ),
        )

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0].but(once=True)
        if self.emit is Emit.CLOSE:
            return rows.but(append=rows.append, ordered=rows.ordered)
        return rows.but(append=rows.append and rows.bounded, ordered=False)

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys
        yield "time", self.time
        for name, aggregation in self.aggregations:
            for expr in aggregation.arguments():
                yield name, expr

    def describe(self) -> str:
        keys = ", ".join(name for name, _ in self.keys)
        by = f" by ({keys})" if keys else ""
        when = "when they close" if self.emit is Emit.CLOSE else "as updates"
        aggregates = ", ".join(f"{name}={agg}" for name, agg in self.aggregations)
        return f"{self.shape} of {self.time}{by}, {when}: {aggregates}"
