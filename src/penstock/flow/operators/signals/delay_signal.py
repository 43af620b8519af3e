"""Delay of a signal: the value of some firings ago."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.flow.operators.signals.lift import Constant
from penstock.flow.operators.signals.signal_operator import ONE_INPUT, SignalOperator
from penstock.graph.facts import Port


@dataclass(frozen=True, slots=True)
class DelaySignal(SignalOperator):
    """The value that the input had `count` firings ago, each time it fires. Ticks are not counted.

    initial: the value of the first `count` firings; None (no `Constant`): then it does not fire.

    >>> import penstock as ps
    >>> flow = ps.Flow("the one before")
    >>> a = flow.signal("a", int)
    >>> flow.sink("before", a.delay(1, init=0))
    >>> list(ps.Engine(flow).replay(a=[1, 2, 3])["before"])
    [(0, 0), (1, 1), (2, 2)]
    """

    kind: ClassVar[str] = "delay"
    count: int
    initial: Constant | None = None

    def ports(self) -> tuple[Port, ...]:
        return ONE_INPUT

    def reads_every_value(self) -> tuple[int, ...]:
        return (0,)

    def may_be_silent(self) -> bool:
        return self.initial is None

    def is_steady(self) -> bool:
        return True

    def describe(self) -> str:
        return f"{self.count}" + (f", at first {self.initial.value!r:.40}" if self.initial else "")
