"""Chain operator: one stream followed by another within each tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import Operator, identity_lineage
from headrace.graph.operator_declarations import ANYWHERE, Facts, Placement, Port, meet

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, Unservable


@dataclass(frozen=True, slots=True)
class Chain(Operator):
    """All rows of both inputs, duplicates included; in each tick `first` comes before `second`.

    So `first` is complete before `second` is read. Over the whole run, one input follows the other only if
    all of `first` arrives in the first tick: the output is `ordered` if `first` is bounded. Otherwise the
    order depends on the cut into ticks, and operators that use it need `assume_ordered` with a reason. A tick
    without rows emits nothing.

    >>> from headrace.testing import show
    >>> show(lambda a, b: b.chain(a), a=[1, 2], b=[3])
    + 3
    + 1
    + 2
    """

    kind: ClassVar[str] = "chain"
    unites: ClassVar[bool] = True

    def ports(self) -> tuple[Port, ...]:
        why = "its rows come before those of 'second'"
        return (Port("first", blocking=True, why=why), Port("second"))

    def output(self, context: CheckContext) -> Columns:
        return context.common_columns()

    def unservable(self) -> Unservable | None:
        return None

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return (live,) * len(inputs)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return tuple(map(identity_lineage, inputs))

    def placement(self) -> Placement:
        return ANYWHERE

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        both = meet(inputs)
        return both.but(ordered=both.ordered and inputs[0].bounded)
