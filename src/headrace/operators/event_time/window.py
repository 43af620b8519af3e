"""Window operator: aggregates per group and event-time window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

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
from headrace.lowering.reference import Examples
from headrace.lowering.step import Step, step_for
from headrace.operators.aggregate import sums
from headrace.operators.aggregate.aggregation import group_columns
from headrace.operators.aggregate.counts import count
from headrace.operators.event_time.window_shapes import Grid, Sessions, Windows, session, sliding, tumbling
from headrace.operators.time_spans import TIME_TYPES, check_span
from headrace.operators.unservable import EVENT_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.aggregate.aggregation import Aggregation
    from headrace.operators.event_time.window_shapes import Shape


START, END = "window_start", "window_end"
"""Columns that identify the window of a row."""


class Emit(Enum):
    """Time of a window's emission: once its end is behind the watermark, or in every tick that changes it."""

    CLOSE = "close"
    UPDATES = "updates"


def _count_in_windows(pairs: Any, windows: Windows, emit: str) -> Any:
    """Build an example: the count and the sum of `Pair`s per window of their first column."""
    timed = pairs.watermark(col.a, lateness=0)
    return timed.group_by(window=windows, emit=emit).agg(n=count(), sum=sums.sum(col.b))


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
        "sliding": lambda x, y: _count_in_windows(x, sliding(col.a, 3, 1), "close"),
        "per key": lambda x, y: (
            x.watermark(col.a, lateness=0).group_by("b", window=tumbling(col.a, 2)).agg(n=count())
        ),
        "session": lambda x, y: _count_in_windows(x, session(col.a, 1), "close"),
        "session updates": lambda x, y: _count_in_windows(x, session(col.a, 1), "updates"),
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
        return group_columns(context, self.keys, borders, self.aggregations)

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


@step_for.register(Window)
def _step(operator: Window, node: Node, writer: StepWriter) -> Step:
    from headrace.operators.event_time.grid_windows import grid_step
    from headrace.operators.event_time.session_windows import SessionStep

    if isinstance(operator.shape, Grid):
        return grid_step(operator)(node, writer, operator, operator.shape)
    return SessionStep(node, writer, operator, operator.shape)
