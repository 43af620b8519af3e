"""Due times: when rows of temporal filters next come or go, by the time of the ticks."""

from __future__ import annotations

from bisect import bisect_left
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headrace.errors import EvaluationError
from headrace.expr.compile_python import compile_rows
from headrace.expr.monotonicity import Monotonicity, monotonicity
from headrace.operators.select import Select
from headrace.operators.source import TICK_TIME
from headrace.operators.temporal_filter import TemporalFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from datetime import datetime

    from headrace.graph.node import FlowGraph, Node
    from headrace.lowering.slot import SlotMapping

_SEARCHED = timedelta(days=36_525) // timedelta(microseconds=1)
"""Microseconds that are searched, from the last time on."""


class DueTimes:
    """The due times of a flow's temporal filters.

    A filter's clock may be computed of the time of the ticks (`date_trunc`, minus 30 days), by what never
    falls as that rises. Other filters have no due times.

    slots: names of the slots of state; filters that no sink reads have none.
    """

    def __init__(self, graph: FlowGraph, slots: Collection[str]) -> None:
        self._filters = list(_filters(graph, slots))

    def after(self, time: datetime, slots: Mapping[str, SlotMapping]) -> datetime | None:
        """Return the first time after `time` at which a moment comes; None if none does in 100 years.

        time: that of the last tick. Rows that were deleted before their moment are not told apart.
        """
        due = [filter.due(time, slots) for filter in self._filters]
        return min((each for each in due if each is not None), default=None)


class _Filter:
    """A temporal filter whose clock is computed of the time of the ticks."""

    def __init__(self, calendar: str, operator: TemporalFilter, clock: Callable[[datetime], Any]) -> None:
        self._calendar = calendar
        self._turns_at = operator.presence.turns_at
        self._clock = clock
        self._known: tuple[Any, datetime] | None = None

    def due(self, time: datetime, slots: Mapping[str, SlotMapping]) -> datetime | None:
        moments = slots[self._calendar].get(())
        if not moments:
            return None
        moment, known = moments[0], self._known
        if known is not None and known[0] == moment and known[1] > time:
            return known[1]
        due = self._reaches(moment, time)
        self._known = None if due is None else (moment, due)
        return due

    def _reaches(self, moment: Any, time: datetime) -> datetime | None:
        """Return the first time after `time` at which the clock reaches a moment."""
        aheads = range(1, _SEARCHED + 1)
        at = bisect_left(aheads, True, key=lambda ahead: self._has_reached(moment, time, ahead))
        if at == len(aheads) or self._shown(time, aheads[at]) is None:
            return None
        return time + timedelta(microseconds=aheads[at])

    def _has_reached(self, moment: Any, time: datetime, ahead: int) -> bool:
        shown = self._shown(time, ahead)
        return shown is None or (shown >= moment if self._turns_at else shown > moment)

    def _shown(self, time: datetime, ahead: int) -> Any:
        """Return what the clock shows so many microseconds after `time`; None where that is beyond 9999."""
        try:
            return self._clock(time + timedelta(microseconds=ahead))
        except (OverflowError, EvaluationError):
            return None


def _filters(graph: FlowGraph, slots: Collection[str]) -> Iterator[_Filter]:
    for node in graph.nodes:
        calendar = f"{node.id}.calendar"
        if isinstance(node.operator, TemporalFilter) and calendar in slots:
            clock = _clock_of(graph, graph.nodes[node.inputs[1]])
            if clock is not None:
                yield _Filter(calendar, node.operator, clock)


def _clock_of(graph: FlowGraph, node: Node) -> Callable[[datetime], Any] | None:
    """Return the function from the time of a tick to the value of a clock; None if it may fall."""
    steps: list[Callable[[tuple[Any, ...]], tuple[Any, ...]]] = []
    while isinstance(node.operator, Select):
        above = graph.nodes[node.inputs[0]]
        ((_, expr),) = node.operator.columns
        (field, *others) = above.schema.fields
        if others or monotonicity(expr, above.schema, field.name) is not Monotonicity.INCREASING:
            return None
        steps.append(compile_rows((expr,), above.schema))
        node = above
    if graph.sources.get(TICK_TIME) != node.id:
        return None

    def clock(time: datetime) -> Any:
        row: tuple[Any, ...] = (time,)
        for step in reversed(steps):
            row = step(row)
        return row[0]

    return clock
