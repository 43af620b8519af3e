"""Union operator: all rows of several streams of one row type."""

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
class Union(Operator):
    """All rows of all inputs, duplicates included (`UNION ALL`; follow with `distinct` for a set).

    In a flow with given ticks, the rows of a tick are emitted port by port; otherwise their order is
    meaningless. A tick without rows emits nothing.

    >>> from headrace.testing import show
    >>> show(lambda a, b: a.union(b), a=[1, 2], b=[2])
    + 1
    + 2
    + 2
    """

    kind: ClassVar[str] = "union"
    runs_in_rounds: ClassVar[bool] = True
    unites: ClassVar[bool] = True
    linear: ClassVar[bool] = True
    count: int

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),) * self.count

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
        return meet(inputs).but(ordered=False)
