"""Event-time columns of streams, with bounds derived from watermarks.

A column is *timed* if its future values are bounded below by a watermark, or by an expression over one.
Bounds are found by walking from a stream back to its watermarks. Operators that preserve bounds are
registered below; all others drop them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import singledispatch
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from headrace.errors import BadFlow, Step
from headrace.expr.check import Monotonicity, check, monotonicity
from headrace.expr.tree import Column, Expr, FunctionCall, columns_of
from headrace.expr.types import BOOL, FLOAT64, TIMESTAMP, Field, Schema
from headrace.operators.distinct import ExpiringDistinct
from headrace.operators.endpoints import SourceOperator
from headrace.operators.event_time.late_rows import FirstWithin, OnTime
from headrace.operators.event_time.watermark import VALUE, EndOfInput, LeastWatermark, Move, Watermark
from headrace.operators.event_time.window import END, START, Emit, Window
from headrace.operators.join.interval_join import IntervalJoin
from headrace.operators.map import Inspect
from headrace.operators.rows import Filter, Partition, Select
from headrace.operators.time_spans import Grid
from headrace.operators.union import Union

if TYPE_CHECKING:
    from headrace.errors import SourceLocation
    from headrace.flow.stream_base import FlowBuilder, Output
    from headrace.graph.node import Node, Operator


MAX_BOUNDS = 64
"""Limit on a column's bounds, above which the column is not timed.

Each path from the watermark that moves the time differently adds a bound, so unions that read a stream twice
double their number each time.
"""


@dataclass(frozen=True, slots=True)
class FutureBound:
    """Lower bound on future values: a watermark to which `moves` are applied in order.

    on_time: node that introduced the watermark.
    """

    on_time: int
    moves: tuple[Move, ...] = ()


Times: TypeAlias = "Mapping[str, tuple[FutureBound, ...]]"
"""Bounds of each timed column, and of timed fields of structs as "column.field"; the least applies."""


def times_of(flow: FlowBuilder, node_id: int) -> Times:
    """Return the timed columns of a node's output."""
    # A node reads nodes written before it (a feedback keeps no times), so they are found in that order.
    while len(flow.times) <= node_id:
        node = flow.node(len(flow.times))
        times = _times(node.operator, node, flow)
        flow.times.append({name: bounds for name, bounds in times.items() if len(bounds) <= MAX_BOUNDS})
    return flow.times[node_id]


def watermark_of(stream: Output, time: Expr, what: str, location: SourceLocation) -> Output:
    """Return the watermarks of `time`, an expression over `stream`, as a stream for operator `what`.

    Raises `BadFlow` if none is known, naming the operators where it was lost.
    """
    bounds = _bounds_of(time, stream.schema, times_of(stream.flow, stream.node_id))
    if not bounds:
        raise _no_watermark(stream, time, what, location)
    return _least(stream, bounds, Field(VALUE, check(time, stream.schema).type, True), location)


def has_watermark(stream: Output, time: Expr) -> bool:
    """Return whether future values of an expression over `stream` are bounded by a watermark."""
    return bool(_bounds_of(time, stream.schema, times_of(stream.flow, stream.node_id)))


def _least(stream: Output, bounds: tuple[FutureBound, ...], field: Field, location: SourceLocation) -> Output:
    read = [_watermark(stream, bound.on_time) for bound in bounds]
    if len(bounds) == 1 and not bounds[0].moves:
        return read[0]
    operator = LeastWatermark(tuple(bound.moves for bound in bounds))
    inputs = tuple(watermark.node_id for watermark in read)
    for node in stream.flow.nodes:
        # Windows over the same time share one watermark.
        if (
            node.inputs == inputs
            and isinstance(node.operator, LeastWatermark)
            and node.operator.same(operator)
        ):
            return stream.output_of(node.id)
    return stream.flow.add(operator, Schema((field,), scalar=True), read, None, location)


def _watermark(stream: Output, on_time: int) -> Output:
    """Return the watermark stream of node `on_time`, which is added on first use."""
    flow, node = stream.flow, stream.flow.node(on_time)
    assert isinstance(node.operator, OnTime)
    operator, rows = Watermark(node.operator.clock), node.inputs[0]
    for other in flow.nodes:
        if other.operator == operator and other.inputs[0] == rows:
            return stream.output_of(other.id)
    at = node.schema.position(operator.clock.column)
    assert at is not None
    schema = Schema((Field(VALUE, node.schema.fields[at].type, True),), scalar=True)
    end = _end_of_input(stream, reaching_sources(flow, rows), node.location)
    return flow.add(operator, schema, (stream.output_of(rows), end), None, node.location)


