"""Base class of operators on signals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.graph.node import Operator
from headrace.graph.operator_declarations import WHOLE, Facts, Placement, Port
from headrace.operators.unservable import SIGNAL

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        """Return the ports of which every value is needed, not just the current one. Default: none."""
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

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return Facts(ordered=True, det=all(facts.det for facts in inputs))


ONE_INPUT = (Port("input"),)
