"""Aggregate operator: group rows and maintain one result row per group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.tree import columns_of
from headrace.graph.monotone_columns import MonotoneColumns
from headrace.graph.node import ALTERABLE
from headrace.graph.operator_declarations import Facts, KeyedSlot, Need, Placement, Port, place_by_key
from headrace.lattice import Max
from headrace.operators.aggregates import aggregated
from headrace.operators.lifetime import Lifetime, WithLifetime, tick_needs, with_lifetimes

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from headrace.expr.tree import Expr
    from headrace.expr.types import Field, Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Operator
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.operators.aggregates import Aggregation


@dataclass(frozen=True, slots=True)
class Aggregate(WithLifetime):
    """One row per group: the keys, then the aggregates.

    A group exists while it has rows, even the group of all rows (no keys). Per tick, a changed group retracts
    its old result row and emits the new one, once. Null is a key like any other, as is NaN. A tick without
    changes emits nothing. With lifetime TICK, each tick aggregates only its own rows, and emits groups in the
    order of their first rows.

    nondet: reason why results may depend on the cut into ticks, if the lifetime is TICK.

    >>> import headrace as hr
    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda n: n.group_by(even=col.value % 2 == 0).agg(sum=hr.sum(col.value)), n=[1, 2, 3])
    + (even=False, sum=4)
    + (even=True, sum=2)
    """

    kind: ClassVar[str] = "aggregate"
    nets: ClassVar[bool] = True
    merges_equal: ClassVar[bool] = True
    keys: tuple[tuple[str, Expr], ...]
    aggregations: tuple[tuple[str, Aggregation], ...]
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could change a group's answer"),)

    def output(self, context: CheckContext) -> Columns:
        return aggregated(context, self.keys, (), self.aggregations)

    def unservable(self) -> Unservable | None:
        return None

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        exprs = (expr for _, expr in self.expressions())
        return ({name for expr in exprs for name in columns_of(expr)},)

    def over(
        self, inputs: Sequence[Schema], kept: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[Operator, tuple[Field, ...]]:
        return self, output.fields

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (dict(self.keys),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"groups": KeyedSlot()}

    def placement(self) -> Placement:
        return place_by_key(tuple(expr for _, expr in self.keys))

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def at_most_one_row(self) -> bool:
        return not self.keys

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        if self.lifetime is Lifetime.TICK:
            return rows.but(append=True, ordered=False, once=True, det=rows.det and self.nondet is None)
        return rows.but(append=rows.append and rows.bounded, ordered=False, once=True)

    def needs(self) -> tuple[Need, ...]:
        return tick_needs((self.lifetime,))

    def growth(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        if self.lifetime is Lifetime.TICK:
            return None
        growing = (name for name, aggregation in self.aggregations if aggregation.only_grows)
        return MonotoneColumns(tuple(name for name, _ in self.keys), dict.fromkeys(growing, Max()))

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys
        for name, aggregation in self.aggregations:
            for expr in aggregation.arguments():
                yield name, expr

    def describe(self) -> str:
        keys = ", ".join(name for name, _ in self.keys)
        aggregates = ", ".join(f"{name}={agg}" for name, agg in self.aggregations)
        return with_lifetimes(f"by ({keys}): {aggregates}", (self.lifetime,))
