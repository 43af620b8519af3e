"""Methods of streams about ticks: what is seen later, again, or as a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from penstock.errors import Place
from penstock.flow.markers import Unbounded
from penstock.flow.operators.defer_tick import DeferTick
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
