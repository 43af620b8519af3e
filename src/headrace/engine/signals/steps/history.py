"""Steps that keep earlier values: scan, window, delay."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.engine.signals.step import Cell, Outcome, SignalStep, SignalWriter, signal_step
from headrace.engine.signals.steps.lifts import constant_source
from headrace.operators.signals.history import DelaySignal, ScanSignal, WindowSignal

if TYPE_CHECKING:
    from headrace.graph.node import Node


class ScanSignalStep(SignalStep):
    def __init__(self, node: Node, scan: ScanSignal) -> None:
        super().__init__(node)
        self.scan = scan

    def cells(self) -> tuple[Cell, ...]:
        # A function may alter a list or dict that it is given, and the operator is any number of engines'.
        return (Cell("accumulator", partial(deepcopy, self.scan.initial)),)

    def write(self, writer: SignalWriter, *inputs: str) -> Outcome:
        accumulator = writer.cell(self.node, "accumulator")
        function = writer.constant("f", self.scan.function)
        writer.code.line(f"{accumulator} = {function}({accumulator}, {inputs[0]})")
        return Outcome(accumulator)


class WindowStep(SignalStep):
    def __init__(self, node: Node, window: WindowSignal) -> None:
        super().__init__(node)
        self.window = window

    def cells(self) -> tuple[Cell, ...]:
        return (last_values(self.window.size),)

    def write(self, writer: SignalWriter, *inputs: str) -> Outcome:
        values = writer.cell(self.node, "history")
        writer.code.line(f"{values}.append({inputs[0]})")
        call = f"{writer.constant('f', self.window.function)}(list({values}))"
        if not self.window.may_be_silent():
            return Outcome(call)
        return Outcome(call, f"len({values}) == {self.window.size}")


class DelayStep(SignalStep):
    def __init__(self, node: Node, delay: DelaySignal) -> None:
        super().__init__(node)
        self.delay = delay

    def cells(self) -> tuple[Cell, ...]:
        # One more than the delay: the oldest is the one to show.
        return (last_values(self.delay.count + 1),)

    def write(self, writer: SignalWriter, *inputs: str) -> Outcome:
        values = writer.cell(self.node, "history")
        writer.code.line(f"{values}.append({inputs[0]})")
        is_full = f"len({values}) > {self.delay.count}"
        if self.delay.initial is None:
            return Outcome(f"{values}[0]", is_full)
        initial = constant_source(writer, self.delay.initial.value)
        return Outcome(f"{values}[0] if {is_full} else {initial}")


def last_values(size: int) -> Cell:
    """Return the last `size` values, oldest first."""
    return Cell("history", partial(_last, (), size=size), tuple, partial(_last, size=size))


def _last(values: Iterable[Any], *, size: int) -> deque[Any]:
    return deque(values, maxlen=size)


@signal_step.register(ScanSignal)
def _scan(operator: ScanSignal, node: Node) -> SignalStep:
    return ScanSignalStep(node, operator)


@signal_step.register(WindowSignal)
def _window(operator: WindowSignal, node: Node) -> SignalStep:
    return WindowStep(node, operator)


@signal_step.register(DelaySignal)
def _delay(operator: DelaySignal, node: Node) -> SignalStep:
    return DelayStep(node, operator)