def _end_of_input(stream: Output, sources: tuple[str, ...], location: SourceLocation) -> Output:
    operator = EndOfInput(sources)
    for node in stream.flow.nodes:
        if node.operator == operator:
            return stream.output_of(node.id)
    return stream.flow.add(operator, Schema((Field(VALUE, BOOL),), scalar=True), (), None, location)


# -- operators that keep bounds -----------------------------------------------------------------


@singledispatch
def _times(operator: Operator, node: Node, flow: FlowBuilder) -> Times:
    return {}


@_times.register(OnTime)
def _on_time(operator: OnTime, node: Node, flow: FlowBuilder) -> Times:
    return {**times_of(flow, node.inputs[0]), operator.clock.column: (FutureBound(node.id),)}


@_times.register(Filter)
def _filter(operator: Filter, node: Node, flow: FlowBuilder) -> Times:
    return times_of(flow, node.inputs[0])


@_times.register(Select)
def _select(operator: Select, node: Node, flow: FlowBuilder) -> Times:
    before, schema = times_of(flow, node.inputs[0]), flow.node(node.inputs[0]).schema
    found: dict[str, tuple[FutureBound, ...]] = {}
    for name, expr in operator.columns:
        found |= {f"{name}.{field}": bounds for field, bounds in _field_bounds(expr, schema, before)}
    found |= {name: _bounds_of(expr, schema, before) for name, expr in operator.columns}
    return {name: bounds for name, bounds in found.items() if bounds}


def _field_bounds(expr: Expr, schema: Schema, times: Times) -> Iterator[tuple[str, tuple[FutureBound, ...]]]:
    """Yield the bounds of the fields of a struct."""
    if isinstance(expr, Column):
        of = f"{expr.name}."
        yield from ((name.removeprefix(of), times[name]) for name in times if name.startswith(of))
    elif isinstance(expr, FunctionCall) and expr.function == "struct":
        fields = cast("tuple[str, ...]", expr.options[0])
        for field, value in zip(fields, expr.arguments, strict=True):
            yield field, _bounds_of(value, schema, times)


@_times.register(ExpiringDistinct)
@_times.register(FirstWithin)
@_times.register(Inspect)
@_times.register(Partition)
def _some_rows(operator: Operator, node: Node, flow: FlowBuilder) -> Times:
    return times_of(flow, node.inputs[0])


@_times.register(IntervalJoin)
def _join(operator: IntervalJoin, node: Node, flow: FlowBuilder) -> Times:
    """Timed columns of a join: the later row may be paired with one older by at most the bound."""
    names = [flow.node(i).schema.names for i in node.inputs[:2]]
    lefts, rights = (
        times_of(flow, i)[column] for i, column in zip(node.inputs, operator.times, strict=False)
    )
    low: Any = operator.low
    high: Any = operator.high
    type_ = node.schema.fields[names[0].index(operator.times[0])].type
    times = {operator.times[0]: (*lefts, *_moved(rights, Move(type_, Column(VALUE) - high)))}
    right = names[1].index(operator.times[1])
    if right in operator.join.kept_right:
        column = node.schema.names[len(names[0]) + operator.join.kept_right.index(right)]
        times[column] = (*rights, *_moved(lefts, Move(type_, Column(VALUE) + low)))
    return times


@_times.register(Union)
def _union(operator: Union, node: Node, flow: FlowBuilder) -> Times:
    first, *others = (times_of(flow, i) for i in node.inputs)
    return {
        name: tuple(dict.fromkeys((*bounds, *(b for other in others for b in other[name]))))
        for name, bounds in first.items()
        if all(name in other for other in others)
    }


@_times.register(Window)
def _window(operator: Window, node: Node, flow: FlowBuilder) -> Times:
    """Timed columns of a window: open windows end after the watermark."""
    if operator.emit is Emit.UPDATES:
        return {}
    schema = flow.node(node.inputs[0]).schema
    bounds = _bounds_of(operator.time, schema, times_of(flow, node.inputs[0]))
    times = {END: bounds}
    if isinstance(operator.shape, Grid):
        type_ = check(operator.time, schema).type
        if type_ != FLOAT64:  # whose windows begin at rounded values
            earliest = Move(
                type_, earliest_start(operator.shape, Column(VALUE), timestamps=type_ == TIMESTAMP)
            )
            times[START] = _moved(bounds, earliest)
    return times


def earliest_start(grid: Grid, watermark: Expr, *, timestamps: bool) -> Expr:
    """Return the earliest start of a window that ends after the watermark."""
    size: Any = grid.size
    every: Any = grid.every
    zero: Any = timedelta() if timestamps else 0
    # Ends are multiples of `every` from `first` on.
    first = (size + (grid.offset or zero)) % every
    since = watermark - first if first else watermark
    passed = since.tumble(every) if timestamps else since - (since % every + every) % every
    back = first + every - size
    return passed + back if back else passed


