"""Checks of operators of event time: what they read of watermarks, and what they may forget."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.compute.plans.checks.context import Claimed, output_of
from penstock.compute.plans.checks.folds import aggregated
from penstock.compute.plans.checks.pairs import check_join
from penstock.expr.check import check
from penstock.expr.monotone import Monotonicity, monotonicity
from penstock.expr.tree import Column, Expr
from penstock.expr.types import BOOL, DataType, Field, Schema
from penstock.flow.event_time import VALUE, sources_of, watermark_of
from penstock.flow.forgetting import forgetting_distinct, forgetting_join, timed_columns
from penstock.flow.operators.distinct import Distinct
from penstock.flow.operators.distinct_on_time import DistinctOnTime
from penstock.flow.operators.end_of_input import EndOfInput
from penstock.flow.operators.first_within import FirstWithin
from penstock.flow.operators.join_on_time import JoinOnTime
from penstock.flow.operators.late_rows import LateRows
from penstock.flow.operators.least_watermark import LeastWatermark, Move
from penstock.flow.operators.on_time import OnTime
from penstock.flow.operators.watermark import Watermark
from penstock.flow.operators.window import END, START, Window
from penstock.flow.spans import TIME_TYPES, Span, span_of
from penstock.flow.watermark_policy import WatermarkPolicy
from penstock.flow.windows import Grid, Sessions

Fields = tuple[Field, ...]


def _check_span(span: Span, type: DataType, claimed: Claimed, *, may_be_zero: bool = False) -> None:
    """Raises for what is no span of a column of `type`."""
    same = span_of(span, type, None, "a span", claimed.location, may_be_zero=may_be_zero)
    claimed.need(repr(same) == repr(span), "a span is of another type than its column")


def _check_watermark(port: int, time: Expr, stream: int, claimed: Claimed) -> None:
    """Raises where what a port reads is not the watermark of a time of the rows at port `stream`."""
    rows = claimed.streams[stream]
    before = len(rows.flow.nodes)
    watermark = watermark_of(rows, time, "it", claimed.location)
    same = watermark.node_id == claimed.streams[port].node_id
    # It was made just now, where the plan does not have it.
    claimed.need(same and len(rows.flow.nodes) == before, f"input {port} is not the watermark of {time}")


def _clocked(clock: WatermarkPolicy, claimed: Claimed) -> Field:
    """The column of a clock. Raises for what is no clock of the input."""
    type_ = claimed.type_of(Column(clock.column))
    claimed.need(type_ in TIME_TYPES, "a watermark is on what is no time")
    _check_span(clock.lateness, type_, claimed, may_be_zero=True)
    if clock.every is not None:
        _check_span(clock.every, type_, claimed)
    return next(field for field in claimed.input.fields if field.name == clock.column)


# -- watermarks ------------------------------------------------------------------------------------------


@output_of.register(OnTime)
def _on_time(operator: OnTime, claimed: Claimed) -> Fields:
    timed = _clocked(operator.clock, claimed)
    return tuple(Field(f.name, f.type, f.nullable and f != timed) for f in claimed.input.fields)


@output_of.register(LateRows)
def _late_rows(operator: LateRows, claimed: Claimed) -> Fields:
    _clocked(operator.clock, claimed)
    return claimed.input.fields


@output_of.register(EndOfInput)
def _end_of_input(operator: EndOfInput, claimed: Claimed) -> Fields:
    return (Field(VALUE, BOOL),)


@output_of.register(Watermark)
def _watermark(operator: Watermark, claimed: Claimed) -> Fields:
    timed = _clocked(operator.clock, claimed)
    rows, end = claimed.streams[0], claimed.operator_of(1)
    sources = sources_of(rows.flow, rows.node_id)
    told = isinstance(end, EndOfInput) and end.sources == sources
    claimed.need(told, "it is not told when its input ends")
    return (Field(VALUE, timed.type, True),)


@output_of.register(LeastWatermark)
def _least_watermark(operator: LeastWatermark, claimed: Claimed) -> Fields:
    types = {
        _moved(schema.fields[0].type, moves, claimed)
        for schema, moves in zip(claimed.inputs, operator.moves, strict=True)
    }
    read = all(isinstance(claimed.operator_of(port), Watermark) for port in range(len(operator.moves)))
    claimed.need(read and len(types) == 1, "the inputs are not watermarks of one type")
    return (Field(VALUE, types.pop(), True),)


def _moved(type: DataType, moves: Sequence[Move], claimed: Claimed) -> DataType:
    """The type of a watermark after all moves, each of which may not fall."""
    for move in moves:
        claimed.need(move.type == type, "a watermark is moved as one of another type")
        schema = Schema((Field(VALUE, type),), scalar=True)
        type = check(move.expr, schema).type
        rises = monotonicity(move.expr, schema, VALUE) is Monotonicity.INCREASING
        claimed.need(rises, "a watermark may fall")
    return type


# -- windows, and what forgets ---------------------------------------------------------------------------


@output_of.register(Window)
def _window(operator: Window, claimed: Claimed) -> Fields:
    time = check(operator.time, claimed.input)
    claimed.need(time.type in TIME_TYPES and not time.nullable, "windows are of what is no time")
    match operator.shape:
        case Sessions(gap):
            _check_span(gap, time.type, claimed)
        case Grid(size, every, offset):
            for span in (size, every, *(() if offset is None else (offset,))):
                _check_span(span, time.type, claimed)
            claimed.need(not every > size, "times lie between windows")  # type: ignore[operator]
    _check_watermark(1, operator.time, 0, claimed)
    borders = (Field(START, time.type), Field(END, time.type))
    return aggregated(operator.keys, borders, operator.aggregations, claimed)


@output_of.register(DistinctOnTime)
def _distinct(operator: DistinctOnTime, claimed: Claimed) -> Fields:
    claimed.all_columns(operator.columns)
    made = forgetting_distinct(claimed.streams[0], Distinct(operator.columns))
    claimed.need(repr(made) == repr(operator), "it forgets what could still come")
    _check_watermark(1, Column(operator.time), 0, claimed)
    return claimed.input.fields


@output_of.register(FirstWithin)
def _first_within(operator: FirstWithin, claimed: Claimed) -> Fields:
    claimed.keys(operator.keys)
    timed = timed_columns(claimed.streams[0])
    claimed.need(operator.time in timed, f"{operator.time!r} has no watermark")
    _check_span(operator.within, timed[operator.time], claimed)
    _check_watermark(1, Column(operator.time), 0, claimed)
    return claimed.input.fields


@output_of.register(JoinOnTime)
def _join(operator: JoinOnTime, claimed: Claimed) -> Fields:
    columns = check_join(operator.join, claimed)
    made = forgetting_join(claimed.streams[0], claimed.streams[1], operator.join)
    claimed.need(repr(made) == repr(operator), "it forgets what could still match")
    for port, time in enumerate(operator.times):
        _check_watermark(2 + port, Column(time), port, claimed)
    return columns
