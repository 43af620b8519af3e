"""Signal operators over earlier values: scan, window, delay."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.graph.operator_declarations import Port
from headrace.lowering.signal_step import Cell, Outcome, SignalStep, SignalWriter, register_signal_step
from headrace.operators.column_arguments import ANY_VALUE
from headrace.operators.signals.lift import Constant, constant_source
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


@dataclass(frozen=True, slots=True)
class WindowSignal(SignalOperator):
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


# --- steps ----------------------------------------------------------------------------------------


@register_signal_step(ScanSignal)
class ScanSignalStep(SignalStep):
    operator: ScanSignal

    def cells(self) -> tuple[Cell, ...]:
        # A function may alter a list or dict that it is given, and the operator is any number of engines'.
        return (Cell("accumulator", partial(deepcopy, self.operator.initial)),)

    def write(self, writer: SignalWriter, *inputs: str) -> Outcome:
        accumulator = writer.cell(self.node, "accumulator")
        function = writer.constant("f", self.operator.function)
        writer.code.line(f"{accumulator} = {function}({accumulator}, {inputs[0]})")
        return Outcome(accumulator)


@register_signal_step(WindowSignal)
class WindowSignalStep(SignalStep):
    operator: WindowSignal

    def cells(self) -> tuple[Cell, ...]:
        return (last_values(self.operator.size),)

    def write(self, writer: SignalWriter, *inputs: str) -> Outcome:
        values = writer.cell(self.node, "history")
        writer.code.line(f"{values}.append({inputs[0]})")
        call = f"{writer.constant('f', self.operator.function)}(list({values}))"
        if not self.operator.may_be_silent():
            return Outcome(call)
        return Outcome(call, f"len({values}) == {self.operator.size}")


@register_signal_step(DelaySignal)
class DelaySignalStep(SignalStep):
    operator: DelaySignal

    def cells(self) -> tuple[Cell, ...]:
        # One more than the delay: the oldest is the one to show.
        return (last_values(self.operator.count + 1),)

    def write(self, writer: SignalWriter, *inputs: str) -> Outcome:
        values = writer.cell(self.node, "history")
        writer.code.line(f"{values}.append({inputs[0]})")
        is_full = f"len({values}) > {self.operator.count}"
        if self.operator.initial is None:
            return Outcome(f"{values}[0]", is_full)
        initial = constant_source(writer, self.operator.initial.value)
        return Outcome(f"{values}[0] if {is_full} else {initial}")


def last_values(size: int) -> Cell:
    """Return the cell `history` with the last `size` values, oldest first."""
    return Cell("history", partial(_last, (), size=size), tuple, partial(_last, size=size))


def _last(values: Iterable[Any], *, size: int) -> deque[Any]:
    return deque(values, maxlen=size)
