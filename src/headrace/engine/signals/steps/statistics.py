"""Steps of statistics, each inlining a kernel in the function."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.engine.signals.statistics import FUNCTIONS, InputValues, Variable, kernel_of, rename_variables
from headrace.engine.signals.step import Cell, Outcome, SignalStep, SignalWriter, signal_step
from headrace.operators.signals.statistic_signal import StatisticSignal

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.graph.node import Node


class StatisticStep(SignalStep):
    def __init__(self, node: Node, operator: StatisticSignal) -> None:
        super().__init__(node)
        self.operator = operator
        statistic = operator.statistic
        self._kernel = kernel_of(statistic, InputValues(statistic.inputs, operator.holes, operator.times))

    def cells(self) -> tuple[Cell, ...]:
        return tuple(as_cell(v) for v in self._kernel.variables)

    def write(self, writer: SignalWriter, *inputs: str) -> Outcome:
        source = self._names(writer, inputs)
        for line in self._kernel.lines:
            writer.code.line(rename_variables(line, source))
        fires = self._kernel.fires
        condition = rename_variables(fires, source) if self.operator.may_be_silent() else None
        return Outcome(rename_variables(self._kernel.value, source), condition)

    def _names(self, writer: SignalWriter, inputs: tuple[str, ...]) -> Callable[[str], str]:
        """Return the names of the kernel's variables in generated code."""
        names: dict[str, str] = dict(zip(("x", "y")[: self.operator.statistic.inputs], inputs))
        if self.operator.statistic.reads_time:
            names["t"] = inputs[-1]
        cells = {v.name for v in self._kernel.variables}

        def name(wanted: str) -> str:
            if wanted not in names:
                names[wanted] = self._new_name(writer, wanted, cells)
            return names[wanted]

        return name

    def _new_name(self, writer: SignalWriter, wanted: str, cells: set[str]) -> str:
        if wanted in cells:
            return writer.cell(self.node, wanted)
        if wanted in FUNCTIONS:
            return writer.constant(wanted, FUNCTIONS[wanted])
        if wanted in self._kernel.constants:
            return writer.constant(wanted, self._kernel.constants[wanted])
        if wanted == "fresh":
            fired = [writer.fired_test(self.node, port) for port in range(self.operator.statistic.inputs)]
            return "True" if None in fired else f"({' or '.join(f for f in fired if f)})"
        return writer.fresh(wanted)


def as_cell(variable: Variable) -> Cell:
    def first() -> Any:
        return variable.first(FUNCTIONS)

    return Cell(
        variable.name,
        first,
        partial(_nested, lists=variable.lists, made=tuple),
        partial(_nested, lists=variable.lists, made=list),
    )


def _nested(value: Any, *, lists: int, made: Callable[[Any], Any]) -> Any:
    """Copy the nested lists of `value`."""
    if not lists:
        return value
    return made([_nested(v, lists=lists - 1, made=made) for v in value])


@signal_step.register(StatisticSignal)
def _statistic(operator: StatisticSignal, node: Node) -> SignalStep:
    return StatisticStep(node, operator)
