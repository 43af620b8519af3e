"""Statistic operator for signals: a function of all values so far, or of a window."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.graph.operator_declarations import Port
from headrace.lowering.signal_step import (
    Cell,
    Outcome,
    SignalStep,
    SignalWriter,
    register_signal_step,
)
from headrace.operators.signals.signal_operator import SignalOperator
from headrace.operators.statistic_arguments import (
    check_numbers,
    check_times,
    missing_kind,
    schema_of_result,
    time_kind,
)
from headrace.operators.statistics.kernel import InputValues, Variable, kernel_of, rename_variables
from headrace.operators.statistics.kernel_runtime import FUNCTIONS
from headrace.operators.statistics.statistic import Holes, Statistic, Times

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node


@dataclass(frozen=True, slots=True)
class StatisticSignal(SignalOperator):
    """Statistic of one or two signals, with a time signal if it needs times.

    It is activated when a signal of values fires and all have a value, at the current time. Statistics that
    wait for time to pass are also activated by the time alone. It is silent until it has enough values.

    >>> import headrace as hr
    >>> flow = hr.Flow("moving mean")
    >>> flow.sink("mean", flow.signal("a", float).moving(2).mean())
    >>> list(hr.Engine(flow).replay(a=[1.0, 2.0, 4.0])["mean"])
    [(1, 1.5), (2, 3.0)]
    """

    kind: ClassVar[str] = "statistic"
    plan_name: ClassVar[str | None] = "signal.statistic"
    statistic: Statistic
    holes: Holes = Holes.NAN_NONE
    times: Times = Times.EITHER

    def ports(self) -> tuple[Port, ...]:
        values = (Port("values"), Port("other values"))[: self.statistic.inputs]
        return (*values, Port("times")) if self.statistic.reads_time else values

    def output(self, context: CheckContext) -> Columns:
        statistic, location = self.statistic, context.location
        statistic.check(context.require)
        values = context.inputs[: statistic.inputs]
        if statistic.numbers:
            for schema in values:
                check_numbers(statistic.kind, schema, location)
        holes = max(map(missing_kind, values), key=list(Holes).index, default=Holes.NONE)
        times = Times.EITHER
        if statistic.reads_time:
            check_times(context.inputs[-1], location)
            times = time_kind(context.inputs[-1])
        context.require((self.holes, self.times) == (holes, times), "values and times are of other types")
        return schema_of_result(statistic.result, context.input).fields

    def triggers(self) -> tuple[int, ...]:
        heard = len(self.ports()) if self.statistic.waits_for_time else self.statistic.inputs
        return tuple(range(heard))

    def reads_every_value(self) -> tuple[int, ...]:
        return tuple(range(self.statistic.inputs))

    def tells_inputs_apart(self) -> bool:
        return self.statistic.waits_for_time

    def waits_for_all(self) -> bool:
        return True

    def may_be_silent(self) -> bool:
        return self.statistic.may_be_silent

    def is_steady(self) -> bool:
        return self.statistic.is_steady

    def describe(self) -> str:
        described = self.statistic.describe()
        return f"{self.statistic.kind}: {described}" if described else self.statistic.kind


@register_signal_step(StatisticSignal)
class StatisticStep(SignalStep):
    """Step of a statistic, which inlines its kernel in the function."""

    operator: StatisticSignal

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        operator, statistic = self.operator, self.operator.statistic
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
