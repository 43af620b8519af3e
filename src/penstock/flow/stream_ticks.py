"""Methods of streams about ticks: what is seen later, again, or as a difference.

An operator is imported by the method that adds it: a flow need not load those it does not use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from penstock.errors import SourceLocation
from penstock.flow.markers import Append, Bounded, Ordered, Unbounded
from penstock.flow.operators.defer_tick import DeferTick
from penstock.flow.operators.every_tick import EveryTick
from penstock.flow.stream_base import B, G, O, StreamBase, T_co, check_reason, check_stream

if TYPE_CHECKING:
    from penstock.flow.signal import Signal
    from penstock.flow.stream import Stream


class StreamTicks(StreamBase[T_co, B, G, O]):
    """Ticks: later, again, since the last one."""

    __slots__ = ()

    def defer_tick(
        self, *, nondet: str | None = None, name: str | None = None
    ) -> Stream[T_co, Unbounded, G, O]:
        """The same rows one tick later (see `operators.defer_tick`).

        nondet: why it is right that answers depend on the cut into ticks; required
        where the delay stands in a cycle through a blocking input.
        """
        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        stream = self._add(DeferTick(nondet), self._schema, name, location)
        return cast("Stream[T_co, Unbounded, G, O]", stream)

    def defer_tick_lazy(
        self, *, nondet: str | None = None, name: str | None = None
    ) -> Stream[T_co, Unbounded, G, O]:
        """The same rows in the next tick, which does not start for them (see `operators.defer_tick_lazy`).

        nondet: why it is right that answers depend on the cut into ticks; not needed where
                the ticks are given.
        """
        from penstock.flow.operators.defer_tick_lazy import DeferTickLazy

        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        stream = self._add(DeferTickLazy(nondet), self._schema, name, location)
        return cast("Stream[T_co, Unbounded, G, O]", stream)

    def defer_signal(
        self, signal: Stream[Any, Any, Append, Any], *, nondet: str | None = None, name: str | None = None
    ) -> Stream[T_co, Unbounded, G, O]:
        """All rows since the last signal, in the tick of a row of `signal` (see `operators.defer_signal`).

        nondet: as in `defer_tick_lazy`.
        """
        from penstock.flow.operators.defer_signal import DeferSignal

        location = SourceLocation.of_caller()
        check_stream(signal, "defer_signal", location)
        check_reason(nondet, location)
        stream = self._flow.add(DeferSignal(nondet), self._schema, (self, signal), name, location)
        return cast("Stream[T_co, Unbounded, G, O]", stream)

    def persist(self) -> Stream[T_co, B, G, O]:
        """All rows so far, as changes: what every stream is, so this is the stream itself.

        Nothing is repeated. Who wants to see all rows in each tick says so: `persist().every_tick(...)`.
        """
        return cast("Stream[T_co, B, G, O]", self)

    def every_tick(
        self, *, nondet: str | None = None, name: str | None = None
    ) -> Stream[T_co, Unbounded, Append, O]:
        """All rows so far, shown again in each tick, as plain rows (see `operators.every_tick`).

        nondet: as in `defer_tick_lazy`.
        """
        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        stream = self._add(EveryTick(nondet), self._schema, name, location)
        return cast("Stream[T_co, Unbounded, Append, O]", stream)

    def multiset_delta(
        self, *, nondet: str | None = None, name: str | None = None
    ) -> Stream[T_co, B, Append, O]:
        """The rows of this tick beyond those of the tick before (see `operators.multiset_delta`).

        nondet: as in `defer_tick_lazy`.
        """
        from penstock.flow.operators.multiset_delta import MultisetDelta

        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        stream = self._add(MultisetDelta(nondet), self._schema, name, location)
        return cast("Stream[T_co, B, Append, O]", stream)

    def null(self, *, name: str | None = None) -> Stream[T_co, Bounded, Append, Ordered]:
        """An end for rows that nobody needs: what leads here runs (see `operators.null`)."""
        from penstock.flow.operators.null import Null

        location = SourceLocation.of_caller()
        stream = self._add(Null(swallows=True), self._schema, name, location)
        return cast("Stream[T_co, Bounded, Append, Ordered]", stream)

    def latest(self, *, nondet: str | None = None, name: str | None = None) -> Signal[T_co]:
        """The last row of each tick that brings rows, as a signal (see `operators.signals.last_row`).

        nondet: why it is right that this depends on where ticks end; not needed where the ticks are given.
        """
        # A flow without signals need not load them.
        from penstock.flow.operators.signals.last_row import LastRow
        from penstock.flow.signal import Signal

        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        stream = self._add(LastRow(nondet), self._schema, name, location)
        return Signal(self._flow, stream.node_id, self._schema)
