"""Window operator for signals: a function of the last values."""

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
class Window(SignalOperator):
    """`function(values)` of the last `size` values of the input as a list, oldest first, each time it fires.

    full: fire only once there are `size` values.

    >>> import headrace as hr
    >>> flow = hr.Flow("highest of two")
    >>> flow.sink("high", flow.signal("a", int).window(2, max))
    >>> list(hr.Engine(flow).replay(a=[3, 1, 2])["high"])
    [(0, 3), (1, 3), (2, 2)]
    """

    kind: ClassVar[str] = "window"
    plan_name: ClassVar[str | None] = "signal.window"
    size: int
    function: Callable[..., object]
    full: bool = False

    def ports(self) -> tuple[Port, ...]:
        return ONE_INPUT

    def output(self, context: CheckContext) -> Columns:
        context.require(self.size >= 1, "a window is of no values")
        return ANY_VALUE.fields

    def reads_every_value(self) -> tuple[int, ...]:
        return (0,)

    def may_be_silent(self) -> bool:
        return self.full and self.size > 1

    def is_steady(self) -> bool:
        return True

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield "function", self.function

    def describe(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return f"{name} of the last {self.size}" + (", full ones only" if self.full else "")
