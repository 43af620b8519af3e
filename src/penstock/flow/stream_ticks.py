"""Methods of streams about ticks: what is seen later, again, or as a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from penstock.errors import Place
from penstock.flow.markers import Unbounded
from penstock.flow.operators.defer_tick import DeferTick
from penstock.flow.operators.signals.last_row import LastRow
from penstock.flow.signal import Signal
from penstock.flow.stream_base import B, G, O, StreamBase, T_co, check_reason

if TYPE_CHECKING:
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
        place = Place.of_caller()
        check_reason(nondet, place)
        stream = self._add(DeferTick(nondet), self._schema, name, place)
        return cast("Stream[T_co, Unbounded, G, O]", stream)

    def latest(self, *, nondet: str | None = None, name: str | None = None) -> Signal[T_co]:
        """The last row of each tick that brings rows, as a signal (see `operators.signals.last_row`).

        nondet: why it is right that this depends on where ticks end; not needed where the ticks are given.
        """
        place = Place.of_caller()
        check_reason(nondet, place)
        stream = self._add(LastRow(nondet), self._schema, name, place)
        return Signal(self._flow, stream.node_id, self._schema)
