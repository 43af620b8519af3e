"""Steps of lift and zip, which read current values, and of signal sources and sinks."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.engine.signals.step import Cell, Outcome, SignalStep, SignalWriter, signal_step
from headrace.operators.signals.endpoints import LastRow, SignalSource, ValueRows
from headrace.operators.signals.lift import Align, Constant, Lift
from headrace.operators.sink import Sink

if TYPE_CHECKING:
    from headrace.graph.node import Node


class SourceStep(SignalStep):
    """Step of a source, without code: the value is an argument or loop variable of the function."""


class LeavingStep(SignalStep):
    """Step that emits a value to a sink or a stream."""

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


# The stubs of these functions have no types that a strict checker accepts.
_python: Any = operator

INLINE: dict[Callable[..., object], str] = {
    _python.add: "{} + {}",
    _python.sub: "{} - {}",
    _python.mul: "{} * {}",
    _python.truediv: "{} / {}",
    _python.floordiv: "{} // {}",
    _python.mod: "{} % {}",
    _python.pow: "{} ** {}",
    _python.matmul: "{} @ {}",
    _python.lshift: "{} << {}",
    _python.rshift: "{} >> {}",
    _python.and_: "{} & {}",
    _python.or_: "{} | {}",
    _python.xor: "{} ^ {}",
    _python.eq: "{} == {}",
    _python.ne: "{} != {}",
    _python.lt: "{} < {}",
    _python.le: "{} <= {}",
    _python.gt: "{} > {}",
    _python.ge: "{} >= {}",
    _python.invert: "~{}",
    _python.neg: "-{}",
    _python.pos: "+{}",
    _python.getitem: "{}[{}]",
    _python.not_: "not {}",
    builtins.abs: "abs({})",
}


class LiftStep(SignalStep):
    def __init__(self, node: Node, lift: Lift) -> None:
        super().__init__(node)
        self.lift = lift

    def write(self, writer: SignalWriter, *inputs: str) -> Outcome:
        return Outcome(self.call_source(writer, inputs))

    def call_source(self, writer: SignalWriter, inputs: tuple[str, ...]) -> str:
        """Return the source of the function's value."""
        arguments = [
            constant_source(writer, a.value) if isinstance(a, Constant) else inputs[a]
            for a in self.lift.arguments
        ]
        inline = INLINE.get(self.lift.function) if _is_builtin(self.lift.function) else None
        if inline is not None:
            return inline.format(*arguments)
        return f"{writer.constant('f', self.lift.function)}({', '.join(arguments)})"


class ZipStep(LiftStep):
    """Zip with a buffer per position."""

    def cells(self) -> tuple[Cell, ...]:
        return tuple(Cell(f"waiting_{at}", list, tuple, list) for at in range(len(self.node.inputs)))

    def write(self, writer: SignalWriter, *inputs: str) -> Outcome:
        buffers = [writer.cell(self.node, f"waiting_{at}") for at in range(len(inputs))]
        for port, (buffer, value) in enumerate(zip(buffers, inputs, strict=True)):
            fired = writer.fired_test(self.node, port)
            if fired is None:
                writer.code.line(f"{buffer}.append({value})")
            else:
                with writer.code.block(f"if {fired}:"):
                    writer.code.line(f"{buffer}.append({value})")
        taken = tuple(f"{buffer}.pop(0)" for buffer in buffers)
        return Outcome(self.call_source(writer, taken), " and ".join(buffers))


def constant_source(writer: SignalWriter, value: object) -> str:
    """Return the source of a constant: a literal if possible, for readable code."""
    if type(value) in (bool, int, str, type(None)) or (type(value) is float and value - value == 0):
        return f"({value!r})" if repr(value).startswith("-") else repr(value)
    return writer.constant("value", value)


def _is_builtin(function: object) -> bool:
    # Others need not be hashable, and must not be looked up.
    return isinstance(function, type(builtins.abs))


@signal_step.register(Lift)
def _lift(operator: Lift, node: Node) -> SignalStep:
    zips = operator.align is Align.ZIP and len(node.inputs) > 1
    return ZipStep(node, operator) if zips else LiftStep(node, operator)
