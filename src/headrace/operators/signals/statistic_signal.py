"""Statistic operator for signals: a function of all values so far, or of a window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.operator_declarations import Port
from headrace.operators.signals.signal_operator import SignalOperator
from headrace.operators.statistic_arguments import (
    check_numbers,
    check_times,
    missing_kind,
    schema_of_result,
    time_kind,
)
from headrace.operators.statistics.statistic import Statistic
from headrace.operators.statistics.value_kinds import Holes, Times

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns


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
