"""Lift operator: apply a function of values to signals. Base class of operators on signals."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from headrace.graph.node import Operator
from headrace.graph.operator_declarations import SIGNAL, WHOLE, Facts, Placement, Port
from headrace.lowering.signal_step import SignalCell, SignalOutcome, SignalStep, SignalWriter, signal_step
from headrace.operators.column_arguments import ANY_VALUE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Unservable


class SignalOperator(Operator):
    """Base of operators whose output is a signal, which fires at most once per tick.

    A signal has a value once it has fired, and keeps it. An operator is activated in a tick if an input of
    `triggers()` has fired, after all its inputs are settled.
    """

    __slots__ = ()

    def triggers(self) -> tuple[int, ...]:
        """Return the ports whose firing activates the operator. Default: all."""
        return tuple(range(len(self.ports())))

    def reads_every_value(self) -> tuple[int, ...]:
        """Return the ports that need every value, not just the current one. Default: none."""
        return ()

    def waits_for_all(self) -> bool:
        """Return whether the operator is activated only once all inputs have a value."""
        return False

    def is_steady(self) -> bool:
        """Return whether the operator fires on every activation after its first firing."""
        return not self.may_be_silent()

    def is_pure(self) -> bool:
        """Return whether the operator's value is a stateless function of the current input values."""
        return False

    def tells_inputs_apart(self) -> bool:
        """Return whether the operator's result depends on which of its inputs fired."""
        return False

    def counts_when_activated(self) -> bool:
        """Return whether the operator's function is also called in ticks without a firing."""
        return False

    def placement(self) -> Placement:
        return WHOLE

    def unservable(self) -> Unservable | None:
        return SIGNAL

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return Facts(ordered=True, det=all(facts.det for facts in inputs))


ONE_INPUT = (Port("input"),)


class Align(Enum):
    """Rule that matches values of several signals.

    LATEST: the current values. The output fires when an input fires and all have a value.
    ZIP:    values at the same position: each input has an unlimited buffer, and complete rows of values are
            taken oldest first.
    """

    LATEST = "latest"
    ZIP = "zip"


@dataclass(frozen=True, slots=True)
class Constant:
    """Constant argument."""

    value: object


Argument: TypeAlias = "int | Constant"
"""Port of the input that provides the value, or a constant."""


@dataclass(frozen=True, slots=True)
class Lift(SignalOperator):
    """`function(*arguments)`, once per tick in which its arguments match.

    Python's operators on signals are lifts of the functions in module `operator`, and are inlined in the
    generated code.

    An input used twice has a port for each use. With zip, an input adds at most one value per tick, so at
    most one row of values completes per tick.

    >>> import headrace as hr
    >>> flow = hr.Flow("the quotient of two sums")
    >>> a = flow.signal("a", int)
    >>> flow.sink("d", (a + 1) / (a + 2))
    >>> list(hr.Engine(flow).replay(a=[0, 1])["d"])
    [(0, 0.5), (1, 0.6666666666666666)]
    """

    kind: ClassVar[str] = "lift"
    plan_name: ClassVar[str | None] = "signal.lift"
    function: Callable[..., object]
    arguments: tuple[Argument, ...]
    align: Align = Align.LATEST

    def ports(self) -> tuple[Port, ...]:
        return _ports(sum(not isinstance(a, Constant) for a in self.arguments))

    def output(self, context: CheckContext) -> Columns:
        ports = [argument for argument in self.arguments if not isinstance(argument, Constant)]
        context.require(bool(ports), "a function of signals reads none")
        context.require(ports == list(range(len(ports))), "the arguments are not the inputs in order")
        return ANY_VALUE.fields

    def reads_every_value(self) -> tuple[int, ...]:
        return tuple(range(len(self.ports()))) if self.align is Align.ZIP else ()

    def waits_for_all(self) -> bool:
        return self.align is Align.LATEST

    def may_be_silent(self) -> bool:
        return self.align is Align.ZIP and len(self.ports()) > 1

    def tells_inputs_apart(self) -> bool:
        return self.may_be_silent()

    def is_pure(self) -> bool:
        return self.align is Align.LATEST

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        if getattr(self.function, "__module__", "") not in ("_operator", "builtins"):
            yield "function", self.function

    def describe(self) -> str:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        constants = [f"{a.value!r:.40}" if isinstance(a, Constant) else "_" for a in self.arguments]
        return f"{name}({', '.join(constants)})" + (", zip" if self.align is Align.ZIP else "")


@lru_cache(maxsize=1024)
def _ports(count: int) -> tuple[Port, ...]:
    return tuple(Port(f"argument {at + 1}") for at in range(count))


# --- steps ----------------------------------------------------------------------------------------


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
    operator: Lift

    def write(self, writer: SignalWriter, *inputs: str) -> SignalOutcome:
        return SignalOutcome(self.call_source(writer, inputs))

    def call_source(self, writer: SignalWriter, inputs: tuple[str, ...]) -> str:
        """Return the source of the function's value."""
        arguments = [
            constant_source(writer, a.value) if isinstance(a, Constant) else inputs[a]
            for a in self.operator.arguments
        ]
        inline = INLINE.get(self.operator.function) if _is_builtin(self.operator.function) else None
        if inline is not None:
            return inline.format(*arguments)
        return f"{writer.constant('f', self.operator.function)}({', '.join(arguments)})"


class ZipSignalStep(LiftStep):
    """Zip with a buffer per position."""

    def cells(self) -> tuple[SignalCell, ...]:
        return tuple(SignalCell(f"waiting_{at}", list, tuple, list) for at in range(len(self.node.inputs)))

    def write(self, writer: SignalWriter, *inputs: str) -> SignalOutcome:
        buffers = [writer.cell(self.node, f"waiting_{at}") for at in range(len(inputs))]
        for port, (buffer, value) in enumerate(zip(buffers, inputs, strict=True)):
            fired = writer.fired_test(self.node, port)
            if fired is None:
                writer.code.line(f"{buffer}.append({value})")
            else:
                with writer.code.block(f"if {fired}:"):
                    writer.code.line(f"{buffer}.append({value})")
        taken = tuple(f"{buffer}.pop(0)" for buffer in buffers)
        return SignalOutcome(self.call_source(writer, taken), " and ".join(buffers))


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
    return ZipSignalStep(node) if zips else LiftStep(node)
