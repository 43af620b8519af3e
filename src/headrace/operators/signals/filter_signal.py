"""Filter operator for signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.operator_declarations import Port
from headrace.operators.signals.signal_operator import ONE_INPUT, SignalOperator

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns


@dataclass(frozen=True, slots=True)
class FilterSignal(SignalOperator):
    """The values that satisfy `predicate`. For other values, the signal does not fire and keeps its last one.

    Operators that read only this signal do not run in a tick in which it does not fire.

    >>> import headrace as hr
    >>> flow = hr.Flow("what is above zero")
    >>> flow.sink("up", flow.signal("a", int).filter(lambda v: v > 0))
    >>> list(hr.Engine(flow).replay(a=[1, -2, 3])["up"])
    [(0, 1), (2, 3)]
    """

    kind: ClassVar[str] = "filter_signal"
    plan_name: ClassVar[str | None] = "signal.filter"
    predicate: Callable[..., object]

    def ports(self) -> tuple[Port, ...]:
        return ONE_INPUT

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def may_be_silent(self) -> bool:
        return True

    def counts_when_activated(self) -> bool:
        return True

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield "predicate", self.predicate

    def describe(self) -> str:
        return getattr(self.predicate, "__name__", type(self.predicate).__name__)
