"""Where values come in and go out: sources, sinks, and the borders with streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.signals.step import SignalStep, SignalWriter, signal_step
from penstock.flow.operators.signals.last_row import LastRow
from penstock.flow.operators.signals.signal_source import SignalSource
from penstock.flow.operators.signals.value_rows import ValueRows
from penstock.flow.operators.sink import Sink

if TYPE_CHECKING:
    from penstock.graph.node import Node


class SourceStep(SignalStep):
    """Writes nothing: the value is an argument of the function, or the variable of its loop."""


class LeavingStep(SignalStep):
    """Gives the value to whoever looks at the sink or reads the stream."""

    def write(self, writer: SignalWriter, *inputs: str) -> None:
        writer.write_leaving(self.node.id, inputs[0])


@signal_step.register(SignalSource)
@signal_step.register(LastRow)
def _source(operator: SignalSource | LastRow, node: Node) -> SignalStep:
    return SourceStep(node)


@signal_step.register(Sink)
@signal_step.register(ValueRows)
def _leaving(operator: Sink | ValueRows, node: Node) -> SignalStep:
    return LeavingStep(node)
