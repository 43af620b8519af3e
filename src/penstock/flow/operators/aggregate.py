"""Group and aggregate: a row per group, kept up to date."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from penstock.graph.facts import WHOLE, Facts, Placement, Port, keyed
from penstock.graph.node import Operator

if TYPE_CHECKING:
    from penstock.expr.tree import Expr
    from penstock.flow.aggregates import Aggregation


@dataclass(frozen=True, slots=True)
class Aggregate(Operator):
    """One row per group: the keys, then the aggregates.

    A group is there while it has rows, and the group of everything (no keys)
    is no exception. Per tick a changed group sends its old row back and its
    new row out, once. Null is a key like any other; so is NaN.

    >>> import penstock as ps
    >>> from penstock import col
    >>> from penstock.testing import show
    >>> show(lambda n: n.group_by(even=col.value % 2 == 0).agg(sum=ps.sum(col.value)), n=[1, 2, 3])
    + (even=False, sum=4)
    + (even=True, sum=2)
    """

    kind: ClassVar[str] = "aggregate"
    keys: tuple[tuple[str, Expr], ...]
    aggregations: tuple[tuple[str, Aggregation], ...]

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could change a group's answer"),)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        return rows.but(append=rows.append and rows.bounded, ordered=False, once=True)

    def placement(self) -> Placement:
        return keyed(tuple(expr for _, expr in self.keys)) if self.keys else WHOLE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys
        for name, aggregation in self.aggregations:
            for expr in aggregation.arguments():
                yield name, expr

    def describe(self) -> str:
        keys = ", ".join(name for name, _ in self.keys)
        aggregates = ", ".join(f"{name}={agg}" for name, agg in self.aggregations)
        return f"by ({keys}): {aggregates}"
