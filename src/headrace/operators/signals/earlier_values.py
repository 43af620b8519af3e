"""Signal operators: over earlier values, with conditional firing, and at the ends of signals.

Earlier values: scan, window, delay. Silent: filter, when, sample, no repeats. Ends: sources, the last row of
each tick as a signal, the values of a signal as rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.graph.node import ALTERABLE, Operator
from headrace.graph.operator_declarations import SIGNAL, WHOLE, Facts, Need, Placement, Port
from headrace.lowering.signal_step import (
    SignalCell,
    SignalOutcome,
    SignalStep,
    SignalWriter,
    register_signal_step,
)
from headrace.operators.column_arguments import ANY_VALUE
from headrace.operators.endpoints import SinkOperator
from headrace.operators.lifetime import TickDependent
from headrace.operators.signals.lift import ONE_INPUT, Constant, SignalOperator, constant_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


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

    def cells(self) -> tuple[SignalCell, ...]:
        # A function may alter a list or dict that it is given, and the operator is any number of engines'.
        return (SignalCell("accumulator", partial(deepcopy, self.operator.initial)),)

    def write(self, writer: SignalWriter, *inputs: str) -> SignalOutcome:
        accumulator = writer.cell(self.node, "accumulator")
        function = writer.constant("f", self.operator.function)
        writer.code.line(f"{accumulator} = {function}({accumulator}, {inputs[0]})")
        return SignalOutcome(accumulator)


@register_signal_step(WindowSignal)
class WindowSignalStep(SignalStep):
    operator: WindowSignal

    def cells(self) -> tuple[SignalCell, ...]:
        return (last_values(self.operator.size),)

    def write(self, writer: SignalWriter, *inputs: str) -> SignalOutcome:
        values = writer.cell(self.node, "history")
        writer.code.line(f"{values}.append({inputs[0]})")
        call = f"{writer.constant('f', self.operator.function)}(list({values}))"
        if not self.operator.may_be_silent():
            return SignalOutcome(call)
        return SignalOutcome(call, f"len({values}) == {self.operator.size}")


@register_signal_step(DelaySignal)
class DelaySignalStep(SignalStep):
    operator: DelaySignal

    def cells(self) -> tuple[SignalCell, ...]:
        # One more than the delay: the oldest is the one to show.
        return (last_values(self.operator.count + 1),)

    def write(self, writer: SignalWriter, *inputs: str) -> SignalOutcome:
        values = writer.cell(self.node, "history")
        writer.code.line(f"{values}.append({inputs[0]})")
        is_full = f"len({values}) > {self.operator.count}"
        if self.operator.initial is None:
            return SignalOutcome(f"{values}[0]", is_full)
        initial = constant_source(writer, self.operator.initial.value)
        return SignalOutcome(f"{values}[0] if {is_full} else {initial}")


def last_values(size: int) -> SignalCell:
    """Return the cell `history` with the last `size` values, oldest first."""
    return SignalCell("history", partial(_last, (), size=size), tuple, partial(_last, size=size))


def _last(values: Iterable[Any], *, size: int) -> deque[Any]:
    return deque(values, maxlen=size)


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


@dataclass(frozen=True, slots=True)
class WhenSignal(SignalOperator):
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


# --- steps ----------------------------------------------------------------------------------------


@register_signal_step(FilterSignal)
class FilterSignalStep(SignalStep):
    operator: FilterSignal

    def write(self, writer: SignalWriter, *inputs: str) -> SignalOutcome:
        return SignalOutcome(inputs[0], f"{writer.constant('f', self.operator.predicate)}({inputs[0]})")


@register_signal_step(WhenSignal)
class WhenStep(SignalStep):
    def write(self, writer: SignalWriter, *inputs: str) -> SignalOutcome:
        value, condition = inputs
        known = writer.has_value(self.node, 1)
        return SignalOutcome(value, condition if known is None else f"{known} and {condition}")


@register_signal_step(Sample)
class SampleStep(SignalStep):
    def write(self, writer: SignalWriter, *inputs: str) -> SignalOutcome:
        return SignalOutcome(inputs[0], writer.has_value(self.node, 0))


@register_signal_step(NoRepeats)
class NoRepeatsStep(SignalStep):
    """Removal of repetitions: passes only values that differ from the last one emitted."""

    def cells(self) -> tuple[SignalCell, ...]:
        return (SignalCell("last", lambda: None), SignalCell("any", lambda: False))

    def write(self, writer: SignalWriter, *inputs: str) -> SignalOutcome:
        (value,) = inputs
        last, any_yet = writer.cell(self.node, "last"), writer.cell(self.node, "any")
        differs = writer.fresh("differs")
        function = writer.constant("differ", values_differ)
        # Most values are of one type and not equal: that is found without a call.
        writer.code.line(f"{differs} = not {any_yet} or {function}({last}, {value})")
        with writer.code.block(f"if {differs}:"):
            writer.code.line(f"{last} = {value}")
            writer.code.line(f"{any_yet} = True")
        return SignalOutcome(value, differs)


def values_differ(one: object, other: object) -> bool:
    """Return whether two values differ: True and 1 do, NaN and NaN do not.

    The items of lists, tuples and dicts are compared likewise.
    """
    if one is other:
        return False
    if isinstance(one, bool) is not isinstance(other, bool):
        return True
    if isinstance(one, list | tuple):
        if not isinstance(other, list | tuple) or isinstance(one, list) is not isinstance(other, list):
            return True
        return len(one) != len(other) or any(map(values_differ, one, other))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() != other.keys() or any(values_differ(v, other[k]) for k, v in one.items())  # pyright: ignore
    return not (one == other or (one != one and other != other))


@dataclass(frozen=True, slots=True)
class SignalSource(SignalOperator):
    """The values given to ticks under the source's name. The signal fires in ticks that have one.

    A value equal to the previous one also fires. The ticks are part of the input, because the time of a value
    and the values simultaneous with it matter.

    >>> import headrace as hr
    >>> flow = hr.Flow("sums")
    >>> a, b = flow.signal("a", float), flow.signal("b", float)
    >>> flow.sink("sum", a + b)
    >>> engine = hr.Engine(flow)
    >>> [list(engine.tick(**values)["sum"]) for values in ({"a": 1.0}, {"b": 2.0}, {"a": 3.0, "b": 4.0})]
    [[], [Change(row=3.0, weight=1)], [Change(row=7.0, weight=1)]]
    """

    kind: ClassVar[str] = "signal"
    plan_name: ClassVar[str | None] = "signal.source"
    begins_ticks: ClassVar[bool] = True
    name: str
    schema: Schema

    def ports(self) -> tuple[Port, ...]:
        return ()

    def output(self, context: CheckContext) -> Columns:
        context.check_name(self.name)
        context.require(self.schema == context.output, "the source has another type than its values")
        return self.schema.fields


@dataclass(frozen=True, slots=True)
class LastRow(TickDependent, SignalOperator):
    """The last row of each tick that has rows.

    The last row of a tick depends on the cut into ticks, so a reason (`nondet=`) is required unless the ticks
    are part of the input. The signal does not fire in a tick without rows.

    Operators that read every value, such as a window, a scan or a stream, would miss the rows before the last
    one. If there are any, and no reason is given, more than one row in a tick raises `BadInput`.

    >>> import headrace as hr
    >>> flow = hr.Flow("the newest", ticks="given")
    >>> flow.sink("newest", flow.source("prices", float).latest() * 2)
    >>> list(hr.Engine(flow).tick(prices=[1.0, 3.0])["newest"])
    [Change(row=6.0, weight=1)]
    """

    kind: ClassVar[str] = "latest"
    plan_name: ClassVar[str | None] = "signal.last_row"
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return ONE_INPUT

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def required_facts(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "a row that is taken back was the last one, too",
                "take rows of a stream that grows",
            ),
            Need(
                0,
                "ordered",
                "the last row of a tick is asked for",
                'say which order it is: assume_ordered(nondet="why rows come in order")',
            ),
        )

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return Facts(ordered=True, det=inputs[0].det and self.nondet is None)

    def depends_on_cut(self) -> str:
        return "It shows the last row of each tick, so where ticks end shows."


@dataclass(frozen=True, slots=True)
class ValueRows(Operator):
    """The value as a row in each tick in which the signal fires.

    >>> import headrace as hr
    >>> flow = hr.Flow("how often each")
    >>> values = flow.signal("a", str).stream()
    >>> flow.sink("counts", values.group_by("value").agg(n=hr.count()))
    >>> list(hr.Engine(flow).tick(a="x")["counts"])
    [Change(row=Row(value='x', n=1), weight=1)]
    """

    kind: ClassVar[str] = "values"
    plan_name: ClassVar[str | None] = "signal.value_rows"

    def ports(self) -> tuple[Port, ...]:
        return ONE_INPUT

    def output(self, context: CheckContext) -> Columns:
        return None

    def unservable(self) -> Unservable | None:
        return SIGNAL

    def placement(self) -> Placement:
        return WHOLE


# --- steps ----------------------------------------------------------------------------------------


@register_signal_step(SignalSource, LastRow)
class SignalSourceStep(SignalStep):
    """Step of a source, without code: the value is an argument or loop variable of the function."""


@register_signal_step(SinkOperator, ValueRows)
class EmittingStep(SignalStep):
    """Step that emits a value to a sink or a stream."""

    def write(self, writer: SignalWriter, *inputs: str) -> None:
        writer.write_leaving(self.node.id, inputs[0])