# -- bounds of expressions -------------------------------------------------------------------------


def _bounds_of(expr: Expr, schema: Schema, times: Times) -> tuple[FutureBound, ...]:
    """Return the bounds of an expression, derived from those of its only column."""
    if isinstance(expr, Column):
        return times.get(expr.name, ())
    if isinstance(expr, FunctionCall) and expr.function == "field" and isinstance(expr.arguments[0], Column):
        name = f"{expr.arguments[0].name}.{expr.options[0]}"
        return times.get(name, ()) if schema.position(name) is None else ()
    columns = columns_of(expr)
    if len(columns) != 1 or columns[0] not in times:
        return ()
    (column,) = columns
    if monotonicity(expr, schema, column) is not Monotonicity.INCREASING:
        return ()
    at = schema.position(column)
    assert at is not None
    move = Move(schema.fields[at].type, rename_columns(expr, {column: VALUE}))
    return _moved(times[column], move)


def _moved(bounds: tuple[FutureBound, ...], move: Move) -> tuple[FutureBound, ...]:
    return tuple(replace(bound, moves=(*bound.moves, move)) for bound in bounds)


def rename_columns(expr: Expr, names: Mapping[str, str]) -> Expr:
    """Rename the columns of an expression."""
    if isinstance(expr, Column):
        return Column(names[expr.name])
    if isinstance(expr, FunctionCall):
        return FunctionCall(
            expr.function, tuple(rename_columns(a, names) for a in expr.arguments), expr.options
        )
    return expr


# -- lost times ----------------------------------------------------------------------------------------


def _no_watermark(stream: Output, time: Expr, what: str, location: SourceLocation) -> BadFlow:
    flow = stream.flow
    here = flow.node(stream.node_id)
    way = _way_to_times(flow, here)
    timed = times_of(flow, here.id)
    if timed or not way:
        names = ", ".join(map(repr, timed))
        return BadFlow(
            f"{what} need a watermark on {time}, and there is none",
            where=[
                Step(here.location, f"the times here: {names}" if names else "no watermark"),
                Step(location, what),
            ],
            why="Without a watermark, a window is never known to be complete."
            if not names
            else f"It would have to be one of {names}, or what never falls while one of them rises.",
            fix='stream.watermark(hr.col.at, lateness="10s", late="late_rows") before it'
            if not names
            else "use one of them, or put a watermark on that column",
        )
    lost = way[1]
    steps = [Step(way[0].location, f"timed: {', '.join(map(repr, times_of(flow, way[0].id)))}")]
    steps += [Step(n.location, f"{n.operator.kind} loses the time" if n is lost else "") for n in way[1:]]
    return BadFlow(
        f"{what} need a watermark on {time}, which gets lost on the way",
        where=[*steps, Step(location, what)],
        why=lost_reason(lost.operator),
        fix="put the watermark after it where order is kept; or the windows before it",
    )


def _way_to_times(flow: FlowBuilder, node: Node) -> list[Node]:
    """Return the path to `node` from its nearest ancestor with a timed column; empty if there is none."""
    ways, seen = [[node]], {node.id}
    while ways:
        way = ways.pop(0)
        if times_of(flow, way[0].id):
            return way
        for source in way[0].inputs:
            if source not in seen:
                seen.add(source)
                ways.append([flow.node(source), *way])
    return []


@singledispatch
def lost_reason(operator: Operator) -> str:
    """Explain, in a sentence, why an operator's output has no timed column."""
    if next(operator.callables(), None) is not None:
        return "What a function makes of a time is not known."
    return "Its rows may come at any time after those they were made of."


@lost_reason.register(Select)
def _why_select(operator: Select) -> str:
    return "No column that it keeps or computes is sure not to fall while the time rises."


@lost_reason.register(Union)
def _why_union(operator: Union) -> str:
    return "Not every stream in it has a watermark on that column, or too many reach it, on too many ways."


@lost_reason.register(Window)
def _why_window(operator: Window) -> str:
    return 'Updates of a window come as long as it is open; emit="close" has rows in order of time.'


def reaching_sources(flow: FlowBuilder, node_id: int) -> tuple[str, ...]:
    """Return the names of the sources that reach a node, in the order they were added."""
    seen, waiting = {node_id}, [node_id]
    while waiting:
        for source in flow.node(waiting.pop()).inputs:
            if source not in seen:
                seen.add(source)
                waiting.append(source)
    operators = [flow.node(n).operator for n in sorted(seen)]
    return tuple(o.name for o in operators if isinstance(o, SourceOperator))


__all__ = [
    "FutureBound",
    "Times",
    "has_watermark",
    "lost_reason",
    "reaching_sources",
    "rename_columns",
    "times_of",
    "watermark_of",
]
