"""Delay operator for signals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.operator_declarations import Port
from headrace.operators.column_arguments import ANY_VALUE
from headrace.operators.signals.lift import Constant
from headrace.operators.signals.signal_operator import ONE_INPUT, SignalOperator

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns


@dataclass(frozen=True, slots=True)
class DelaySignal(SignalOperator):
    """The value of the input `count` firings ago, each time it fires. Ticks are not counted.

    initial: value for the first `count` firings; without one (None, not a `Constant`), it does not fire then.

    >>> import headrace as hr
    >>> flow = hr.Flow("the one before")
    >>> a = flow.signal("a", int)
    >>> flow.sink("before", a.delay(1, init=0))
    >>> list(hr.Engine(flow).replay(a=[1, 2, 3])["before"])
    [(0, 0), (1, 1), (2, 2)]
    """

    kind: ClassVar[str] = "delay"
    plan_name: ClassVar[str | None] = "signal.delay"
    count: int
    initial: Constant | None = None

    def ports(self) -> tuple[Port, ...]:
        return ONE_INPUT

    def output(self, context: CheckContext) -> Columns:
        context.require(self.count >= 1, "a delay is of no values")
        return context.input.fields if self.initial is None else ANY_VALUE.fields

    def reads_every_value(self) -> tuple[int, ...]:
        return (0,)

    def may_be_silent(self) -> bool:
        return self.initial is None

    def is_steady(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{self.count}" + (f", at first {self.initial.value!r:.40}" if self.initial else "")
