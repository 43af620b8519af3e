"""Tick fold operator: combine the rows of each tick into one value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, Operator
from headrace.graph.operator_declarations import WHOLE, Facts, Need, Placement, Port
from headrace.operators.fold import described, named_functions
from headrace.operators.function_claims import NO_CLAIMS, Claims
from headrace.operators.lifetime import DEPENDS_ON_CUT
from headrace.operators.unservable import OF_A_TICK

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


@dataclass(frozen=True, slots=True)
class FoldTick(Operator):
    """`function(accumulated, row)` over the rows of a tick, starting from `init`: `fold(lifetime="tick")`.

    It emits one plain row in every tick that runs; without input rows, the value is `init`.

    item: the folded item of a row; None for the whole row.

    >>> from headrace.testing import show
    >>> show(lambda n: n.fold(0, lambda sum, x: sum + x, lifetime="tick", nondet="it is shown"), n=[1, 2])
    + 3
    """

    kind: ClassVar[str] = "fold_tick"
    merges_equal: ClassVar[bool] = True
    runs_each_tick: ClassVar[bool] = True
    init: object
    function: Callable[..., object]
    accumulated: Schema
    claims: Claims = NO_CLAIMS
    item: Expr | None = None
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could change the tick's value"),)

    def output(self, context: CheckContext) -> Columns:
        if self.item is not None:
            context.check_keys([self.item])
        return self.accumulated.fields

    def unservable(self) -> Unservable | None:
        return OF_A_TICK

    def at_most_one_row(self) -> bool:
        return True

    def needs(self) -> tuple[Need, ...]:
        return self.claims.needs()

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        det = inputs[0].det and self.nondet is None
        return inputs[0].but(bounded=False, append=True, ordered=True, once=True, det=det)

    def guard(self) -> str | None:
        return self.nondet

    def depends_on_cut(self) -> str:
        return DEPENDS_ON_CUT

    def placement(self) -> Placement:
        return WHOLE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        if self.item is not None:
            yield "item", self.item

    def callables(self) -> Iterator[tuple[str, Callable[..., object]]]:
        yield from named_functions(self.init, self.function)

    def assumptions(self) -> Iterator[str]:
        yield from Operator.assumptions(self)
        yield from self.claims.clauses_about(self.function)

    def describe(self) -> str:
        return described(self.function, self.claims)
