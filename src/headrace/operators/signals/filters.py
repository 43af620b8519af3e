"""Signal operators that may stay silent: filter, when, sample, no repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.operator_declarations import Port
from headrace.operators.signals.signal_operator import ONE_INPUT, SignalOperator

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns


# --- filter operator for signals ------------------------------------------------------------------


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


# --- when operator: the values of a signal while a condition is true ------------------------------


@dataclass(frozen=True, slots=True)
class When(SignalOperator):
    """The value of `value` when it fires while `condition`, as settled in this tick, is true.

    A firing of the condition alone does not fire it.

    >>> import headrace as hr
    >>> flow = hr.Flow("large changes")
    >>> a = flow.signal("a", int)
    >>> flow.sink("large", a.filter(abs(a - a.delay(1, init=0)) > 2))
    >>> list(hr.Engine(flow).replay(a=[1, 5, 6, 2])["large"])
    [(1, 5), (3, 2)]
    """

    kind: ClassVar[str] = "when"
    plan_name: ClassVar[str | None] = "signal.when"

    def ports(self) -> tuple[Port, ...]:
        return (Port("value"), Port("condition"))

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def triggers(self) -> tuple[int, ...]:
        return (0,)

    def may_be_silent(self) -> bool:
        return True


# --- sample operator: a signal's value when another fires -----------------------------------------


@dataclass(frozen=True, slots=True)
class Sample(SignalOperator):
    """The current value of `value`, as settled in this tick, when `trigger` fires.

    A trigger before the first value is ignored.

    >>> import headrace as hr
    >>> flow = hr.Flow("prices at the bell")
    >>> price, bell = flow.signal("price", float), flow.signal("bell", bool)
    >>> flow.sink("seen", price.sample(bell))
    >>> list(hr.Engine(flow).replay([("bell", True), ("price", 1.5), ("price", 2.5), ("bell", True)])["seen"])
    [(3, 2.5)]
    """

    kind: ClassVar[str] = "sample"
    plan_name: ClassVar[str | None] = "signal.sample"

    def ports(self) -> tuple[Port, ...]:
        return (Port("value"), Port("trigger"))

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def triggers(self) -> tuple[int, ...]:
        return (1,)

    def may_be_silent(self) -> bool:
        return True


# --- no-repeats operator: drop consecutive equal values of a signal -------------------------------


@dataclass(frozen=True, slots=True)
class NoRepeats(SignalOperator):
    """The values that differ from the previous one, starting with the first.

    Two values differ if they are not equal, or if one is a bool and the other a number, so True differs from
    1. NaN does not differ from NaN.

    >>> import headrace as hr
    >>> flow = hr.Flow("what changes")
    >>> flow.sink("new", flow.signal("a", int).changes())
    >>> list(hr.Engine(flow).replay(a=[1, 1, 2, 1])["new"])
    [(0, 1), (2, 2), (3, 1)]
    """

    kind: ClassVar[str] = "changes"
    plan_name: ClassVar[str | None] = "signal.no_repeats"

    def ports(self) -> tuple[Port, ...]:
        return ONE_INPUT

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def may_be_silent(self) -> bool:
        return True
