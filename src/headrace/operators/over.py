"""Window functions operator: columns computed over the other rows of each row's partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.tree import Column
from headrace.graph.node import Operator, identity_lineage
from headrace.graph.operator_declarations import Facts, KeyedSlot, Need, Placement, Port, place_by_key
from headrace.operators.window_functions import Over, Reach

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr, Ordering
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable


@dataclass(frozen=True, slots=True)
class ComputeOver(Operator):
    """All columns, and one per window function over a row's partition.

    Copies of a row are rows of their own. Where the order holds rows equal, they are in the order of the
    whole row, ascending. A tick emits the rows whose answers have changed, and no others.

    functions: the added columns; they share their partition and order.

    >>> import headrace as hr
    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda n: n.with_columns(sum=hr.sum(col.value).over(order_by="value")), n=[3, 1])
    + (value=1, sum=1)
    + (value=3, sum=4)
    """

    kind: ClassVar[str] = "over"
    nets: ClassVar[bool] = True
    merges_equal: ClassVar[bool] = True
    functions: tuple[tuple[str, Over], ...]

    @property
    def per(self) -> tuple[Expr, ...]:
        return self.functions[0][1].per

    @property
    def by(self) -> tuple[Ordering, ...]:
        return self.functions[0][1].by

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could change the answers of others"),)

    def output(self, context: CheckContext) -> Columns:
        context.require(bool(self.functions), "there is no window function")
        context.check_order_by(self.by)
        context.check_keys(self.per)
        for _, over in self.functions:
            same = over.shares_partitions(self.functions[0][1])
            context.require(same, "window functions have different partitions or orders")
            context.require(over.function.is_possible(), f"{over} is of no part, or of no row")
        added = (over.field(name, context.input) for name, over in self.functions)
        return (*context.input.fields, *added)

    def unservable(self) -> Unservable | None:
        return None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"partitions": KeyedSlot()}

    def placement(self) -> Placement:
        return place_by_key(self.per)

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        # Functions such as lag hand on what they compute.
        given = (expr for _, over in self.functions for expr in over.function.arguments())
        return all(inputs) and all(isinstance(expr, Column) for expr in given)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        return rows.but(append=rows.append and rows.bounded, ordered=False)

    def needs(self) -> tuple[Need, ...]:
        return ()

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        for expr in self.per:
            yield "partition_by", expr
        for ordering in self.by:
            yield "order_by", ordering.expr
        for name, over in self.functions:
            for expr in over.function.arguments():
                yield name, expr

    def describe(self) -> str:
        per = f" per {', '.join(map(str, self.per))}" if self.per else ""
        by = f" by {', '.join(map(str, self.by))}" if self.by else ""
        reaches = {over.function.reach(over.frame) for _, over in self.functions}
        (farthest,) = [reach for reach in Reach if reach in reaches][-1:]
        named = ", ".join(f"{name}={over}" for name, over in self.functions)
        return f"{named}{per}{by}; a change costs {farthest.value}"
