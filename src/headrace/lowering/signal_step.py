"""Steps of signal operators: the lines each adds to a function, and its state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from headrace.graph.node import Node, Operator
    from headrace.lowering.generated_source import SourceCode


def as_it_is(value: Any) -> Any:
    """Identity, for values that are plain data."""
    return value


@dataclass(frozen=True, slots=True)
class SignalCell:
    """Variable that keeps its value between ticks.

    first:  creates the initial value.
    freeze: converts the value to immutable plain data for storage. thaw: converts it back.
    """

    name: str
    first: Callable[[], Any]
    freeze: Callable[[Any], Any] = as_it_is
    thaw: Callable[[Any], Any] = as_it_is


@dataclass(frozen=True, slots=True)
class SignalOutcome:
    """Outcome of a step's lines, as source.

    value:     the new value, evaluated once, and only if it fires.
    condition: whether the operator fires; None for always.
    """

    value: str
    condition: str | None = None


class SignalWriter(Protocol):
    """Interface that steps use to write a function. code: receives the lines."""

    @property
    def code(self) -> SourceCode: ...

    def constant(self, prefix: str, value: object) -> str:
        """Return the name of a constant without a source literal."""
        ...

    def fresh(self, name: str) -> str:
        """New local variable, unique in the function."""
        ...

    def cell(self, node: Node, name: str) -> str:
        """Return the variable of a named cell of an operator's state."""
        ...

    def has_value(self, node: Node, port: int) -> str | None:
        """Return a test for a value of an input; None if it certainly has one."""
        ...

    def fired_test(self, node: Node, port: int) -> str | None:
        """Return a test for an input's firing in this tick; None if it certainly fired.

        For operators that `tells_inputs_apart`.
        """
        ...

    def write_leaving(self, node: int, value: str) -> None:
        """Write code that emits a value to a sink or a stream."""
        ...


class SignalStep:
    """One operator's part of a function.

    operator: of the node, of the class that the step is registered for.

    `write` is called once per generated function and must not keep state: the same operator is written for
    single ticks and for loops over ticks.
    """

    operator: Any

    def __init__(self, node: Node) -> None:
        self.node = node
        self.operator = node.operator

    def cells(self) -> tuple[SignalCell, ...]:
        """Return the state of the operator. In generated code `writer.cell(node, name)` is the variable."""
        return ()

    def write(self, writer: SignalWriter, *inputs: str) -> SignalOutcome | None:
        """Write the code to run when the operator is activated; return None if it produces no value.

        inputs: names of the current values, by port.
        """
        raise NotImplementedError


@singledispatch
def signal_step(operator: Operator, node: Node) -> SignalStep:
    """Create the step of an operator on signals; every operator class registers one."""
    raise NotImplementedError(f"signals have no step for {type(operator).__name__}")


S = TypeVar("S", bound=SignalStep)


def register_signal_step(*operators: type[Operator]) -> Callable[[type[S]], type[S]]:
    """Register a step class for these operators, created from the node only."""

    def register(step: type[S]) -> type[S]:
        for operator in operators:
            signal_step.register(operator, lambda operator, node: step(node))
        return step

    return register
