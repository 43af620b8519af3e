"""Stream methods for event time and ticks.

Each method imports the operator that it adds, so that flows load only the operators they use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from headrace.errors import BadFlow, SourceLocation, WrongType
from headrace.expr.check import check
from headrace.expr.tree import Column, Expr
from headrace.expr.types import Field, Schema
from headrace.flow.stream_base import (
    Append,
    B,
    Bounded,
    Changes,
    G,
    NoOrder,
    O,
    Ordered,
    StreamBase,
    T_co,
    Unbounded,
    check_reason,
    check_stream,
)
from headrace.operators.across_ticks import DeferTick, EveryTick
from headrace.operators.column_arguments import (
    check_expression,
    computed_columns,
    named_columns,
    render_argument,
)
from headrace.operators.time_spans import TIME_TYPES, GivenSpan, Unit, span_in_unit

if TYPE_CHECKING:
    from headrace.flow.grouped_streams import WindowGroups
    from headrace.flow.signal import Signal
    from headrace.flow.stream import Stream
    from headrace.operators.event_time.temporal_filter import Presence


class StreamTime(StreamBase[T_co, B, G, O]):
    """Stream methods for event time and ticks."""

    __slots__ = ()

    # -- event time ----------------------------------------------------------------------

    def watermark(
        self: StreamTime[T_co, B, Append, Ordered],
        column: Expr | str,
        *,
        lateness: GivenSpan,
        late: str | None = None,
        every: GivenSpan | None = None,
        unit: Unit | None = None,
        name: str | None = None,
    ) -> Stream[T_co, B, Append, Ordered]:
        """Drop late rows, by the event time in `column` (see `operators.event_time.late_rows`).

        The watermark is the greatest time seen so far minus `lateness`; it rises row by row. A row whose time
        is below it on arrival is late, and is dropped. Downstream, windows close when the watermark passes
        their end, and state that can no longer match anything is dropped.

        column:   a timestamp, or a number that counts time.
        lateness: how much later than others a row may arrive: "10s", a timedelta, or a number in the unit of
                  the column.
        late:     name of a sink for the late rows; `late()` returns them as a stream. Without either, they
                  are only counted (`Engine.late_rows`).
        every:    step of the watermark. With the size of the following windows, a row is late only if its
                  window has closed.
        unit:     unit of a column of numbers, if spans are given as time.

        Raises `WrongType` unless the column holds times, and for spans that do not fit it.
        """
        from headrace.operators.event_time.late_rows import LateRows, OnTime
        from headrace.operators.event_time.watermark import WatermarkPolicy

        location = SourceLocation.of_caller()
        field = self._time_column(column, location)
        clock = WatermarkPolicy(
            field.name,
            span_in_unit(lateness, field.type, unit, "the lateness", location, may_be_zero=True),
            None if every is None else span_in_unit(every, field.type, unit, "the step", location),
        )
        # Rows without a time count as late, so all others have one.
        fields = tuple(Field(f.name, f.type, f.nullable and f != field) for f in self._schema.fields)
        schema = Schema(fields, self._schema.row_class, self._schema.scalar)
        on_time = self._add(OnTime(clock), schema, name, location)
        if late is not None:
            self._flow.sink(late, self._add(LateRows(clock), self._schema, None, location))
        return cast("Stream[T_co, B, Append, Ordered]", on_time)

    def valid(
        self,
        clock: Stream[Any, Any, Append, Any],
        *,
        since: Expr | None = None,
        until: Expr | None = None,
        name: str | None = None,
    ) -> Stream[T_co, B, Changes, NoOrder]:
        """Keep the rows for which `since <= clock < until` (see `operators.event_time.temporal_filter`).

        As the clock rises, rows come and go by themselves; a change costs the row.

        clock: a stream of one column; it shows its greatest value. `headrace.run` feeds a source of the name
               and type `flow.source("tick_time", datetime)` with the time of this machine.
        since, until: times, dates or integers, of the type of the clock. A row for which one of them is null
               is never there.

        Raises `WrongType` for other types, and unless there is a `since` or an `until`.
        """
        from headrace.operators.event_time.temporal_filter import Presence

        location = SourceLocation.of_caller()
        check_stream(clock, "valid", location)
        edges = [(Presence.SINCE, since), (Presence.BEFORE, until)]
        given = [(presence, edge) for presence, edge in edges if edge is not None]
        if not given:
            raise WrongType(
                "valid() needs a moment", where=[location], fix='valid(clock, until=col["valid to"])'
            )
        kept: Any = self
        for at, (presence, edge) in enumerate(given):
            kept = kept.filter_by_clock(
                clock, presence, edge, location, name if at == len(given) - 1 else None
            )
        return kept

    def filter_by_clock(
        self,
        clock: Stream[Any, Any, Append, Any],
        presence: Presence,
        moment: Expr,
        location: SourceLocation,
        name: str | None = None,
    ) -> Stream[T_co, B, Changes, NoOrder]:
        """Keep the rows for which `clock presence moment` holds. Raises `WrongType`."""
        from headrace.operators.event_time.temporal_filter import MOMENTS, TemporalFilter

        check_expression("valid", moment, location)
        type, (shown, *more) = check(moment, self._schema).type, clock.schema.fields
        if type not in MOMENTS or shown.type != type or more:
            raise WrongType(
                f"valid() compares {moment}, which is {type}, with a clock of {clock.schema}",
                where=[location],
                why="Both are to be times, dates or integers of one type, and a clock has one column.",
                fix="cast the moment, or select() from the clock",
            )
        columns = tuple(map(Column, self._schema.names))
        operator = TemporalFilter(columns, presence, moment)
        return self._flow.add(operator, self._schema, (self, clock), name, location)

    def late(self, *, name: str | None = None) -> Stream[T_co, B, Append, Ordered]:
        """Return the late rows that this stream's `watermark()` dropped (`operators.event_time.late_rows`).

        Raises `BadFlow` for any other stream.
        """
        from headrace.operators.event_time.late_rows import LateRows, OnTime

        location = SourceLocation.of_caller()
        node = self._flow.node(self._id)
        if not isinstance(node.operator, OnTime):
            raise BadFlow(
                "late() is asked of a stream without a watermark of its own",
                where=[node.location, location],
                why="It is the other half of what watermark() parts.",
                fix="keep what watermark() gives, and ask that for late()",
            )
        all_rows = self.output_of(node.inputs[0])
        late = self._flow.add(LateRows(node.operator.clock), all_rows.schema, (all_rows,), name, location)
        return cast("Stream[T_co, B, Append, Ordered]", late)

    def first_within(
        self: StreamTime[T_co, B, Append, Ordered],
        within: GivenSpan,
        *,
        by: Expr | str | Sequence[Expr | str],
        time: str | None = None,
        unit: Unit | None = None,
        name: str | None = None,
    ) -> Stream[T_co, B, Append, Ordered]:
        """Keep the first of rows with equal keys less than `within` apart (`operators.event_time.late_rows`).

        by:   the keys: columns or expressions; without any, all rows have equal keys.
        time: the time column, if several have a watermark.
        unit: as in `watermark`.

        Raises `BadFlow` for a stream without a watermark, `WrongType` for an invalid span.
        """
        from headrace.flow.state_expiry import add_first_within

        location = SourceLocation.of_caller()
        given = [by] if isinstance(by, Expr | str) else list(by)
        keys = tuple(Column(key) if isinstance(key, str) else key for key in given)
        for key in keys:
            check_expression("first_within", key, location)
            check(key, self._schema)
        stream = cast("Stream[T_co, B, Append, Ordered]", self)
        return add_first_within(stream, within, keys, time, unit, name, location)

    # -- ticks ----------------------------------------------------------------------------------

    def defer_tick(
        self, *, nondet: str | None = None, name: str | None = None
    ) -> Stream[T_co, Unbounded, G, O]:
        """Delay all rows by one tick (see `operators.across_ticks`).

        nondet: reason why results may depend on the cut into ticks; required if the delay is in a cycle
                through a blocking input.
        """
        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        return self._add(DeferTick(nondet), self._schema, name, location)

    def defer_tick_lazy(
        self, *, nondet: str | None = None, name: str | None = None
    ) -> Stream[T_co, Unbounded, G, O]:
        """Delay all rows to the next tick, without starting it (see `operators.across_ticks`).

        nondet: reason why results may depend on the cut into ticks; not needed if the ticks are given.
        """
        from headrace.operators.across_ticks import DeferTickLazy

        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        return self._add(DeferTickLazy(nondet), self._schema, name, location)

    def defer_signal(
        self, signal: Stream[Any, Any, Append, Any], *, nondet: str | None = None, name: str | None = None
    ) -> Stream[T_co, Unbounded, G, O]:
        """Hold rows back until the next row of `signal` (see `operators.across_ticks`).

        nondet: as in `defer_tick_lazy`.
        """
        from headrace.operators.across_ticks import DeferSignal

        location = SourceLocation.of_caller()
        check_stream(signal, "defer_signal", location)
        check_reason(nondet, location)
        return self._flow.add(DeferSignal(nondet), self._schema, (self, signal), name, location)

    def persist(self) -> Stream[T_co, B, G, O]:
        """Return this stream, which already maintains all rows so far.

        Nothing is repeated. To emit all rows in each tick, use `persist().every_tick(...)`.
        """
        return cast("Stream[T_co, B, G, O]", self)

    def every_tick(
        self, *, nondet: str | None = None, name: str | None = None
    ) -> Stream[T_co, Unbounded, Append, O]:
        """Emit all rows so far again in each tick, as plain rows (see `operators.across_ticks`).

        nondet: as in `defer_tick_lazy`.
        """
        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        return self._add(EveryTick(nondet), self._schema, name, location)

    def multiset_delta(
        self, *, nondet: str | None = None, name: str | None = None
    ) -> Stream[T_co, B, Append, O]:
        """Emit the rows of this tick in excess of the previous tick (see `operators.across_ticks`).

        nondet: as in `defer_tick_lazy`.
        """
        from headrace.operators.across_ticks import MultisetDelta

        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        return self._add(MultisetDelta(nondet), self._schema, name, location)

    def null(self, *, name: str | None = None) -> Stream[T_co, Bounded, Append, Ordered]:
        """Consume rows that no sink needs, so that their operators still run (see `operators.endpoints`)."""
        from headrace.operators.endpoints import Null

        location = SourceLocation.of_caller()
        return self._add(Null(swallows=True), self._schema, name, location)

    def latest(self, *, nondet: str | None = None, name: str | None = None) -> Signal[T_co]:
        """Return the last row of each tick with rows, as a signal (see `operators.signals.earlier_values`).

        nondet: reason why this may depend on the cut into ticks; not needed if the ticks are given.
        """
        # Imported here, so that flows without signals do not load them.
        from headrace.flow.signal import Signal
        from headrace.operators.signals.earlier_values import LastRow

        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        stream = self._add(LastRow(nondet), self._schema, name, location)
        return Signal(self._flow, stream.node_id, self._schema)

    # -- construction ----------------------------------------------------------------------

    def _time_column(self, column: object, location: SourceLocation) -> Field:
        name = column if isinstance(column, str) else column.name if isinstance(column, Column) else None
        if name is None:
            raise WrongType(
                f"a watermark is put on a column, got {render_argument(column)}",
                where=[location],
                fix="hr.col.at; compute the column before, by with_columns(at=...)",
            )
        type_ = check(Column(name), self._schema).type
        if type_ not in TIME_TYPES:
            raise WrongType(
                f"a watermark needs a time, and {name!r} is {type_}",
                where=[location],
                why="Times are timestamps, and numbers that count time.",
                fix="cast() it to a timestamp, or let .to_timestamp() read it from text",
            )
        at = self._schema.position(name)
        assert at is not None
        return self._schema.fields[at]

    def _windows(
        self, keys: tuple[Any, ...], named: dict[str, Any], location: SourceLocation
    ) -> WindowGroups[B, Any, Any]:
        from headrace.flow.grouped_streams import WindowGroups
        from headrace.operators.time_spans import Windows

        windows = named.pop("window", None)
        if not isinstance(windows, Windows) or any(isinstance(n, Windows) for n in (*keys, *named.values())):
            raise WrongType(
                "windows are given to group_by otherwise than by window=",
                where=[location],
                why="A group is of one window, and its columns are window_start and window_end.",
                fix='group_by("who", window=hr.tumbling(hr.col.at, "10s"))',
            )
        emit = "close"
        if not isinstance(named.get("emit"), Expr | None):
            emit = named.pop("emit")
        chosen = (*named_columns(keys, location), *computed_columns(named, location))
        for _, expr in chosen:
            check(expr, self._schema)
        return WindowGroups(cast("Stream[T_co, B, G, O]", self), chosen, windows, emit, location)
