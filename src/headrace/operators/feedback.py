"""Feedback operator: a stream that is used before it is defined, for recursion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, Operator, identity_lineage
from headrace.graph.operator_declarations import (
    EQUAL_ROWS,
    Facts,
    KeyedSlot,
    Need,
    Placement,
    Port,
    place_by_key,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable


@dataclass(frozen=True, slots=True)
class Feedback(Operator):
    """The distinct rows of the closing stream: each goes through the loop once.

    So after each tick the cycle holds the least fixpoint of the input so far: rows derived from it, without
    any that only support each other. A tick ends as soon as no new rows are found; one without input has no
    rounds. `max_iterations` limits the rounds of one tick, so that a loop that makes new rows forever ends in
    an error instead of hanging.

    If every path back contains a `defer_tick`, there is no loop within a tick, and the output is just the set
    of rows of the closing stream.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> def countdown(seed):
    ...     return seed.flow.fixpoint(
    ...         lambda n: n.filter(col.value > 0).select(value=col.value - 1, into=int), seed)
    >>> show(countdown, seed=[2])
    + 2
    + 1
    + 0
    """

    kind: ClassVar[str] = "feedback"
    runs_in_rounds: ClassVar[bool] = True
    nets: ClassVar[bool] = True
    merges_equal: ClassVar[bool] = True
    columns: tuple[Expr, ...]
    max_iterations: int = field(default=10_000, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("closing"),)

    def output(self, context: CheckContext) -> Columns:
        context.require(self.max_iterations > 0, "a loop has no rounds")
        context.all_columns(self.columns, context.output)
        return context.output.fields

    def unservable(self) -> Unservable | None:
        return None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(output),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"copies": KeyedSlot(bare=appends[0])}

    def placement(self) -> Placement:
        return place_by_key(EQUAL_ROWS)

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(ordered=False, once=True)

    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "a row that went round a tick later cannot be taken back:\n"
                "what followed from it may hold itself up",
                "let it go round within the tick, or feed the loop from streams that only grow",
                only_in_loop=True,
                across_ticks=True,
            ),
        )

    def refused_in_changing_loop(self, goes_round: Sequence[bool]) -> str:
        return ""
