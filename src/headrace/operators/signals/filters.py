"""Signal operators that may stay silent: filter, when, sample, no repeats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.operator_declarations import Port
from headrace.lowering.signal_step import Cell, Outcome, SignalStep, SignalWriter, register_signal_step
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

    def write(self, writer: SignalWriter, *inputs: str) -> Outcome:
        return Outcome(inputs[0], f"{writer.constant('f', self.operator.predicate)}({inputs[0]})")


@register_signal_step(When)
class WhenStep(SignalStep):
    def write(self, writer: SignalWriter, *inputs: str) -> Outcome:
        value, condition = inputs
        known = writer.has_value(self.node, 1)
        return Outcome(value, condition if known is None else f"{known} and {condition}")


@register_signal_step(Sample)
class SampleStep(SignalStep):
    def write(self, writer: SignalWriter, *inputs: str) -> Outcome:
        return Outcome(inputs[0], writer.has_value(self.node, 0))


@register_signal_step(NoRepeats)
class NoRepeatsStep(SignalStep):
    """Removal of repetitions: passes only values that differ from the last one emitted."""

    def cells(self) -> tuple[Cell, ...]:
        return (Cell("last", lambda: None), Cell("any", lambda: False))

    def write(self, writer: SignalWriter, *inputs: str) -> Outcome:
        (value,) = inputs
        last, any_yet = writer.cell(self.node, "last"), writer.cell(self.node, "any")
        differs = writer.fresh("differs")
        function = writer.constant("differ", values_differ)
        # Most values are of one type and not equal: that is found without a call.
        writer.code.line(f"{differs} = not {any_yet} or {function}({last}, {value})")
        with writer.code.block(f"if {differs}:"):
            writer.code.line(f"{last} = {value}")
            writer.code.line(f"{any_yet} = True")
        return Outcome(value, differs)


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
