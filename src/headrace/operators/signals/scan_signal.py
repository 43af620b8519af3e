"""Scan operator for signals: accumulate over firings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.operator_declarations import Port
from headrace.operators.column_arguments import ANY_VALUE
from headrace.operators.signals.signal_operator import ONE_INPUT, SignalOperator

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns


@dataclass(frozen=True, slots=True)
class ScanSignal(SignalOperator):
    """The accumulator `function(accumulator, value)`, starting from `initial`, each time the input fires.

    `initial` itself is not a value of the signal.

    >>> import headrace as hr
    >>> flow = hr.Flow("so far")
    >>> flow.sink("sum", flow.signal("a", int).scan(0, lambda sum, v: sum + v))
    >>> list(hr.Engine(flow).replay(a=[1, 2, 3])["sum"])
    [(0, 1), (1, 3), (2, 6)]
    """

    kind: ClassVar[str] = "scan_signal"
    plan_name: ClassVar[str | None] = "signal.scan"
    initial: object
    function: Callable[..., object]

    def ports(self) -> tuple[Port, ...]:
        return ONE_INPUT

    def output(self, context: CheckContext) -> Columns:
        return ANY_VALUE.fields

    def reads_every_value(self) -> tuple[int, ...]:
        return (0,)

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield "function", self.function

    def describe(self) -> str:
        return (
            f"from {self.initial!r:.40}: {getattr(self.function, '__name__', type(self.function).__name__)}"
        )
