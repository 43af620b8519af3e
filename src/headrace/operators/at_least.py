"""At-least operator: threshold on values that only grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import Operator
from headrace.graph.operator_declarations import Facts, KeyedSlot, Placement, Port, place_by_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import SlotLayout, Unservable
    from headrace.lattice import Lattice


@dataclass(frozen=True, slots=True)
class AtLeast(Operator):
    """Keys whose value in `column` has reached `threshold`, each emitted once, in the tick of reaching it.

    A row has the key's columns, and the threshold in place of the column. The operator itself is non-blocking
    (its input may not be: an aggregate completes the tick first). It retracts nothing, although its input
    retracts old values, because the column must be monotone, which the analysis checks. An empty tick emits
    nothing; keys are emitted in the order in which they reach the threshold.

    lattice: lattice whose order defines "at least"; for numbers, the usual order.

    >>> import headrace as hr
    >>> from headrace.testing import show
    >>> show(lambda words: words.group_by("value").agg(n=hr.count()).at_least(2, column="n"),
    ...      words=["a", "b", "a", "a"])
    + (value='a', n=2)
    """

    kind: ClassVar[str] = "at_least"
    merges_equal: ClassVar[bool] = True
    threshold: object
    column: str
    keys: tuple[Expr, ...]
    lattice: Lattice

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        # Whether the column only grows follows from the upstream operators alone.
        made, schema = context.threshold(self.threshold, self.column)
        context.require_as_built_by_flow(made, self, "what grows, and by which keys, is something else")
        return schema.fields

    def unservable(self) -> Unservable | None:
        return None

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"reached": KeyedSlot()}

    def placement(self) -> Placement:
        return place_by_key(self.keys)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(append=True, ordered=False, once=True)

    def grows_from(self) -> str | None:
        return self.column

    def describe(self) -> str:
        return f"{self.column} >= {self.threshold!r}"
