"""Feedback: a stream that is used before it is defined, for recursion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from penstock.graph.facts import WHOLE, Facts, Need, Placement, Port
from penstock.graph.node import ALTERABLE, Operator

if TYPE_CHECKING:
    from penstock.expr.tree import Expr


@dataclass(frozen=True, slots=True)
class Feedback(Operator):
    """The set of all rows that the closing stream ever had: a row goes round once.

    So the cycle computes a least fixpoint within each tick, and ends as soon as
    nothing new is found. `max_iterations` bounds the rounds of one tick; a loop
    that makes new rows for ever ends in an error instead of a hang.

    Where every way back passes a `defer_tick`, there is no loop within a tick;
    then rows may be taken back too, and this is the set of the rows that the
    closing stream has.

    >>> from penstock import col
    >>> from penstock.testing import show
    >>> def countdown(seed):
    ...     return seed.flow.fixpoint(
    ...         lambda n: n.filter(col.value > 0).select(value=col.value - 1, into=int), seed)
    >>> show(countdown, seed=[2])
    + 2
    + 1
    + 0
    """

    kind: ClassVar[str] = "feedback"
    columns: tuple[Expr, ...]
    max_iterations: int = field(default=10_000, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("closing"),)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(ordered=False, once=True)

    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "a row that went round cannot be taken back:\n"
                "what followed from it may have other reasons to stay",
                "feed the loop from streams that only grow, or aggregate and subtract after it",
                only_in_loop=True,
            ),
        )

    def placement(self) -> Placement:
        return WHOLE
