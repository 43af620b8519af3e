"""What operators on signals have in common, as data for analysis and engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.flow.unservable import SIGNAL
from penstock.graph.facts import WHOLE, Facts, Placement, Port
from penstock.graph.node import Operator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.graph.facts import Unservable


class SignalOperator(Operator):
    """An operator whose output is a signal: in each tick it fires once, or it does not.

    A signal has a value once it has fired, and keeps it. An operator is activated
    in a tick when an input of `triggers()` fired, after all that it reads is settled.
    """

    __slots__ = ()

    def triggers(self) -> tuple[int, ...]:
        """Numbers of the ports whose firing activates it. Default: all of them."""
        return tuple(range(len(self.ports())))

    def reads_every_value(self) -> tuple[int, ...]:
        """Numbers of the ports of which each value counts, and not only the current one. Default: none."""
        return ()

    def waits_for_all(self) -> bool:
        """Whether it is activated only when all of its inputs have a value."""
        return False

    def is_steady(self) -> bool:
        """Whether it fires whenever it is activated once it has fired."""
        return not self.may_be_silent()

    def is_pure(self) -> bool:
        """Whether its value is a function of the current values of its inputs alone, without state."""
        return False

    def tells_inputs_apart(self) -> bool:
        """Whether it matters to it which of its inputs fired."""
        return False

    def counts_when_activated(self) -> bool:
        """Whether its function is called also in ticks in which it then does not fire."""
        return False

    def placement(self) -> Placement:
        return WHOLE

    def unservable(self) -> Unservable | None:
        return SIGNAL

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return Facts(ordered=True, det=all(facts.det for facts in inputs))


ONE_INPUT = (Port("input"),)
