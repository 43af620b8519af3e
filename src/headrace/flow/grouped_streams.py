"""Grouped and windowed streams: the first half of an aggregation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, overload

from typing_extensions import TypeVar

from headrace.errors import SourceLocation, WrongType
from headrace.expr.check import check
from headrace.expr.row_classes import computed_schema
from headrace.expr.tree import Expr
from headrace.expr.types import Field
from headrace.flow.stream_base import B, Changes, G, Groups, NoOrder, O
from headrace.operators.aggregate.aggregate import Aggregate
from headrace.operators.aggregate.aggregation import Aggregation
from headrace.operators.column_arguments import (
    check_aggregations,
    check_no_positional,
    render_argument,
    split_own_keywords,
    with_row_class,
)
from headrace.operators.lifetime import Lifetime, LifetimeName, check_reason, parse_lifetimes
from headrace.operators.time_spans import TIME_TYPES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expr.types import Schema
    from headrace.flow.stream import Stream
    from headrace.operators.event_time.window import Emit
    from headrace.operators.time_spans import Shape, Windows

R = TypeVar("R")


class Grouped(Groups, Generic[B]):
    """Stream with group keys, to be aggregated by `agg`."""

    __slots__ = ()

    @overload
    def agg(
        self,
        /,
        *,
        into: type[R],
        lifetime: LifetimeName | Aggregation = "static",
        nondet: str | Aggregation | None = None,
        name: str | Aggregation | None = None,
        **named: Aggregation,
    ) -> Stream[R, B, Changes, NoOrder]: ...
    @overload
    def agg(
        self,
        /,
        *,
        lifetime: LifetimeName | Aggregation = "static",
        nondet: str | Aggregation | None = None,
        name: str | Aggregation | None = None,
        **named: Aggregation,
    ) -> Stream[Any, B, Changes, NoOrder]: ...
    def agg(self, /, *unnamed: Any, **named: Any) -> Stream[Any, B, Changes, NoOrder]:
        """Aggregate to one row per group: the keys, then the aggregates (see `operators.aggregate`).

        `into` and `name` are as in `Stream.select`. lifetime: "tick" aggregates each tick separately, to
        plain rows; nondet: reason why results may then depend on the cut into ticks, not needed if the ticks
        are given. Columns may have these names, too.
        """
        location = SourceLocation.of_caller()
        check_no_positional("agg takes aggregates", unnamed, "total=hr.sum(hr.col.price)", location)
        lifetime, nondet = _own_lifetime(named, location)
        schema = self._stream.schema
        into, name = split_own_keywords(named)
        result = _answer_schema(schema, self._keys, (), named, into, location)
        operator = Aggregate(self._keys, tuple(named.items()), lifetime, nondet)
        return self._stream.flow.add(operator, result, (self._stream,), name, location)


class WindowGroups(Groups, Generic[B, G, O]):
    """Stream with group keys and event-time windows, to be aggregated by `agg`."""

    __slots__ = ("_emit", "_shape", "_time", "_watermark")

    def __init__(
        self,
        stream: Stream[Any, B, Any, Any],
        keys: tuple[tuple[str, Expr], ...],
        windows: Windows,
        emit: object,
        location: SourceLocation,
    ) -> None:
        """Raise `WrongType` unless the window is over a time, and `BadFlow` if the time has no watermark."""
        from headrace.flow.timed_columns import watermark_of

        super().__init__(stream, keys)
        self._emit = _emit(emit, location)
        self._time = windows.time
        self._shape = _shape(stream, windows, location)
        self._watermark = watermark_of(stream, windows.time, "windows", location)

    @overload
    def agg(
        self, /, *, into: type[R], name: str | Aggregation | None = None, **named: Aggregation
    ) -> Stream[R, B, G, O]: ...
    @overload
    def agg(
        self, /, *, name: str | Aggregation | None = None, **named: Aggregation
    ) -> Stream[Any, B, G, O]: ...
    def agg(self, /, *unnamed: Any, **named: Any) -> Stream[Any, B, Any, Any]:
        """Aggregate to one row per group and window: keys, `window_start`, `window_end`, aggregates.

        See `operators.event_time.window`. `into` and `name` are as in `Stream.select`.
        """
        from headrace.operators.event_time.window import END, START, Window

        location = SourceLocation.of_caller()
        check_no_positional("agg takes aggregates", unnamed, "total=hr.sum(hr.col.price)", location)
        into, name = split_own_keywords(named)
        schema = self._stream.schema
        type_ = check(self._time, schema).type
        borders = (Field(START, type_), Field(END, type_))
        result = _answer_schema(schema, self._keys, borders, named, into, location)
        operator = Window(self._keys, self._time, self._shape, tuple(named.items()), self._emit)
        return self._stream.flow.add(operator, result, (self._stream, self._watermark), name, location)


def _answer_schema(
    schema: Schema,
    keys: Sequence[tuple[str, Expr]],
    more: Sequence[Field],
    named: dict[str, Any],
    into: Any,
    location: SourceLocation,
) -> Schema:
    """Return the row type of an aggregation over `schema`: the keys, `more`, then the aggregates in `named`.

    Raises `WrongType` for anything but aggregates, for none at all, and for a duplicate column.
    """
    check_aggregations(named, location)
    fields: list[Field] = []
    for key, expr in keys:
        typed = check(expr, schema)
        fields.append(Field(key, typed.type, typed.nullable))
    fields.extend(more)
    fields.extend(aggregation.field(column, schema) for column, aggregation in named.items())
    names = [f.name for f in fields]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise WrongType(
            f"column {twice[0]!r} is made twice",
            where=[location],
            why="The group keys are columns of the answer too.",
            fix="give one of them another name",
            column=twice[0],
        )
    if not named:
        raise WrongType(
            "agg needs at least one aggregate",
            where=[location],
            fix="agg(rows=hr.count()); for the keys alone, select() them and use distinct()",
        )
    result = computed_schema(tuple(fields))
    return result if into is None else with_row_class(result, into, location)


def _own_lifetime(named: dict[str, Any], location: SourceLocation) -> tuple[Lifetime, str | None]:
    """Split `lifetime` and `nondet` from keyword arguments, unless they are aggregates.

    Raises `WrongType`.
    """
    given, nondet = (
        default if isinstance(named.get(key, default), Aggregation) else named.pop(key, default)
        for key, default in (("lifetime", "static"), ("nondet", None))
    )
    (lifetime,) = parse_lifetimes(given, 1, "agg", location)
    check_reason(nondet, location)
    return lifetime, nondet


def _shape(stream: Stream[Any, Any, Any, Any], windows: Windows, location: SourceLocation) -> Shape:
    time = check(windows.time, stream.schema)
    if time.type not in TIME_TYPES:
        raise WrongType(
            f"windows need a time, got {time.type}: {windows.time}",
            where=[location],
            why="Times are timestamps, and numbers that count time.",
            fix="cast() it to a timestamp, or let .to_timestamp() read it from text",
        )
    if time.nullable:
        raise WrongType(
            f"the time of windows may be null: {windows.time}",
            where=[location],
            why="A row without a time is in no window.",
            fix="use the column that the watermark is on, where rows without a time are late",
        )
    return windows.shape(time.type, location)


def _emit(given: object, location: SourceLocation) -> Emit:
    from headrace.operators.event_time.window import Emit

    try:
        return Emit(given)
    except ValueError:
        raise WrongType(
            f"windows cannot emit {render_argument(given)}",
            where=[location],
            fix='"close": each window once, when it closes; "updates": with every change until then',
        ) from None
