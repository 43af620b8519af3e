"""Steps that may stay silent: filters, samples, removal of repetitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.signals.step import Cell, Outcome, SignalStep, SignalWriter, signal_step
from headrace.operators.signals.filters import FilterSignal, NoRepeats, Sample, When

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.graph.node import Node


class FilterSignalStep(SignalStep):
    def __init__(self, node: Node, predicate: Callable[..., object]) -> None:
        super().__init__(node)
        self.predicate = predicate

    def write(self, writer: SignalWriter, *inputs: str) -> Outcome:
        return Outcome(inputs[0], f"{writer.constant('f', self.predicate)}({inputs[0]})")


class WhenStep(SignalStep):
    def write(self, writer: SignalWriter, *inputs: str) -> Outcome:
        value, condition = inputs
        known = writer.has_value(self.node, 1)
        return Outcome(value, condition if known is None else f"{known} and {condition}")


class SampleStep(SignalStep):
    def write(self, writer: SignalWriter, *inputs: str) -> Outcome:
        return Outcome(inputs[0], writer.has_value(self.node, 0))


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


@signal_step.register(FilterSignal)
def _filter(operator: FilterSignal, node: Node) -> SignalStep:
    return FilterSignalStep(node, operator.predicate)


@signal_step.register(When)
def _when(operator: When, node: Node) -> SignalStep:
    return WhenStep(node)


@signal_step.register(Sample)
def _sample(operator: Sample, node: Node) -> SignalStep:
    return SampleStep(node)


@signal_step.register(NoRepeats)
def _no_repeats(operator: NoRepeats, node: Node) -> SignalStep:
    return NoRepeatsStep(node)
