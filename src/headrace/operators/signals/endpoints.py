"""Signals at their ends: sources, the last row of each tick as a signal, the values of a signal as rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, Operator
from headrace.graph.operator_declarations import WHOLE, Facts, Need, Placement, Port
from headrace.lowering.signal_step import SignalStep, SignalWriter, register_signal_step
from headrace.operators.lifetime import CutDependent
from headrace.operators.signals.signal_operator import ONE_INPUT, SignalOperator
from headrace.operators.sink import Sink
from headrace.operators.unservable import SIGNAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


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
class LastRow(CutDependent, SignalOperator):
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

    def needs(self) -> tuple[Need, ...]:
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

    def gives(self, inputs: Sequence[Facts]) -> Facts:
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


@register_signal_step(Sink, ValueRows)
class EmittingStep(SignalStep):
    """Step that emits a value to a sink or a stream."""

    def write(self, writer: SignalWriter, *inputs: str) -> None:
        writer.write_leaving(self.node.id, inputs[0])
