"""Bag feedback operator: recursion over multisets, without removal of duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, Operator, identity_lineage
from headrace.graph.operator_declarations import WHOLE, Facts, Need, Placement, Port

if TYPE_CHECKING:
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, Unservable


@dataclass(frozen=True, slots=True)
class BagFeedback(Operator):
    """The rows of the closing stream, duplicates included: each copy goes through the loop.

    So something in the cycle must end the loop: a filter, a distinct, or exhausted rows. The operator has no
    state, and a tick without rows has no rounds. Rows of one round keep their order, unless rows may be
    retracted; then the rows derived from them are retracted, too. `max_iterations` limits the rounds of one
    tick.

    If every path back contains a `defer_tick`, the rows are just passed on.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> def countdown(seed):
    ...     back = seed.flow.feedback(int, distinct=False)
    ...     numbers = seed.union(back)
    ...     back.close(numbers.filter(col.value > 0).select(value=col.value - 1, into=int))
    ...     return numbers
    >>> show(countdown, seed=[2, 1])
    + 2
    + 1
    + 1
    + 0
    + 0
    """

    kind: ClassVar[str] = "feedback"
    plan_name: ClassVar[str | None] = "bag_feedback"
    runs_in_rounds: ClassVar[bool] = True
    max_iterations: int = field(default=10_000, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("closing"),)

    def output(self, context: CheckContext) -> Columns:
        context.require(self.max_iterations > 0, "a loop has no rounds")
        return context.output.fields

    def unservable(self) -> Unservable | None:
        return None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(output),)

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(ordered=False)

    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "a row that went round a tick later cannot be taken back:\nwhat it met there may be gone",
                "let it go round within the tick, or feed the loop from streams that only grow",
                only_in_loop=True,
                across_ticks=True,
            ),
        )

    def refused_in_changing_loop(self, goes_round: Sequence[bool]) -> str:
        return ""

    def placement(self) -> Placement:
        return WHOLE

    def describe(self) -> str:
        return "duplicates kept"
